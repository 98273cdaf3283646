"""The records of `__transaction_state`, in Kafka's format (docs/formats/transaction-log.md).

A key has type 0 and a transactional id; a value begins with the version of its schema (TransactionLogValue.json); a
missing value is a tombstone. Version 1 is written, 0 is read too. An unknown type, version or state was written by a
newer broker: `UnknownRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordinator.state.record_fields import FieldReader, FieldWriter, UnknownRecord
from coordinator.transactions.api import NO_TIME_MS, TransactionState

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_KEY_TYPE: Final = 0
_VALUE_VERSION: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)  # tags of version 1


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """State of a transactional id after a transition. `partitions` are those of the open transaction, by topic;
    `client_version`: 2 with KIP-890, which knows of the previous and the next identity."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    changed_ms: int
    started_ms: int = NO_TIME_MS
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH


def encode_key(transactional_id: str) -> bytes:
    writer = FieldWriter()
    writer.int16(_KEY_TYPE)
    writer.string(transactional_id)
    return writer.done()


def decode_key(data: memoryview) -> str:
    """The transactional id in a key. Errors: UnknownRecord."""
    reader = FieldReader(data)
    kind = reader.int16()
    if kind != _KEY_TYPE:
        raise UnknownRecord(f"key of type {kind}")
    return reader.string()


def encode_value(value: TransactionRecord) -> bytes:
    """The value in version 1. In state Empty, partitions are null, as in TransactionLog.valueToBytes."""
    writer = FieldWriter()
    writer.int16(_VALUE_VERSION)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.timeout_ms)
    writer.int8(value.state)
    if value.state is TransactionState.EMPTY:
        writer.compact_length(None)
    else:
        writer.compact_length(len(value.partitions))
        for topic, partitions in value.partitions:
            writer.compact_string(topic)
            writer.compact_length(len(partitions))
            for partition in partitions:
                writer.int32(partition)
            writer.tagged({})
    writer.int64(value.changed_ms)
    writer.int64(value.started_ms)
    writer.tagged(_tags(value))
    return writer.done()


def _tags(value: TransactionRecord) -> dict[int, bytes]:
    """The tagged fields that differ from their defaults."""
    fields = {
        _PREVIOUS_ID: (value.previous_producer_id, NO_PRODUCER_ID, 8),
        _NEXT_ID: (value.next_producer_id, NO_PRODUCER_ID, 8),
        _CLIENT_VERSION: (value.client_version, 0, 2),
        _NEXT_EPOCH: (value.next_producer_epoch, NO_PRODUCER_EPOCH, 2),
    }
    return {
        tag: number.to_bytes(size_bytes, "big", signed=True)
        for tag, (number, default, size_bytes) in fields.items()
        if number != default
    }


def decode_value(data: memoryview) -> TransactionRecord:
    """The state in a value. Errors: UnknownRecord."""
    reader = FieldReader(data)
    version = reader.int16()
    if version not in (0, _VALUE_VERSION):
        raise UnknownRecord(f"value of version {version}")
    is_flexible = version >= 1
    producer_id, producer_epoch, timeout_ms, number = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    if number not in TransactionState.__members__.values():
        raise UnknownRecord(f"state {number}")
    partitions = _decode_partitions(reader, is_flexible=is_flexible)
    changed_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tagged() if is_flexible else {}
    return TransactionRecord(
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionState(number),
        partitions,
        changed_ms,
        started_ms,
        tags[_PREVIOUS_ID].int64() if _PREVIOUS_ID in tags else NO_PRODUCER_ID,
        tags[_NEXT_ID].int64() if _NEXT_ID in tags else NO_PRODUCER_ID,
        tags[_CLIENT_VERSION].int16() if _CLIENT_VERSION in tags else 0,
        tags[_NEXT_EPOCH].int16() if _NEXT_EPOCH in tags else NO_PRODUCER_EPOCH,
    )


def _decode_partitions(reader: FieldReader, *, is_flexible: bool) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    for _ in reader.count(_length(reader, is_flexible=is_flexible), 3):
        topic = reader.compact_string() if is_flexible else reader.string()
        numbers = reader.count(_length(reader, is_flexible=is_flexible), 4)
        found.append((topic, tuple(reader.int32() for _ in numbers)))
        if is_flexible:
            reader.tagged()
    return tuple(found)


def _length(reader: FieldReader, *, is_flexible: bool) -> int:
    """The length of an array; 0 for null."""
    if is_flexible:
        return reader.compact_length() or 0
    length = reader.int32()
    return 0 if length == -1 else length
