"""Topic rows of Metadata responses: encoded once, kept until the topic or the brokers change.

If a hundred clients reconnect, they ask for the same rows at the same time: one request makes a row, the others wait
for it. A row is bytes in one API version. The event loop gets a turn after every few partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from coordinator.api import NO_LEADER
from kafkawire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.wire.plan_encode import EncodedElements
from kafkawire.wire.plans import element_encoder

if TYPE_CHECKING:
    from coordinator.api import PartitionState, TopicInfo

    Key = tuple[str, "ClientTraits", int]

OPERATIONS_NOT_ASKED: Final = -(2**31)  # KIP-430
FIRST_VERSION_WITH_LISTENER_ERROR: Final = 6
PARTITIONS_PER_TURN: Final = 500
ROWS_SIZE_MAX_BYTES: Final = 32 << 20  # about a million partitions; beyond it all rows are dropped


@dataclass(frozen=True, slots=True)
class ClientTraits:
    """Part of a client that rows depend on: API version, live brokers, brokers reachable from its listener."""

    version: int
    live: frozenset[int]
    reachable: frozenset[int]


class TopicRows:
    """Metadata rows of one broker. Hold `turns` to put many of them into a response."""

    def __init__(self, size_max_bytes: int = ROWS_SIZE_MAX_BYTES) -> None:
        self._size_max_bytes = size_max_bytes
        self._size_bytes = 0
        self._rows: dict[Key, tuple[TopicInfo, bytes]] = {}
        self._under_way: dict[Key, trio.Event] = {}
        self.turns = trio.Lock()

    def find(self, topic: TopicInfo, traits: ClientTraits, operations: int) -> bytes | None:
        """The kept row of the topic with these authorized operations, if any."""
        kept = self._rows.get((topic.name, traits, operations))
        return kept[1] if kept is not None and kept[0] is topic else None

    async def make(self, topic: TopicInfo, traits: ClientTraits, operations: int) -> bytes:
        """The same row, made here unless another request is making it."""
        key = (topic.name, traits, operations)
        while key in self._under_way:
            await self._under_way[key].wait()
            row = self.find(topic, traits, operations)
            if row is not None:
                return row
        done = self._under_way[key] = trio.Event()
        try:
            row = await _encode_topic(topic, traits, operations)
            self._keep(key, topic, row)
        finally:
            del self._under_way[key]
            done.set()
        return row

    def _keep(self, key: Key, topic: TopicInfo, row: bytes) -> None:
        _, replaced = self._rows.pop(key, (None, b""))
        self._size_bytes += len(row) - len(replaced)
        if self._size_bytes > self._size_max_bytes:
            self._rows.clear()
            self._size_bytes = len(row)
        self._rows[key] = (topic, row)


def encode_row(row: MetadataResponseTopic, version: int) -> bytes:
    """Encode a row. Raises EncodeError."""
    return b"".join(element_encoder(MetadataResponse, MetadataResponseTopic, version)(row))


async def _encode_topic(topic: TopicInfo, traits: ClientTraits, operations: int) -> bytes:
    encode = element_encoder(MetadataResponse, MetadataResponsePartition, traits.version)
    partitions = EncodedElements()
    for index, state in enumerate(topic.partitions):
        partitions += encode(_partition_row(index, state, traits))
        if len(partitions) % PARTITIONS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    row = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=operations,
    )
    return encode_row(row, traits.version)


def _partition_row(index: int, state: PartitionState, traits: ClientTraits) -> MetadataResponsePartition:
    """Row of a partition.

    If its leader lacks the client's listener: LISTENER_NOT_FOUND, before v6 LEADER_NOT_AVAILABLE.
    """
    row = MetadataResponsePartition(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[one for one in state.replicas if one not in traits.live or one in state.offline],
    )
    if state.leader not in traits.reachable:
        known_listener = state.leader not in traits.live or traits.version < FIRST_VERSION_WITH_LISTENER_ERROR
        row.error_code = ErrorCode.LEADER_NOT_AVAILABLE if known_listener else ErrorCode.LISTENER_NOT_FOUND
        row.leader_id = NO_LEADER
    return row
