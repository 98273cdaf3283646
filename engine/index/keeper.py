"""The stored index of one log dir: written behind the rounds, read when memory does not know, replaced when broken.

Lives on the loop; every call of the store runs on one lane of the pool, so the store sees one caller at a time. Losing
the index never fails a log dir and never changes an answer (docs/formats/index.md): what cannot be had from it is
walked from the segments.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import TypeVar

import trio

from engine.files.filesystem import FileSystem
from engine.files.io_workers import WorkerPool
from engine.index.rows import (
    ENTRY,
    FORMAT,
    FORMAT_KEY,
    INDEXED_TO,
    KEY,
    KEYS_TO,
    PARTITION_SIZE_BYTES,
    SUMMARY,
    entry_pair,
    following,
    indexed_to_pair,
    key_pair,
    keys_to_pair,
    offset_bytes,
    read_entry,
    read_offset,
    read_summary,
    segment_key,
    summary_pair,
)
from engine.index.store import IndexBroken, IndexStore, KeyValue, OpenIndex
from engine.logs.log import Log
from engine.logs.segment import Segment
from engine.logs.sparse_index import Entry, Stored, Summary

T = TypeVar("T")

TOPIC_ID_SIZE_BYTES = 16
PORTION = 10_000  # of a long scan
PENDING_MAX = 100_000  # entries not yet written; what does not fit is left out
GATHERING_S = 0.1  # a hand-over to a worker costs a busy loop more than the write; memory answers meanwhile


class IndexKeeper:
    """`on_replaced` is called when everything that was stored is gone, `report` gets a line for the operator."""

    def __init__(
        self,
        directory: str,
        filesystem: FileSystem,
        open_index: OpenIndex,
        pool: WorkerPool,
        lane: int,
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._open_index = open_index
        self._pool = pool
        self._lane = lane
        self.on_replaced: Callable[[], None] = lambda: None
        self._report = report
        self._store: IndexStore | None = None
        self._stored: dict[bytes, Stored] = {}
        self._pending: list[KeyValue] = []
        self._indexed_to: dict[bytes, int] = {}
        self._wanted = trio.Event()
        self._is_stopped = False

    async def open(self) -> None:
        """Open the store, or replace one that is broken, and read what partitions ask for when they are opened."""
        self._store, problem = await self._pool.run(self._lane, self._open)
        if problem is not None:
            self._report(problem)
        if self._store is not None:
            self._stored = await self._ask(_stored_partitions) or {}

    def take_stored(self, partition: bytes) -> Stored:
        """What was stored when the log dir was opened; to be asked once, by whoever opens the partition."""
        return self._stored.pop(partition, Stored())

    # Writing

    def note(self, partition: bytes, log: Log, end_offset: int) -> None:
        """Store soon what the log gathered below an offset: all of that is durable, as the topic defines it."""
        gathered = log.unindexed
        if gathered and gathered[-1][1].offset >= end_offset:
            gathered = [one for one in gathered if one[1].offset < end_offset]
        if len(self._pending) < PENDING_MAX:
            self._pending += [entry_pair(partition, base, entry) for base, entry in gathered]
        del log.unindexed[: len(gathered)]
        self._indexed_to[partition] = end_offset
        self._note_summaries(partition, log, log.segments[:-1])
        self._wanted.set()

    def note_entries(self, partition: bytes, base_offset: int, entries: Sequence[Entry]) -> None:
        """Store soon what a walk found of a segment of which nothing, or nothing right, was stored."""
        self._pending += [entry_pair(partition, base_offset, entry) for entry in entries]
        self._wanted.set()

    def _note_summaries(self, partition: bytes, log: Log, segments: Sequence[Segment]) -> None:
        """Of the last segments that have none: all before them do."""
        for segment in reversed(segments):
            if segment.summarised_size_bytes == segment.size_bytes or len(self._pending) > PENDING_MAX:
                break
            segment.summarised_size_bytes = segment.size_bytes
            self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))

    async def take_stock(self, partition: bytes, log: Log, stored: Stored) -> None:
        """A log was opened: bring what is stored in line with it before anything is appended."""
        bases = {segment.base_offset for segment in log.segments}
        if max(stored.indexed_to, stored.keys_to) > log.end.offset:
            await self._cut(partition, log)
        gone = [base for base in stored.summaries if base not in bases]
        if gone:
            await self.forget(partition, gone)
        if log.unindexed:
            self.note(partition, log, log.end.offset)

    async def serve(self) -> None:
        """Write what was noted, as long as it takes: one WriteBatch for all rounds that finished meanwhile."""
        while True:
            await self._wanted.wait()
            await trio.sleep(GATHERING_S)
            self._wanted = trio.Event()
            await self.write_pending()

    async def write_pending(self, *, sync: bool = False) -> None:
        puts = self._pending
        puts += [indexed_to_pair(partition, offset) for partition, offset in self._indexed_to.items()]
        self._pending, self._indexed_to = [], {}
        if puts and not self._is_stopped:
            await self._ask(lambda store: store.write(puts, sync=sync))

    async def _cut(self, partition: bytes, log: Log) -> None:
        """Forget what was beyond the end of the log, durably: what is appended next must not meet it."""
        await self.write_pending()
        base_offset, end_offset = log.active.base_offset, log.end.offset
        await self._ask(partial(_cut, partition=partition, end_offset=end_offset, last_base_offset=base_offset))

    async def forget(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """These segments are no more."""
        await self.write_pending()
        prefixes = [segment_key(kind, partition, base) for base in base_offsets for kind in (ENTRY, KEY, SUMMARY)]
        await self._ask(partial(_delete, prefixes=prefixes))

    async def give_up(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """Others take the place of these segments: forget them durably, and have their keys stored anew."""
        await self.write_pending()
        await self._ask(partial(_give_up, partition=partition, base_offsets=base_offsets))

    def note_segment(self, partition: bytes, log: Log, segment: Segment, entries: Sequence[Entry]) -> None:
        """Store soon all there is to know of one that is finished."""
        segment.summarised_size_bytes = segment.size_bytes
        self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))
        self.note_entries(partition, segment.base_offset, entries)

    async def forget_partitions(self, partitions: Collection[bytes]) -> None:
        """They are no more."""
        await self.write_pending()
        await self._ask(partial(_delete_partitions, partitions=frozenset(partitions)))

    async def forget_unknown(self, is_known: Callable[[bytes], bool]) -> None:
        """Partitions of topics that `is_known` denies are no more. Before any is opened."""
        gone = [one for one in self._stored if not is_known(one[:TOPIC_ID_SIZE_BYTES])]
        for partition in gone:
            del self._stored[partition]
        await self.forget_partitions(gone)

    # Reading

    async def entries(self, partition: bytes, base_offset: int) -> list[Entry]:
        """What is stored of a segment; nothing when its first batch is missing."""
        await self.write_pending()
        found = await self._ask(partial(_entries, partition=partition, base_offset=base_offset)) or []
        return found if found and found[0].offset == base_offset else []

    async def distrust(self, reason: str) -> None:
        """An answer was wrong: no other can be believed."""
        if self._store is not None:
            await self._replace(self._store, reason)

    # Keys of records

    async def keys_to(self, partition: bytes) -> int | None:
        """Below it all keys are stored; None when there is no index."""
        return await self._ask(partial(_keys_to, partition=partition))

    async def add_keys(
        self, partition: bytes, places: Sequence[tuple[int, bytes, int, int]], before: int, keys_to: int
    ) -> bool:
        """Store (segment base offset, key hash, batch offset, position); False when `before` is not where it stands."""
        puts = [key_pair(partition, *place) for place in places]
        job = partial(_add_keys, partition=partition, puts=puts, before=before, keys_to=keys_to)
        return bool(await self._ask(job))

    async def key_places(
        self, partition: bytes, base_offset: int, key_hash: bytes, after: int, limit: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Up to where keys are stored, and (offset, position) of a segment's first batches behind `after` with one."""
        prefix = segment_key(KEY, partition, base_offset) + key_hash
        return await self._ask(partial(_key_places, partition=partition, prefix=prefix, after=after, limit=limit)) or (
            0,
            [],
        )

    # The end

    def stop(self) -> None:
        """Write nothing more: the log dir failed."""
        self._is_stopped = True

    async def close(self, logs: Mapping[bytes, Log]) -> None:
        """Write what is known, durably, and close the store."""
        for partition, log in logs.items():
            if log.unindexed or log.active.summarised_size_bytes != log.active.size_bytes:
                self.note(partition, log, log.end.offset)
            self._note_summaries(partition, log, log.segments)
        await self.write_pending(sync=True)
        if self._store is not None:
            store, self._store = self._store, None
            await self._pool.run(self._lane, store.close)

    # The store and its replacement

    async def _ask(self, job: Callable[[IndexStore], T]) -> T | None:
        """None when there is no index (any more)."""
        store = self._store
        if store is None:
            return None
        try:
            return await self._pool.run(self._lane, partial(_guarded, job, store))
        except IndexBroken as error:
            await self._replace(store, str(error))
            return None

    async def _replace(self, broken: IndexStore, reason: str) -> None:
        if self._store is not broken:
            return  # by somebody else who found it broken
        self._store = None
        self._report(f"the index {self._directory} is dropped and built anew: {reason}")
        self._stored = {}
        self._store, problem = await self._pool.run(self._lane, partial(self._open, broken))
        if problem is not None:
            self._report(problem)
        self.on_replaced()

    def _open(self, broken: IndexStore | None = None) -> tuple[IndexStore | None, str | None]:
        """The store, and what is to be reported. On the lane."""
        problem = None
        try:
            if broken is not None:
                broken.close()
                self._remove()
            try:
                return self._open_checked(), None
            except IndexBroken as error:
                problem = f"the index {self._directory} is dropped and built anew: {error}"
                self._remove()
            return self._open_checked(), problem
        except (IndexBroken, OSError) as error:
            return None, f"no index in {self._directory} until the next start: {error}"

    def _open_checked(self) -> IndexStore:
        store = self._open_index(self._directory)
        try:
            version = store.get(FORMAT_KEY)
            if version not in (None, FORMAT):
                raise IndexBroken(f"its format is {version!r}, not {FORMAT!r}")
            # What a killed process wrote is about to be believed: a power cut must not take it any more, least of all
            # that entries were cut off.
            store.write([(FORMAT_KEY, FORMAT)], sync=True)
        except IndexBroken:
            store.close()
            raise
        return store

    def _remove(self) -> None:
        for name in self._filesystem.list_dir(self._directory):
            self._filesystem.unlink(f"{self._directory}/{name}")


