"""Assignments of group members in the consumer protocol: the partitions of a member.

After Kafka's ConsumerProtocolAssignment. Versions 0-3 are alike; of later versions the common part is read
(ConsumerProtocol). Groups of another protocol type, such as Connect's, have other data there.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error, unpack_from
from typing import Final

from kafkawire.client.partitions import TopicPartition

PROTOCOL_TYPE: Final = "consumer"


def decode_assignment(data: bytes | memoryview) -> list[TopicPartition] | None:
    """The partitions in order; an empty list for no bytes; None if the bytes are no assignment."""
    try:
        return sorted(_partitions(data)) if data else []
    except (error, UnicodeDecodeError):
        return None


def _partitions(data: bytes | memoryview) -> Iterator[TopicPartition]:
    """Partitions of an assignment. Raises struct.error for negative counts, and for data that is too short."""
    version, topic_count = unpack_from(">hi", data)
    if version < 0 or topic_count < 0:
        raise error("not an assignment")
    offset = 6
    for _ in range(topic_count):
        (size,) = unpack_from(">h", data, offset)
        name, count = unpack_from(f">{size}si", data, offset + 2)
        offset += 2 + size + 4
        partitions = unpack_from(f">{count}i", data, offset)
        offset += 4 * count
        topic = name.decode()
        yield from (TopicPartition(topic, partition) for partition in partitions)
