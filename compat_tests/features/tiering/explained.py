"""Reasons for different replies with a remote tier: the committed table that makes a difference acceptable."""

from __future__ import annotations

from compat_tests.differential.explained import DETAILS as EVERYWHERE
from compat_tests.differential.explained import Explanation

POINT = r"\.topics\[0\]\.partitions\[0\]\."

KINDER = (
    Explanation(
        "A limit of no bytes returns a batch, from the tier as from a log dir",
        "If it would have to read the tier, Kafka replies without records, and a consumer would never continue.",
        case="fetch[.]limits .*",
        path=r"from \d+, at most 0( in all)?: row 0\.batches",
        kafka=r"\(0 rows\)",
        ours=r"\(1 rows\)",
    ),
    Explanation(
        "The greatest timestamp belongs to a record that exists",
        "Kafka looks only into local segments, and there also at deleted records.",
        case="(list_offsets[.]greatest_timestamps|delete_records[.]deleted_across_tiers) .*",
        path=rf"(in the tier|all): point -3 in v\d+{POINT}(offset|timestamp|leader_epoch)",
    ),
    Explanation(
        "The local part of a log begins at the log start, or above it",
        "Kafka does not move its start while a topic is not in the tier. It then returns an offset that is deleted.",
        case="list_offsets[.]enabled_later .*",
        path=rf"in the tier: point -4 in v\d+{POINT}(offset|leader_epoch)",
        kafka="0|-1",
    ),
    Explanation(
        "The latest offset in the tier exists there",
        "If all copied records have been deleted, Kafka still returns the last copied offset. kafkawire returns -1.",
        case="(delete_records[.]deleted_across_tiers|list_offsets[.](retention_by_size|everything_expires)) .*",
        path=rf"(where the local part starts|in the local part|all|and more|one byte): point -5 in v\d+{POINT}offset",
        kafka=r"\d+",
        ours="-1",
    ),
)
DETAILS = (
    *(each for each in EVERYWHERE if each.title.startswith("min.insync.replicas")),
    Explanation(
        "An invalid value is refused in other words",
        "The code is the same, and both texts name the value and the key.",
        path=".*: text",
        kafka="Invalid value .*(Value must be at least|Not a number of type|Expected value to be).*",
        ours="Invalid value .*(must be between|must be a whole number|must be true or false).*",
    ),
    Explanation(
        "CreateTopics returns a value as it is stored",
        "Kafka repeats the value of the request.",
        case="create_topics[.]values_of_the_keys .*",
        kafka="TRUE",
        ours="true",
    ),
    Explanation(
        "Topic keys of Apache Kafka 4.4 are shown",
        "Kafka 4.3.1 does not know them.",
        path=r".*\.configs\.(errors\.deadletterqueue\.group\.enable|max\.decompressed\.message\.bytes"
        r"|remote\.copy\.lag\.(bytes|ms))",
        kafka=r"\(absent\)",
        ours=r"\(present\)",
    ),
)
EXPLANATIONS: tuple[Explanation, ...] = (*KINDER, *DETAILS)
