"""The stored index of one log dir: written behind the rounds, read when memory does not know, replaced when broken.

Lives on the loop; every call of the store runs on one lane of the pool, so the store sees one caller at a time. Losing
the index never fails a log dir and never changes an answer (docs/formats/index.md): what cannot be had from it is
walked from the segments.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import trio

from engine.errors import StorageError
from engine.files.filesystem import FileSystem
from engine.files.io_workers import WorkerPool
from engine.index import jobs
from engine.index.rows import (
    ENTRY,
    FORMAT,
    FORMAT_KEY,
    KEY,
    SUMMARY,
    entry_pair,
    indexed_to_pair,
    key_pair,
    of_partition_key,
    segment_key,
    summary_pair,
)
from engine.index.store import IndexBroken, IndexStore, KeyValue, OpenIndex
from engine.logs.checkpoints import IsKnown
from engine.logs.log import Log
from engine.logs.segment import Segment
from engine.logs.sparse_index import Entry, Stored

T = TypeVar("T")

PENDING_MAX = 100_000  # entries not yet written; what does not fit is left out
CUT_TOGETHER_MAX = 16  # partitions, a job of a worker: it keeps the core from the loop
SECURED_WITHIN = 3  # attempts, each with an index that was made anew
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
        self._replacing = trio.Lock()
        self._is_stopped = False

    async def open(self) -> None:
        """Open the store, or replace one that is broken, and read what partitions ask for when they are opened."""
        self._store, problem = await self._pool.run(self._lane, self._open)
        if problem is not None:
            self._report(problem)
        if self._store is not None:
            self._stored = await self._ask(jobs.stored_partitions) or {}

    def take_stored(self, partition: bytes) -> Stored:
        """What was stored when the log dir was opened; to be asked once, by whoever opens the partition."""
        return self._stored.pop(partition, Stored())

    async def look_again(self, partitions: Collection[bytes]) -> None:
        """These are about to be opened once more."""
        await self.write_pending()
        stored = await self._ask(jobs.stored_partitions) or {}
        self._stored |= {one: stored[one] for one in partitions if one in stored}

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
        self._note_summaries(partition, log, islice(reversed(log.segments), 1, None))
        self._wanted.set()

    def note_entries(self, partition: bytes, base_offset: int, entries: Sequence[Entry]) -> None:
        """Store soon what a walk found of a segment of which nothing, or nothing right, was stored."""
        self._pending += [entry_pair(partition, base_offset, entry) for entry in entries]
        self._wanted.set()

    def _note_summaries(self, partition: bytes, log: Log, last: Iterable[Segment]) -> None:
        """Of the last segments, the last one first, that have none: all before them do. They outlive the files."""
        for segments in (last, reversed(log.cold.segments)):
            for segment in segments:
                if not segment.size_bytes:
                    continue  # nothing was appended to it: that tells nothing of those before it
                if segment.summarised_size_bytes == segment.size_bytes or len(self._pending) > PENDING_MAX:
                    break
                segment.summarised_size_bytes = segment.size_bytes
                self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))

    def note_cold(self, partition: bytes, log: Log) -> None:
        """Store soon, again, what nobody could read from a file."""
        self._note_summaries(partition, log, ())
        self._wanted.set()

    async def secure(self, partition: bytes, log: Log) -> None:
        """Have it durable what is known of finished segments, some of which may lose their files; but for names in the
        directory, which are the caller's to sync. Raises StorageError."""
        for _ in range(SECURED_WITHIN):
            async with self._replacing:
                store = self._store
            await self.write_pending()  # first: there must be room for these
            self._note_summaries(partition, log, islice(reversed(log.segments), 1, None))
            await self.write_pending()
            await self._ask(jobs.sync)
            if self._store is store:
                return  # else it was broken, and the new one has nothing of it
        raise StorageError(f"the index {self._directory} breaks again and again")

    async def take_stock(self, partition: bytes, log: Log, stored: Stored) -> None:
        """A log was opened: bring what is stored in line with it before anything is appended.

        What is known of segments in a remote tier stays until they are gone from there.
        """
        bases = {segment.base_offset for segment in log.segments}
        if max(stored.indexed_to, stored.keys_to) > log.end.offset:
            await self.cut({partition: log})
        gone = [base for base in stored.summaries if base not in bases and base >= log.cold.local_start_offset]
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

    async def cut(self, logs: Mapping[bytes, Log]) -> None:
        """Forget what was beyond the ends of these logs, durably: what is appended next must not meet it."""
        await self.write_pending()
        ends = [(partition, log.end) for partition, log in logs.items()]
        for start in range(0, len(ends), CUT_TOGETHER_MAX):
            some = dict(ends[start : start + CUT_TOGETHER_MAX])
            await self._ask(partial(jobs.cut, ends=some, sync=start + CUT_TOGETHER_MAX >= len(ends)))
        for partition, log in logs.items():
            if log.unindexed:
                self.note(partition, log, log.end.offset)

    async def forget(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """These segments are no more."""
        await self.write_pending()
        prefixes = [segment_key(kind, partition, base) for base in base_offsets for kind in (ENTRY, KEY, SUMMARY)]
        await self._ask(partial(jobs.delete, prefixes=prefixes))

    async def give_up(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """Others take the place of these segments: forget them durably, and have their keys stored anew."""
        await self.write_pending()
        await self._ask(partial(jobs.give_up, partition=partition, base_offsets=base_offsets))

    def note_segment(self, partition: bytes, log: Log, segment: Segment, entries: Sequence[Entry]) -> None:
        """Store soon all there is to know of one that is finished."""
        segment.summarised_size_bytes = segment.size_bytes
        self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))
        self.note_entries(partition, segment.base_offset, entries)

    async def forget_partitions(self, partitions: Collection[bytes]) -> None:
        """They are no more."""
        await self.write_pending()
        await self._ask(partial(jobs.delete_partitions, partitions=frozenset(partitions)))

    async def forget_unknown(self, is_known: IsKnown) -> None:
        """Partitions that `is_known` denies are no more. Before any is opened."""
        gone = [one for one in self._stored if not is_known(*of_partition_key(one))]
        for partition in gone:
            del self._stored[partition]
        await self.forget_partitions(gone)

    # Reading

    async def entries(self, partition: bytes, base_offset: int) -> list[Entry]:
        """What is stored of a segment; nothing when its first batch is missing."""
        await self.write_pending()
        found = await self._ask(partial(jobs.entries, partition=partition, base_offset=base_offset)) or []
        return found if found and found[0].offset == base_offset else []

    async def distrust(self, reason: str) -> None:
        """An answer was wrong: no other can be believed."""
        if self._store is not None:
            await self._replace(self._store, reason)

    # Keys of records

    async def keys_to(self, partition: bytes) -> int | None:
        """Below it all keys are stored; None when there is no index."""
        return await self._ask(partial(jobs.keys_to, partition=partition))

    async def add_keys(
        self, partition: bytes, places: Sequence[tuple[int, bytes, int, int]], before: int, keys_to: int
    ) -> bool:
        """Store (segment base offset, key hash, batch offset, position); False when `before` is not where it stands."""
        puts = [key_pair(partition, *place) for place in places]
        job = partial(jobs.add_keys, partition=partition, puts=puts, before=before, after=keys_to)
        return bool(await self._ask(job))

    async def key_places(
        self, partition: bytes, base_offset: int, key_hash: bytes, after: int, limit: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Up to where keys are stored, and (offset, position) of a segment's first batches behind `after` with one."""
        prefix = segment_key(KEY, partition, base_offset) + key_hash
        job = partial(jobs.key_places, partition=partition, prefix=prefix, after=after, limit=limit)
        return await self._ask(job) or (0, [])

    # The end

    def stop(self) -> None:
        """Write nothing more: the log dir failed."""
        self._is_stopped = True

    async def close(self, logs: Mapping[bytes, Log]) -> None:
        """Write what is known, durably, and close the store."""
        for partition, log in logs.items():
            if log.unindexed or log.active.summarised_size_bytes != log.active.size_bytes:
                self.note(partition, log, log.end.offset)
            self._note_summaries(partition, log, reversed(log.segments))
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
        async with self._replacing:
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
