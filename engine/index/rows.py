"""Entries and summaries of segments, and keys of records, as keys and values for the store: docs/formats/index.md.

Pure.
"""

import struct

from engine.logs.segments.sparse_index import Entry, Summary

FORMAT_KEY = b"format"
FORMAT = b"1"
INDEXED_TO = b"i"
SUMMARY = b"s"
ENTRY = b"e"
KEY = b"k"
KEYS_TO = b"n"
TOPIC_ID_SIZE_BYTES = 16
PARTITION_SIZE_BYTES = 20

_PARTITION = struct.Struct(">16si")
_OFFSET = struct.Struct(">q")
_ENTRY_VALUE = struct.Struct(">qq")
_SUMMARY_VALUE = struct.Struct(">qqqqi")


def partition_key(topic_id: bytes, partition: int) -> bytes:
    """The part that all keys of a partition have behind their first letter."""
    return _PARTITION.pack(topic_id, partition)


def of_partition_key(key: bytes) -> tuple[bytes, int]:
    """The topic id, and the partition."""
    topic_id, partition = _PARTITION.unpack(key)
    return topic_id, partition


def segment_key(kind: bytes, partition: bytes, base_offset: int) -> bytes:
    return kind + partition + _OFFSET.pack(base_offset)


def indexed_to_pair(partition: bytes, offset: int) -> tuple[bytes, bytes]:
    return INDEXED_TO + partition, _OFFSET.pack(offset)


def keys_to_pair(partition: bytes, offset: int) -> tuple[bytes, bytes]:
    return KEYS_TO + partition, _OFFSET.pack(offset)


def key_pair(partition: bytes, base_offset: int, key_hash: bytes, offset: int, position: int) -> tuple[bytes, bytes]:
    return segment_key(KEY, partition, base_offset) + key_hash + _OFFSET.pack(offset), _OFFSET.pack(position)


def offset_bytes(offset: int) -> bytes:
    return _OFFSET.pack(offset)


def summary_pair(partition: bytes, base_offset: int, summary: Summary) -> tuple[bytes, bytes]:
    return segment_key(SUMMARY, partition, base_offset), _SUMMARY_VALUE.pack(*summary)


def entry_pair(partition: bytes, base_offset: int, entry: Entry) -> tuple[bytes, bytes]:
    key = segment_key(ENTRY, partition, base_offset) + _OFFSET.pack(entry.offset)
    return key, _ENTRY_VALUE.pack(entry.position, entry.max_timestamp_ms)


def read_offset(value: bytes) -> int:
    """The value of indexed_to, or the last eight bytes of a key."""
    offset: int = _OFFSET.unpack(value[-8:])[0]
    return offset


def read_entry(key: bytes, value: bytes) -> Entry:
    return Entry(read_offset(key), *_ENTRY_VALUE.unpack(value))


def read_summary(value: bytes) -> Summary:
    return Summary._make(_SUMMARY_VALUE.unpack(value))


def following(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
