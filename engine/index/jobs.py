"""Reads and writes of the stored index: plain functions of its store, for its worker. Format: docs/formats/index.md."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice

from engine.index.rows import (
    ENTRY,
    FORMAT,
    FORMAT_KEY,
    INDEXED_TO,
    KEY,
    KEYS_TO,
    PARTITION_SIZE_BYTES,
    SUMMARY,
    TOPIC_ID_SIZE_BYTES,
    following,
    indexed_to_pair,
    keys_to_pair,
    offset_bytes,
    read_entry,
    read_offset,
    read_summary,
    segment_key,
)
from engine.index.store import IndexStore, KeyValue
from engine.logs.segments.position import LogPosition
from engine.logs.segments.sparse_index import Entry, Stored, Summary

PORTION = 10_000  # keys that a long scan reads at a time


def stored_partitions(store: IndexStore) -> dict[bytes, Stored]:
    summaries: dict[bytes, dict[int, Summary]] = {}
    for key, value in store.scan(SUMMARY, following(SUMMARY)):
        summaries.setdefault(key[1 : 1 + PARTITION_SIZE_BYTES], {})[read_offset(key)] = read_summary(value)
    indexed_to, keys_to = _offsets(store, INDEXED_TO), _offsets(store, KEYS_TO)
    partitions = dict.fromkeys([*summaries, *indexed_to, *keys_to])
    return {one: Stored(indexed_to.get(one, 0), summaries.get(one, {}), keys_to.get(one, 0)) for one in partitions}


def _offsets(store: IndexStore, kind: bytes) -> dict[bytes, int]:
    """Offsets of that kind, by partition key."""
    return {key[1:]: read_offset(value) for key, value in store.scan(kind, following(kind))}


def entries(store: IndexStore, partition: bytes, base_offset: int) -> list[Entry]:
    prefix = segment_key(ENTRY, partition, base_offset)
    return [read_entry(key, value) for key, value in store.scan(prefix, following(prefix))]


def truncate(store: IndexStore, ends: Mapping[bytes, LogPosition], *, sync: bool) -> None:
    puts: list[KeyValue] = []
    for partition, end in ends.items():
        for kind in (ENTRY, SUMMARY, KEY):
            first = segment_key(kind, partition, end.segment_base_offset)
            keys = _keys_within(store, first, following(kind + partition))
            _delete_keys(store, (key for key in keys if kind == SUMMARY or read_offset(key) >= end.offset))
        puts.append(indexed_to_pair(partition, end.offset))
        puts.append(keys_to_pair(partition, min(keys_to(store, partition), end.offset)))
    store.write(puts, sync=sync)  # last: after a kill before it, the next start finds the index ahead, and cuts again


def _keys_within(store: IndexStore, start: bytes, stop: bytes) -> Iterator[bytes]:
    """Read a portion at a time: a segment may have millions."""
    while found := store.scan(start, stop, PORTION):
        yield from (key for key, _ in found)
        start = found[-1][0] + b"\0"


def _delete_keys(store: IndexStore, keys: Iterator[bytes]) -> None:
    while chunk := list(islice(keys, PORTION)):
        store.write([], chunk)


def give_up(store: IndexStore, partition: bytes, base_offsets: Sequence[int]) -> None:
    prefixes = [segment_key(kind, partition, base) for base in base_offsets for kind in (ENTRY, SUMMARY, KEY)]
    if keys_to(store, partition) > base_offsets[0]:  # first: a search must not rely on deleted keys
        store.write([keys_to_pair(partition, base_offsets[0])])
    delete(store, prefixes)
    sync(store)


def sync(store: IndexStore) -> None:
    """Write something, so that everything before it is durable."""
    store.write([(FORMAT_KEY, FORMAT)], sync=True)


def keys_to(store: IndexStore, partition: bytes) -> int:
    value = store.get(KEYS_TO + partition)
    return 0 if value is None else read_offset(value)


def add_keys(store: IndexStore, partition: bytes, puts: Sequence[KeyValue], before: int, after: int) -> bool:
    """Store keys up to offset `after`. Returns False, and stores none, if keys are not stored up to `before` now."""
    if keys_to(store, partition) != before:
        return False
    store.write([*puts, keys_to_pair(partition, after)])
    return True


def key_places(
    store: IndexStore, partition: bytes, prefix: bytes, after: int, limit: int
) -> tuple[int, list[tuple[int, int]]]:
    found = store.scan(prefix + offset_bytes(after + 1), following(prefix), limit)
    return keys_to(store, partition), [(read_offset(key), read_offset(value)) for key, value in found]


def delete_partitions(store: IndexStore, partitions: Collection[bytes]) -> None:
    """Delete all keys of these partitions, with one scan for each topic and kind: their keys are mostly adjacent."""
    for _, of_topic in groupby(sorted(partitions), lambda one: one[:TOPIC_ID_SIZE_BYTES]):
        first, *others = of_topic
        last = others[-1] if others else first
        for kind in (ENTRY, SUMMARY, KEY, INDEXED_TO, KEYS_TO):
            keys = _keys_within(store, kind + first, following(kind + last))
            _delete_keys(store, (key for key in keys if key[1 : 1 + PARTITION_SIZE_BYTES] in partitions))


def delete(store: IndexStore, prefixes: Sequence[bytes]) -> None:
    _delete_keys(store, (key for prefix in prefixes for key in _keys_within(store, prefix, following(prefix))))