def _guarded(job: Callable[[IndexStore], T], store: IndexStore) -> T:
    try:
        return job(store)
    except (ValueError, struct.error) as error:  # a value of another size than its format has
        raise IndexBroken(str(error)) from error


def _stored_partitions(store: IndexStore) -> dict[bytes, Stored]:
    summaries: dict[bytes, dict[int, Summary]] = {}
    for key, value in store.scan(SUMMARY, following(SUMMARY)):
        summaries.setdefault(key[1 : 1 + PARTITION_SIZE_BYTES], {})[read_offset(key)] = read_summary(value)
    indexed_to, keys_to = _offsets(store, INDEXED_TO), _offsets(store, KEYS_TO)
    partitions = dict.fromkeys([*summaries, *indexed_to, *keys_to])
    return {one: Stored(indexed_to.get(one, 0), summaries.get(one, {}), keys_to.get(one, 0)) for one in partitions}


def _offsets(store: IndexStore, kind: bytes) -> dict[bytes, int]:
    """By partition."""
    return {key[1:]: read_offset(value) for key, value in store.scan(kind, following(kind))}


def _entries(store: IndexStore, partition: bytes, base_offset: int) -> list[Entry]:
    prefix = segment_key(ENTRY, partition, base_offset)
    return [read_entry(key, value) for key, value in store.scan(prefix, following(prefix))]


