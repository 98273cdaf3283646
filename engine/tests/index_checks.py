"""Checks of the simulated index against a walk over the segments."""

from collections.abc import Collection

from engine.index.rows import following, partition_key, read_entry, read_offset, read_summary, segment_key
from engine.index.store import KeyValue
from engine.logs.segments.segment import walk_headers
from engine.logs.segments.sparse_index import Entry
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.testing.simulated_index import SimulatedIndexStore
from testkit.logs import ORDERS

KEY = partition_key(ORDERS.topic_id, ORDERS.partition)


def stored(filesystem: SimulatedFileSystem, prefix: bytes) -> list[KeyValue]:
    return SimulatedIndexStore(filesystem, "/data/index").scan(prefix, following(prefix))


def check_entries(filesystem: SimulatedFileSystem, name: str, stored_entries: list[Entry]) -> None:
    """Check the entries of a segment: each batch far enough from the last entry has one, and each entry is right."""
    file = filesystem.open(f"/data/orders-0/{name}")
    by_offset = {entry.offset: entry for entry in stored_entries}
    newest_ms, last = -1, None
    for at in walk_headers(file, 0, file.size()):
        offset = at.header.base_offset
        newest_ms = max(newest_ms, at.header.max_timestamp_ms)
        found = by_offset.pop(offset, None)
        if found is not None:
            last = found
            assert found == Entry(offset, at.position, newest_ms)
        else:
            assert last is not None, "the first batch has none"
            assert offset < last.offset + 1000 or at.position < last.position + 4096
    assert not by_offset, "no such batches"


def check_index_equals_walk(
    filesystem: SimulatedFileSystem, *, with_last_summary: bool, cold: Collection[int] = (), local_start: int = 0
) -> None:
    """Check the whole index. `cold`: base offsets of segments without files, which have summaries all the same; other
    segments below `local_start` may have one."""
    names = [name for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log")]
    summaries = {read_offset(key): read_summary(value) for key, value in stored(filesystem, b"s" + KEY)}
    needed = [name for name in names if filesystem.size(f"/data/orders-0/{name}")]  # an empty segment may have none
    bases = {name: int(name.removesuffix(".log")) for name in names}
    assert {bases[name] for name in needed[: None if with_last_summary else -1]} <= summaries.keys()
    assert summaries.keys() <= ({base for base in summaries if base < local_start} | {*bases.values()}) - (
        set() if with_last_summary else {bases[names[-1]]}
    )
    assert summaries.keys() >= {*cold}
    for name, base in bases.items():
        found = [read_entry(key, value) for key, value in stored(filesystem, segment_key(b"e", KEY, base))]
        check_entries(filesystem, name, found)
        if base in summaries:
            file = filesystem.open(f"/data/orders-0/{name}")
            headers = [at.header for at in walk_headers(file, 0, file.size())]
            assert summaries[base] == (
                file.size(),
                headers[-1].next_offset if headers else base,
                headers[0].max_timestamp_ms if headers else -1,
                max((one.max_timestamp_ms for one in headers), default=-1),
                headers[-1].leader_epoch if headers else -1,
            )
