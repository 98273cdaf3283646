"""The records of `__consumer_offsets`, in Kafka's format: committed offsets, and groups with their members.

A key begins with its type: 0 and 1 a committed offset, 2 a classic group. A value begins with the version of its schema
(OffsetCommitValue.json, GroupMetadataValue.json); a missing value is a tombstone. The versions that are written are
those that every Kafka from 2.1 on reads: offsets in 3, or in 1 when they carry a time to expire at, groups in 3. All
versions that are not flexible are read, and the flexible version 4 of offsets. Unknown types and versions were written
by a newer broker: `UnknownRecord`.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from coordinator.groups.api import NO_EPOCH, NO_EXPIRY_MS, CommittedOffset
from coordinator.state.log import StateRecord
from coordinator.state.record_fields import FieldReader, FieldWriter, UnknownRecord, encode_string

OFFSET_TYPES: Final = (0, 1)
GROUP_TYPE: Final = 2
_GROUP_VALUE_VERSION: Final = 3
_FLEXIBLE_OFFSET: Final = 4  # version of a value

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_OFFSET_3 = Struct(">hqi")  # version, offset, leader epoch
_OFFSET_1 = Struct(">hq")
_PLAIN_OFFSET_3 = Struct(">hqihq")  # without metadata
_TIMES = Struct(">qq")
_OFFSET_TYPE = _INT16.pack(OFFSET_TYPES[-1])
_GROUP_TYPE = _INT16.pack(GROUP_TYPE)


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


Key = OffsetKey | GroupKey


@dataclass(frozen=True, slots=True)
class MemberRecord:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group. `changed_ms` is when it came into its state, -1 if that is not known."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    changed_ms: int
    members: tuple[MemberRecord, ...]


Value = CommittedOffset | GroupRecord


def encode_key(key: Key) -> bytes:
    if isinstance(key, OffsetKey):
        return offset_key_prefix(key.group_id, key.topic) + _INT32.pack(key.partition)
    return _GROUP_TYPE + encode_string(key.group_id)


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The first bytes of the keys of a group's offsets of one topic."""
    return _OFFSET_TYPE + encode_string(group_id) + encode_string(topic)


def encode_offset(prefix: bytes, partition: int, value: CommittedOffset) -> StateRecord:
    """The record of a committed offset. Fast, as a commit may have thousands."""
    key = prefix + _INT32.pack(partition)
    offset, leader_epoch, metadata, committed_ms, expires_ms = value
    if metadata or expires_ms != NO_EXPIRY_MS:
        return StateRecord(key, _encode_offset(value))
    return StateRecord(key, _PLAIN_OFFSET_3.pack(3, offset, leader_epoch, 0, committed_ms))


def decode_key(data: memoryview) -> Key:
    """The key of a record. Errors: UnknownRecord."""
    reader = FieldReader(data)
    kind = reader.int16()
    if kind in OFFSET_TYPES:
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    if kind == GROUP_TYPE:
        return GroupKey(reader.string())
    raise UnknownRecord(f"key of type {kind}")


def encode_value(value: Value) -> bytes:
    return _encode_offset(value) if isinstance(value, CommittedOffset) else _encode_group(value)


def decode_value(key: Key, data: memoryview) -> Value:
    """The value of a record with this key. Errors: UnknownRecord."""
    reader = FieldReader(data)
    version = reader.int16()
    # From 4 on both are flexible; Kafka writes offsets so, but groups only with features that we do not have.
    if isinstance(key, OffsetKey) and version == _FLEXIBLE_OFFSET:
        return _decode_flexible_offset(reader)
    if not 0 <= version <= 3:
        raise UnknownRecord(f"value of version {version} for {key}")
    return _decode_offset(reader, version) if isinstance(key, OffsetKey) else _decode_group(reader, version)


def _encode_offset(value: CommittedOffset) -> bytes:
    metadata = encode_string(value.metadata)
    if value.expires_ms == NO_EXPIRY_MS:
        start = _OFFSET_3.pack(3, value.offset, value.leader_epoch)
        return b"".join((start, metadata, _INT64.pack(value.committed_ms)))
    start, end = _OFFSET_1.pack(1, value.offset), _TIMES.pack(value.committed_ms, value.expires_ms)
    return b"".join((start, metadata, end))


def _decode_offset(reader: FieldReader, version: int) -> CommittedOffset:
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata, committed_ms = reader.string(), reader.int64()
    return CommittedOffset(
        offset, leader_epoch, metadata, committed_ms, reader.int64() if version == 1 else NO_EXPIRY_MS
    )


def _decode_flexible_offset(reader: FieldReader) -> CommittedOffset:
    """An offset in version 4, without its topic's id: a topic that is deleted takes its offsets with it."""
    offset, leader_epoch, metadata = reader.int64(), reader.int32(), reader.compact_string()
    committed = CommittedOffset(offset, leader_epoch, metadata, reader.int64())
    reader.tagged()
    return committed


def _encode_group(value: GroupRecord) -> bytes:
    writer = FieldWriter()
    writer.int16(_GROUP_VALUE_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation_id)
    writer.string(value.protocol_name)
    writer.string(value.leader_id)
    writer.int64(value.changed_ms)
    writer.int32(len(value.members))
    for member in value.members:
        writer.string(member.member_id)
        writer.string(member.instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.blob(member.subscription)
        writer.blob(member.assignment)
    return writer.done()


def _decode_group(reader: FieldReader, version: int) -> GroupRecord:
    protocol_type, generation_id = reader.string(), reader.int32()
    protocol_name, leader_id = reader.nullable_string(), reader.nullable_string()
    changed_ms = reader.int64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.int32()))
    return GroupRecord(protocol_type, generation_id, protocol_name, leader_id, changed_ms, members)


def _decode_member(reader: FieldReader, version: int) -> MemberRecord:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    timeouts = session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms, session_timeout_ms
    return MemberRecord(member_id, instance_id, client_id, client_host, *timeouts, reader.blob(), reader.blob())