def _cut(store: IndexStore, partition: bytes, end_offset: int, last_base_offset: int) -> None:
    for kind in (ENTRY, SUMMARY, KEY):
        keys = _keys_within(store, segment_key(kind, partition, last_base_offset), following(kind + partition))
        _delete_keys(store, (key for key in keys if kind == SUMMARY or read_offset(key) >= end_offset))
    puts = [  # the last, so that whoever is killed before finds the index ahead, and cuts again
        indexed_to_pair(partition, end_offset),
        keys_to_pair(partition, min(_keys_to(store, partition), end_offset)),
    ]
    store.write(puts, sync=True)


def _keys_within(store: IndexStore, start: bytes, stop: bytes) -> Iterator[bytes]:
    """Read a portion at a time: a segment may have millions."""
    while found := store.scan(start, stop, PORTION):
        yield from (key for key, _ in found)
        start = found[-1][0] + b"\0"


def _delete_keys(store: IndexStore, doomed: Iterator[bytes]) -> None:
    while some := list(islice(doomed, PORTION)):
        store.write([], some)


def _give_up(store: IndexStore, partition: bytes, base_offsets: Sequence[int]) -> None:
    prefixes = [segment_key(kind, partition, base) for base in base_offsets for kind in (ENTRY, SUMMARY, KEY)]
    if _keys_to(store, partition) > base_offsets[0]:  # first: nobody may miss what is deleted
        store.write([keys_to_pair(partition, base_offsets[0])])
    _delete(store, prefixes)
    store.write([(FORMAT_KEY, FORMAT)], sync=True)  # something, so that everything before it is durable


def _keys_to(store: IndexStore, partition: bytes) -> int:
    value = store.get(KEYS_TO + partition)
    return 0 if value is None else read_offset(value)


def _add_keys(store: IndexStore, partition: bytes, puts: Sequence[KeyValue], before: int, keys_to: int) -> bool:
    if _keys_to(store, partition) != before:
        return False
    store.write([*puts, keys_to_pair(partition, keys_to)])
    return True


def _key_places(
    store: IndexStore, partition: bytes, prefix: bytes, after: int, limit: int
) -> tuple[int, list[tuple[int, int]]]:
    found = store.scan(prefix + offset_bytes(after + 1), following(prefix), limit)
    return _keys_to(store, partition), [(read_offset(key), read_offset(value)) for key, value in found]


def _delete_partitions(store: IndexStore, partitions: Collection[bytes]) -> None:
    """One look per topic and kind: those of a topic that go together mostly lie side by side."""
    for _, of_topic in groupby(sorted(partitions), lambda one: one[:TOPIC_ID_SIZE_BYTES]):
        first, *others = of_topic
        last = others[-1] if others else first
        for kind in (ENTRY, SUMMARY, KEY, INDEXED_TO, KEYS_TO):
            keys = _keys_within(store, kind + first, following(kind + last))
            _delete_keys(store, (key for key in keys if key[1 : 1 + PARTITION_SIZE_BYTES] in partitions))


def _delete(store: IndexStore, prefixes: Sequence[bytes]) -> None:
    _delete_keys(store, (key for prefix in prefixes for key in _keys_within(store, prefix, following(prefix))))
