"""Why replies differ: the committed table that makes a difference acceptable. Nothing else does.

A reason says how kafkawire behaves and why; "not built yet" is a reason only with the step that builds it.
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
    """A pattern for the answer to one step of a Produce scenario, and for the log after it."""
    return f"({labels}){PRODUCED}{ROW}|end after ({labels}|all){END}|log after ({labels}|all){LOG}"


NOT_BUILT = (
    Explanation(
        "APIs that are not built yet are not advertised",
        "A broker advertises only APIs that work; [protocol](protocol.md) lists them.",
        path=r".*\.api_keys\.\d+",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
    Explanation(
        "Only the feature transaction.version is reported",
        "kafkawire will report group.version and similar features when they work. metadata.version and kraft.version "
        "belong to KRaft.",
        path=r".*\.(supported|finalized)_features\.(eligible\.leader\.replicas|group|kraft|metadata|share|streams)"
        r"\.version",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
    Explanation(
        "A logger has no documentation",
        "Kafka returns an empty text even if the client did not ask for documentation. kafkawire then leaves it out, "
        "as for all configs.",
        case="describe_configs[.]of_other_things .*",
        path=r".*\.results\[0\]\.configs\.root\.documentation",
    ),
    Explanation(
        "Broker keys without an effect are not shown",
        "[Configs](configs.md) lists the keys that have an effect. A key that the broker does not know is a warning at "
        "the start.",
        case="describe_configs[.]everything_of_a_broker .*",
        path=r"all\.results\[0\]\.configs\..*",
        kafka=r"\(present\)",
        ours=r"\(absent\)",
    ),
)
STRICTER = (
    Explanation(
        "Strings that are not UTF-8 close the connection",
        "Java replaces bytes that it cannot decode, so two different names can become one. kafkawire refuses such "
        "strings.",
        case="metadata[.]strings .*",
        ours="closed",
    ),
    Explanation(
        "A client id that is not UTF-8 closes the connection",
        "A client id is a string like all others.",
        case=".*[.]client_ids .*",
        path="client id: not UTF-8",
        ours="closed",
    ),
    Explanation(
        "Lengths and counts below -1 close the connection",
        "Kafka takes any negative length for null, and a tag count of 2^32 - 1 for none. In the protocol, only -1 "
        "means null; other values come from a broken or hostile client.",
        path="client id: length -2|count -.*|in the header: 4 billion",
        ours="closed",
    ),
    Explanation(
        "Bytes after a batch are refused",
        "Kafka stores the first batch of a partition and silently drops bytes after it that are no whole batch. "
        "kafkawire answers INVALID_RECORD, so that the stored data is always the sent data.",
        case="produce[.]bytes_that_are_no_batch .*",
        path=outcome_of("one byte behind|half a batch behind"),
    ),
    Explanation(
        "An unknown codec, and records that cannot be decompressed, are an invalid record",
        "Kafka answers UNKNOWN_SERVER_ERROR. kafkawire answers INVALID_RECORD, because the request is wrong.",
        case="produce[.](lies_in_the_header|framing_of_the_codec) .*",
        path=r"(codec \d|.*, (cut|linked blocks|framed) to \w+)" + PRODUCED + "error_code",
        kafka="-1",
        ours="87",
    ),
    Explanation(
        "A Fetch with a replica id is refused",
        "A client with a replica id could move the high watermark. kafkawire accepts replica ids only from brokers, "
        "on their own listener, and answers TOPIC_AUTHORIZATION_FAILED. Kafka looks for the replica and answers "
        "NOT_LEADER_OR_FOLLOWER.",
        case="fetch[.]replica_ids .*",
        path="replica [12][.].*",
    ),
)
NOT_WALKED = (
    Explanation(
        "Records inside a batch are not decoded",
        "kafkawire checks the size, the CRC and every header field. To decode the records would cost forty times as "
        "much as the CRC. If the records contradict the header in number, length, offset or codec, the batch is "
        "stored as sent.",
        case="produce[.]lies_in_the_records .*",
        path=outcome_of(
            "broken varint|record longer than the batch|a byte behind the records|records cut|"
            "gzip of too few|gzip, broken"
        ),
        kafka=r"0|-1|87|\(0 rows\)",
        ours=r"0|2|\(1 rows\)",
    ),
    Explanation(
        "Records are not counted, and their timestamps are not compared with the header",
        "If a header says three and the batch has two records, the batch is stored. A maxTimestamp is corrected if it "
        "is below the base timestamp, as sarama up to 1.45.0 leaves it. Another wrong maxTimestamp is not corrected.",
        case="produce[.]lies_in_the_header .*",
        path=outcome_of("count and delta of three|gzip that is plain|max timestamp too large"),
    ),
    Explanation(
        "Wrong timestamps are refused without a list of records",
        "kafkawire checks the timestamps in the header. So the error and its text contain no list of records.",
        case="produce[.](timestamp.*|maximum_timestamp_of_sarama) .*",
        path=r".*\.record_errors",
        ours=r"\(0 rows\)",
    ),
)
KINDER = (
    Explanation(
        "A deleted record has no greatest timestamp",
        "After a DeleteRecords of everything, Kafka still tells the offset of the deleted record with the greatest "
        "timestamp. kafkawire answers -1, as for an empty log.",
        case="delete_records[.]up_to_an_offset .*",
        path=r"after all: greatest timestamp\.topics\[0\]\.partitions\[0\]\.(timestamp|offset|leader_epoch)",
    ),
    Explanation(
        "A topic created on first use exists at once",
        "Kafka creates the topic after its reply. The reply says UNKNOWN_TOPIC_OR_PARTITION, and the client asks "
        "again. kafkawire replies with the new topic.",
        case="metadata[.]unknown_topic_is_created .*",
        path="first[.].*",
    ),
    Explanation(
        "A topic that cannot be created on first use is refused",
        "The name differs from an existing one only by dots and underscores. Kafka answers UNKNOWN_TOPIC_OR_PARTITION, "
        "and the client asks again until its time-out. kafkawire answers INVALID_TOPIC_EXCEPTION at once.",
        case="metadata[.]colliding_name_is_not_created .*",
        path=r"colliding name\.topics\[0\]\.error_code",
        kafka="3",
        ours="17",
    ),
    Explanation(
        "A topic without name and id is left out of a Metadata reply",
        "Kafka answers UNKNOWN_SERVER_ERROR for the whole request, without brokers and cluster id.",
        case="metadata[.](by_topic_id|array_counts|strings) v1[23]",
        path="(zero id|count 2|name: null)[.].*",
    ),
    Explanation(
        "Records that are null get a reply",
        "Kafka fails inside and never replies, so the client waits for its time-out. kafkawire answers INVALID_RECORD.",
        case="produce[.]null_records .*",
        kafka="open, no reply",
    ),
    Explanation(
        "Unknown isolation levels and negative sizes in Fetch and ListOffsets are harmless",
        "Kafka answers UNKNOWN_SERVER_ERROR. kafkawire reads an unknown level as read_uncommitted and a negative "
        "limit as 0.",
        case="(fetch[.](isolation_levels|size_limits)|list_offsets[.]isolation_levels) .*",
        path=r"(level (2|-1)|(partition )?limit -1|both partitions -1)(, \w+)?[.].*",
    ),
    Explanation(
        "An unknown operation on configs is an invalid request",
        "Kafka answers UNKNOWN_SERVER_ERROR. kafkawire answers INVALID_REQUEST.",
        case="incremental_alter_configs[.]refused .*",
        path=r"unknown operation\.responses\[0\]\..*",
    ),
    Explanation(
        "A tagged field that comes twice in the header of a request for configs is ignored",
        "Kafka answers UNKNOWN_SERVER_ERROR, but accepts such headers in requests of other kinds.",
        case="(incremental_)?alter_configs[.]tagged_fields .*",
        path="in the header: one twice[.].*",
    ),
    Explanation(
        "A resource named twice in AlterConfigs gets a reply",
        "Kafka never replies, so the client waits for its time-out. kafkawire refuses both resources. Both brokers do "
        "that in IncrementalAlterConfigs.",
        case="alter_configs[.]replaced .*",
        path="same resource twice",
        kafka="open, no reply",
    ),
    Explanation(
        "DescribeTopicPartitions refuses only the topic without a name",
        "Kafka answers UNKNOWN_SERVER_ERROR for all topics of the request.",
        case="describe_topic_partitions[.]pages .*",
        path="no name[.].*",
    ),
    Explanation(
        "AddPartitionsToTxn without transactions gets a reply",
        "Kafka never replies.",
        case="add_partitions_to_txn[.]for_many_transactions .*",
        path="nothing",
        kafka="open, no reply",
    ),
    Explanation(
        "Only the producer that ended a transaction can repeat the EndTxn",
        "Kafka compares only epochs. After an end of the first transaction protocol, a new producer with the same "
        "transactional id fences the old one. Kafka takes an EndTxn of the fenced producer for a repetition and "
        "returns the epoch of the new producer. kafkawire answers PRODUCER_FENCED.",
        case="end_txn[.]ends_after_an_end_of_the_first_protocol v.*",
        path=r"commit (True|False) after (True|False)\.(error_code|producer_id|producer_epoch)",
    ),
    Explanation(
        "A marker with a negative epoch has an old epoch",
        "Kafka answers UNKNOWN_SERVER_ERROR. kafkawire answers INVALID_PRODUCER_EPOCH.",
        case="write_txn_markers[.]markers_by_hand .*",
        path=r"a negative epoch\..*",
    ),
    Explanation(
        "A partition named twice in Produce is appended twice",
        "Kafka keeps the last of them and silently drops the others.",
        case="produce[.]several_partitions .*",
        path="same partition twice[.].*",
    ),
)
DETAILS = (
    Explanation(
        "min.insync.replicas has the default of topics as its source",
        "In Kafka, the formatting of the cluster sets it as a dynamic setting. The value is the same.",
        path=r".*\.configs\.min\.insync\.replicas(\.config_source|\.synonyms)?",
        kafka=r"3|\(present\)|\(\d rows\)",
        ours=r"5|\(absent\)|\(\d rows\)",
    ),
    Explanation(
        "Keys of kafkawire alone are shown",
        "DescribeConfigs shows them like all other keys.",
        case="describe_configs[.]everything_of_a_broker .*",
        path=r"all\.results\[0\]\.configs\..*",
        kafka=r"\(absent\)",
        ours=r"\(present\)",
    ),
    Explanation(
        "Some broker keys have other defaults",
        "There are no controllers to name, and no group protocol but the classic one yet. node.id and log.dirs have "
        "defaults. queued.max.request.bytes has a limit, which is safer than none.",
        case="describe_configs[.](everything_)?of_a_broker .*",
        path=r"(all|synonyms)\.results\[0\]\.configs\.(controller\.listener\.names|log\.dirs|node\.id|"
        r"group\.coordinator\.rebalance\.protocols|queued\.max\.request\.bytes)\..*",
    ),
    Explanation(
        "Texts of errors come with other codes",
        "Kafka sends a text with some refusals and none with others. kafkawire sends a text if it says more than the "
        "code.",
        case="produce[.].*",
        path=".*error_message",
        kafka=r"None|\(error_message\)",
        ours=r"None|\(error_message\)",
    ),
    Explanation(
        "Refusals contain the log start offset",
        "Kafka sends -1 if it refuses a batch before the batch comes to the log, and the log start offset if it "
        "refuses later. kafkawire sends the log start offset with every refusal of a batch.",
        path=r".*\.partition_responses\[0\]\.log_start_offset",
        kafka="-1",
        ours="0",
    ),
    Explanation(
        "DeleteTopics refuses a topic named twice as the request names it",
        "The request names a topic once by name and once by id. Kafka adds the id to the row with the name.",
        case="delete_topics[.]deleted_by_id .*",
        path=r"same topic by name and id\.responses\[0\]\.topic_id",
    ),
)
EXPLANATIONS: tuple[Explanation, ...] = (*NOT_BUILT, *STRICTER, *NOT_WALKED, *KINDER, *DETAILS)
