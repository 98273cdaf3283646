"""The values of a group table: its settings, its entries and their records. Without behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from coordinator.groups.offsets import GroupOffsets
from coordinator.groups.records import Key, Value, encode_key, encode_value
from coordinator.shards.table import NEVER_MS, FutureT
from coordinator.state.log import StateRecord

if TYPE_CHECKING:
    from coordinator.groups.classic import ClassicGroup


@dataclass(frozen=True, slots=True)
class OffsetSettings:
    """Limits of committed offsets; defaults are Kafka's."""

    metadata_max_length: int = 4_096  # offset.metadata.max.bytes
    retention_ms: int = 7 * 24 * 3_600_000  # offsets.retention.minutes
    record_max_bytes: int = 1_000_000


class GroupEntry(Generic[FutureT]):
    """All that is known under one group id; a `coordinator.shards.table.TableEntry`."""

    __slots__ = ("due_ms", "group", "is_recorded", "last_batch", "offsets")

    def __init__(self, group: ClassicGroup[FutureT]) -> None:
        self.group = group
        self.offsets = GroupOffsets()
        self.due_ms = NEVER_MS
        self.is_recorded = False
        self.last_batch: object = None


def record_of_value(key: Key, value: Value) -> StateRecord:
    return StateRecord(encode_key(key), encode_value(value))


def tombstone(key: Key) -> StateRecord:
    return StateRecord(encode_key(key), None)
