"""Why replies differ: the committed table that makes a difference acceptable. Nothing else does.

A reason says what we do and why; "not built yet" is a reason only with the step that builds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compat_tests.differential.compare import STOPPED

if TYPE_CHECKING:
    from compat_tests.differential.compare import Difference


@dataclass(frozen=True)
class Explanation:
    """Patterns that must match the whole of `api.scenario vN`, the path and both values."""

    title: str
    reason: str
    case: str = ".*"
    path: str = ".*"
    kafka: str = ".*"
    ours: str = ".*"

    def covers(self, difference: Difference) -> bool:
        pairs = (
            (self.case, f"{difference.case} v{difference.version}"),
            (self.path, difference.path),
            (self.kafka, difference.kafka),
            (self.ours, difference.ours),
        )
        # A scenario that could not go on compared nothing, which no reason makes good.
        return difference.path != STOPPED and all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in pairs)


PRODUCED = r"\.responses\[0\]\.partition_responses\[0\]\."
ROW = "(error_code|base_offset|log_start_offset|error_message|record_errors)"
END = r"\.topics\[0\]\.partitions\[0\]\.offset"
LOG = r"\.responses\[0\]\.partitions\[0\]\.(high_watermark|last_stable_offset|records.*)"


def outcome_of(labels: str) -> str:
    """What one step of a Produce scenario was answered, and what is in the log after it."""
    return f"({labels}){PRODUCED}{ROW}|end after ({labels}|all){END}|log after ({labels}|all){LOG}"


NOT_BUILT = (
    Explanation(
        "APIs that are not built yet are not advertised",
        "Only what works is advertised; docs/protocol.md lists what is served.",
        path=r".*\.api_keys\.\d+",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
    Explanation(
        "Of the features transaction.version alone is reported",
        "group.version and the like are reported once what they stand for works; metadata.version and kraft.version "
        "belong to KRaft.",
        path=r".*\.(supported|finalized)_features\.(eligible\.leader\.replicas|group|kraft|metadata|share|streams)"
        r"\.version",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
    Explanation(
        "A logger has no documentation",
        "Kafka tells an empty one, which as with any other config is left out here when it was not asked for.",
        case="describe_configs[.]of_other_things .*",
        path=r".*\.results\[0\]\.configs\.root\.documentation",
    ),
    Explanation(
        "Broker keys that nothing here obeys are not shown",
        "docs/configs.md lists those that are; of Kafka's, a key that is not known is a warning at the start.",
        case="describe_configs[.]everything_of_a_broker .*",
        path=r"all\.results\[0\]\.configs\..*",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
)
STRICTER = (
    Explanation(
        "Strings that are not UTF-8 close the connection",
        "Java replaces what it cannot decode, so two different names may become one. We refuse them.",
        case="metadata[.]strings .*",
        ours="closed",
    ),
    Explanation(
        "A client id that is not UTF-8 closes the connection",
        "As any other string.",
        case=".*[.]client_ids .*",
        path="client id: not UTF-8",
        ours="closed",
    ),
    Explanation(
        "Lengths and counts below -1 close the connection",
        "Kafka takes any negative length for null, and a tag count of 2^32 - 1 for none. Only -1 means null in the "
        "protocol; the rest is a broken or hostile client.",
        path="client id: length -2|count -.*|in the header: 4 billion",
        ours="closed",
    ),
    Explanation(
        "Bytes behind a batch are refused",
        "Kafka stores the first batch of a partition and drops, without a word, bytes behind it that are no whole "
        "batch. We answer INVALID_RECORD: what was sent and what is stored must not differ.",
        case="produce[.]bytes_that_are_no_batch .*",
        path=outcome_of("one byte behind|half a batch behind"),
    ),
    Explanation(
        "An unknown codec is an invalid record",
        "Kafka fails with UNKNOWN_SERVER_ERROR; the fault is the client's and INVALID_RECORD says so.",
        case="produce[.]lies_in_the_header .*",
        path=r"codec \d" + PRODUCED + "error_code",
        kafka="-1",
        ours="87",
    ),
    Explanation(
        "A Fetch with a replica id is refused",
        "Only brokers may claim to be replicas, on a listener of their own; any client could otherwise move the high "
        "watermark. Kafka looks for the replica and answers NOT_LEADER_OR_FOLLOWER.",
        case="fetch[.]replica_ids .*",
        path="replica [12][.].*",
    ),
)
NOT_WALKED = (
    Explanation(
        "Records inside a batch are not walked",
        "Size, CRC and every header field are checked; records are not decoded, which costs forty times what the CRC "
        "does. A batch whose records contradict its header, in number, length, offset or codec, is stored as sent.",
        case="produce[.]lies_in_the_records .*",
        path=outcome_of(
            "broken varint|record longer than the batch|a byte behind the records|records cut|"
            "gzip of too few|gzip, broken"
        ),
        kafka=r"0|-1|87|\(0 rows\)",
        ours=r"0|2|\(1 rows\)",
    ),
    Explanation(
        "Nor are they counted, or their timestamps compared with the header's",
        "As above: a header that says three of two records is stored, and a wrong maxTimestamp is not corrected.",
        case="produce[.]lies_in_the_header .*",
        path=outcome_of("count and delta of three|gzip that is plain|max timestamp .*"),
    ),
    Explanation(
        "Wrong timestamps are refused without naming each record",
        "The header's timestamps decide, so the error and its text come without a list of records.",
        case="produce[.]timestamp.* .*",
        path=r".*\.record_errors",
        ours=r"\(0 rows\)",
    ),
)
KINDER = (
    Explanation(
        "A topic made on first use is there at once",
        "Kafka creates it behind the reply, which says UNKNOWN_TOPIC_OR_PARTITION, and the client asks again. We "
        "answer with the topic.",
        case="metadata[.]unknown_topic_is_created .*",
        path="first[.].*",
    ),
    Explanation(
        "Neither name nor id: no answer for that topic instead of a failed request",
        "Kafka fails with UNKNOWN_SERVER_ERROR and leaves out brokers and cluster id.",
        case="metadata[.](by_topic_id|array_counts|strings) v1[23]",
        path="(zero id|count 2|name: null)[.].*",
    ),
    Explanation(
        "Records that are null get an answer",
        "Kafka fails inside and never answers; the client waits until it gives up. We answer INVALID_RECORD.",
        case="produce[.]null_records .*",
        kafka="open, no reply",
    ),
    Explanation(
        "A consumer's subscription that cannot be read does not matter",
        "Kafka looks into it to know the topics of a group; when it cannot be read, who joins is never answered. We "
        "take the group for one whose topics are not known.",
        case="join_group[.]metadata_that_is_none .*",
        path="metadata 6d65.*",
        kafka="open, no reply",
    ),
    Explanation(
        "Unknown isolation levels and negative sizes in Fetch and ListOffsets are harmless",
        "Kafka fails with UNKNOWN_SERVER_ERROR. We read an unknown level as read_uncommitted, a negative limit as 0.",
        case="(fetch[.](isolation_levels|size_limits)|list_offsets[.]isolation_levels) .*",
        path=r"(level (2|-1)|(partition )?limit -1|both partitions -1)(, \w+)?[.].*",
    ),
    Explanation(
        "An operation on configs that does not exist is the client's fault",
        "Kafka fails with UNKNOWN_SERVER_ERROR.",
        case="incremental_alter_configs[.]refused .*",
        path=r"unknown operation\.responses\[0\]\..*",
    ),
    Explanation(
        "A tagged field that comes twice in the header of a request for configs is ignored twice",
        "Kafka fails with UNKNOWN_SERVER_ERROR. Requests of other kinds it takes.",
        case="(incremental_)?alter_configs[.]tagged_fields .*",
        path="in the header: one twice[.].*",
    ),
    Explanation(
        "A resource named twice in AlterConfigs gets an answer",
        "Kafka never answers; the client waits until it gives up. We refuse both, as both do in "
        "IncrementalAlterConfigs.",
        case="alter_configs[.]replaced .*",
        path="same resource twice",
        kafka="open, no reply",
    ),
    Explanation(
        "DescribeTopicPartitions of a topic without a name refuses that name alone",
        "Kafka fails with UNKNOWN_SERVER_ERROR for all topics of the request.",
        case="describe_topic_partitions[.]pages .*",
        path="no name[.].*",
    ),
    Explanation(
        "A request to add partitions to no transactions gets an answer",
        "Kafka never answers.",
        case="add_partitions_to_txn[.]for_many_transactions .*",
        path="nothing",
        kafka="open, no reply",
    ),
    Explanation(
        "The end of a transaction is repeated only by who ended it",
        "Kafka compares epochs alone: after an end of the first protocol, who was fenced by a producer that began anew "
        "passes for one that repeats its EndTxn, and is given the epoch of the other.",
        case="end_txn[.]ends_after_an_end_of_the_first_protocol v.*",
        path=r"commit (True|False) after (True|False)\.(error_code|producer_id|producer_epoch)",
    ),
    Explanation(
        "A marker of a negative epoch is of an older epoch",
        "Kafka fails with UNKNOWN_SERVER_ERROR.",
        case="write_txn_markers[.]markers_by_hand .*",
        path=r"a negative epoch\..*",
    ),
    Explanation(
        "A partition named twice in Produce is appended twice",
        "Kafka keeps the last of them and drops the others without a word.",
        case="produce[.]several_partitions .*",
        path="same partition twice[.].*",
    ),
)
DETAILS = (
    Explanation(
        "min.insync.replicas has its default from the topic's defaults",
        "In Kafka it is a dynamic setting of the cluster, made when it was formatted; the value is the same.",
        path=r".*\.configs\.min\.insync\.replicas(\.config_source|\.synonyms)?",
        kafka=r"3|\(present\)|\(\d rows\)",
        ours=r"5|\(absent\)|\(\d rows\)",
    ),
    Explanation(
        "Keys of our own are shown",
        "As all others.",
        case="describe_configs[.]everything_of_a_broker .*",
        path=r"all\.results\[0\]\.configs\..*",
        kafka=r"\(absent\)",
        ours=r"\(present\)",
    ),
    Explanation(
        "Some broker keys have other defaults",
        "There are no controllers to name and no group protocols but the classic one yet, node.id and log.dirs have "
        "defaults, and a bound of queued.max.request.bytes is better than none.",
        case="describe_configs[.](everything_)?of_a_broker .*",
        path=r"(all|synonyms)\.results\[0\]\.configs\.(controller\.listener\.names|log\.dirs|node\.id|"
        r"group\.coordinator\.rebalance\.protocols|queued\.max\.request\.bytes)\..*",
    ),
    Explanation(
        "Texts of errors come with other codes",
        "Kafka sends a text for some refusals and none for others. We send one where it tells more than the code.",
        case="produce[.].*",
        path=".*error_message",
        kafka=r"None|\(error_message\)",
        ours=r"None|\(error_message\)",
    ),
    Explanation(
        "Refusals tell where the log starts",
        "Kafka sends -1 when it refuses a batch before it comes to the log, and the log start when it does so later. "
        "We send it with every refusal of a batch.",
        path=r".*\.partition_responses\[0\]\.log_start_offset",
        kafka="-1",
        ours="0",
    ),
    Explanation(
        "A topic named twice to DeleteTopics is refused under the name it was given",
        "One row by name, one by id; Kafka fills in the id of the first.",
        case="delete_topics[.]deleted_by_id .*",
        path=r"same topic by name and id\.responses\[0\]\.topic_id",
    ),
)
EXPLANATIONS: tuple[Explanation, ...] = (*NOT_BUILT, *STRICTER, *NOT_WALKED, *KINDER, *DETAILS)
