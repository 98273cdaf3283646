"""The same bytes to Apache Kafka and to kafkawire; every difference in the replies is explained or is a failure.

`side` is one broker with a scenario's transcript, `catalogue` collects the scenarios of the `cases_*` modules,
`normalise` and `compare` find differences, `explained` holds the reasons, `document` writes docs/differences.md.
`python -m compat_tests.differential` runs everything and rewrites that file.
"""
