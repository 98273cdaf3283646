"""`kafkawire-spark export`: rows of a topic into a table, each once, whoever dies when.

    wanted      which offsets there are to export, behind where the job is
    rounds      which of them come next, and in which tasks, so that files get their size: pure
    tasks       what a task does: rows into files
    driver      rounds and commits, one behind the other

Only the table remembers: files and where the job has come to are committed together. Dead letters go before them into a
table of their own, which remembers likewise; so whatever a run plans that comes after a crash, none is there twice.
"""
