"""OffsetCommit for a group without a member id, which Kafka allows while the group has no members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_connectors.progress.groups import Commit, CommitResult
from spark_connectors.wire import (
    BrokerError,
    Cluster,
    Coordinated,
    ErrorCode,
    MalformedReply,
    TopicPartition,
    by_topic,
)
from spark_connectors.wire.codes import RETRIABLE, name_of
from spark_connectors.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)

NAMED_MAX: Final = 5  # partitions in a message

# A topic that is gone may come back under its name, but a wait for it would delay other commits.
_AGAIN: Final = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
_HINTS: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, and only they may commit for it: choose another group_id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic, or it has fewer partitions",
}


def commit(cluster: Cluster, wanted: Commit) -> CommitResult:
    """Commit offsets. A permanent refusal of a partition or of the group does not affect other partitions.

    Raises WireError if the outcome is unknown; the commit may be repeated.
    """
    topics = tuple(
        OffsetCommitTopic(
            name=topic,
            partitions=tuple(
                OffsetCommitPartition(
                    partition_index=place.partition, committed_offset=wanted.positions[place], committed_metadata=""
                )
                for place in places
            ),
        )
        for topic, places in by_topic(sorted(wanted.positions)).items()
    )
    request = OffsetCommitRequest(group_id=wanted.group, topics=topics)
    try:
        reply = cluster.at_coordinator(
            Coordinated.GROUP,
            wanted.group,
            OFFSET_COMMIT,
            request,
            lambda reply: [code for _, code in _codes(reply) if code in _AGAIN],
            retry_on=_AGAIN,
        )
    except BrokerError as error:  # a name that no group can have, or a group without access
        return CommitResult({}, str(error))
    codes = dict(_codes(reply))
    if codes.keys() != wanted.positions.keys():
        raise MalformedReply(f"the answer to OffsetCommit of {wanted.group} is about other partitions")
    committed = {place: at for place, at in wanted.positions.items() if codes[place] == ErrorCode.NONE}
    refused = {place: code for place, code in codes.items() if code != ErrorCode.NONE}
    return CommitResult(committed, _refusal_of(wanted.group, refused) if refused else None)


def _codes(reply: OffsetCommitResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in reply.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row.error_code


def _refusal_of(group: str, refused: dict[TopicPartition, int]) -> str:
    """The refusal in one line."""
    parts = []
    for code in dict.fromkeys(refused.values()):
        places = [str(place) for place, its in refused.items() if its == code]
        more = f" and {len(places) - NAMED_MAX} more" if len(places) > NAMED_MAX else ""
        hint = f" ({_HINTS[ErrorCode(code)]})" if code in _HINTS else ""
        parts.append(f"{', '.join(places[:NAMED_MAX])}{more}: {name_of(code)}{hint}")
    return f"group {group} refuses offsets of {'; '.join(parts)}"
