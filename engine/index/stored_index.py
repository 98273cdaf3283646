"""The stored index of one log dir: written after commit batches, read if memory lacks an entry, replaced if broken.

It lives on the loop. Each call of the store runs on the same worker of the pool, so the store has one caller at a time.
The loss of the index takes no log dir offline and changes no answer (docs/formats/index.md): without an entry, the
segment is walked.
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
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import IsKnown
from engine.logs.segments.segment import Segment
from engine.logs.segments.sparse_index import Entry, Stored

T = TypeVar("T")

PENDING_MAX = 100_000  # entries not yet written; more are left out
TRUNCATE_TOGETHER_MAX = 16  # partitions in one job of a worker, which takes the core from the loop
SECURED_WITHIN = 3  # attempts, each with a new index
GATHERING_S = 0.1  # a trip to a worker costs a busy loop more than the write; memory has the entries meanwhile


class StoredIndex:
    """The stored index of a log dir. `on_replaced`: called when all stored entries are gone; `report`: called with a
    line for the operator."""

    def __init__(
        self,
        directory: str,
        filesystem: FileSystem,
        open_index: OpenIndex,
        pool: WorkerPool,
        worker: int,
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._open_index = open_index
        self._pool = pool
        self._worker = worker
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
        """Open the store, or replace a broken one, and read the data that partitions need when they are opened."""
        self._store, problem = await self._pool.run(self._worker, self._open)
        if problem is not None:
            self._report(problem)
        if self._store is not None:
            self._stored = await self._ask(jobs.stored_partitions) or {}

    def take_stored(self, partition: bytes) -> Stored:
        """The data of a partition that were stored when the log dir was opened; for the opening of the partition,
        once."""
        return self._stored.pop(partition, Stored())

    async def reload_stored(self, partitions: Collection[bytes]) -> None:
        """Read the stored data of these partitions again, before they are opened again."""
        await self.write_pending()
        stored = await self._ask(jobs.stored_partitions) or {}
        self._stored |= {one: stored[one] for one in partitions if one in stored}

    # Writing

    def note(self, partition: bytes, log: Log, end_offset: int) -> None:
        """Store soon the entries that the log has gathered below an offset, up to which it is durable."""
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
        """Store soon the entries that a walk has found in a segment without stored entries, or with wrong ones."""
        self._pending += [entry_pair(partition, base_offset, entry) for entry in entries]
        self._wanted.set()

    def _note_summaries(self, partition: bytes, log: Log, last: Iterable[Segment]) -> None:
        """Add summaries of the last segments without one, from the last backwards; all before have one. Summaries stay
        when the files are removed."""
        for segments in (last, reversed(log.cold.segments)):
            for segment in segments:
                if not segment.size_bytes:
                    continue  # an empty segment does not tell whether those before it have summaries
                if segment.summarised_size_bytes == segment.size_bytes or len(self._pending) > PENDING_MAX:
                    break
                segment.summarised_size_bytes = segment.size_bytes
                self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))

    def note_summary(self, partition: bytes, log: Log, segment: Segment) -> None:
        """Store soon, again, the summary of a finished segment that has changed."""
        self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))
        self._wanted.set()

    def note_cold(self, partition: bytes, log: Log) -> None:
        """Store soon, again, the summaries of segments without files."""
        self._note_summaries(partition, log, ())
        self._wanted.set()

    async def secure(self, partition: bytes, log: Log) -> None:
        """Make the summaries of finished segments durable, before some lose their files. The caller has to sync the
        names in the directory. Raises StorageError."""
        for _ in range(SECURED_WITHIN):
            async with self._replacing:
                store = self._store
            await self.write_pending()  # first: there must be room for these
            self._note_summaries(partition, log, islice(reversed(log.segments), 1, None))
            await self.write_pending()
            await self._ask(jobs.sync)
            if self._store is store:
                return  # otherwise it was broken, and the new one lacks the summaries
        raise StorageError(f"the index {self._directory} breaks again and again")

    async def reconcile(self, partition: bytes, log: Log, stored: Stored) -> None:
        """Make the stored data of an opened log agree with the log, before the first append.

        Data of segments in a remote tier stay until the tier has deleted them.
        """
        bases = {segment.base_offset for segment in log.segments}
        if max(stored.indexed_to, stored.keys_to) > log.end.offset:
            await self.truncate({partition: log})
        removed = [base for base in stored.summaries if base not in bases and base >= log.cold.local_start_offset]
        if removed:
            await self.forget(partition, removed)
        if log.unindexed:
            self.note(partition, log, log.end.offset)

    async def serve(self) -> None:
        """Write noted entries until cancelled, with one WriteBatch for all commit batches since the last one."""
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

    async def truncate(self, logs: Mapping[bytes, Log]) -> None:
        """Delete entries beyond the ends of these logs, durably: the next appends take their offsets."""
        await self.write_pending()
        ends = [(partition, log.end) for partition, log in logs.items()]
        for start in range(0, len(ends), TRUNCATE_TOGETHER_MAX):
            chunk = dict(ends[start : start + TRUNCATE_TOGETHER_MAX])
            await self._ask(partial(jobs.truncate, ends=chunk, sync=start + TRUNCATE_TOGETHER_MAX >= len(ends)))
        for partition, log in logs.items():
            if log.unindexed:
                self.note(partition, log, log.end.offset)

    async def forget(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """Delete the data of removed segments."""
        await self.write_pending()
        prefixes = [segment_key(kind, partition, base) for base in base_offsets for kind in (ENTRY, KEY, SUMMARY)]
        await self._ask(partial(jobs.delete, prefixes=prefixes))

    async def give_up(self, partition: bytes, base_offsets: Sequence[int]) -> None:
        """Delete the data of segments that others replace, durably, and let their keys be stored again."""
        await self.write_pending()
        await self._ask(partial(jobs.give_up, partition=partition, base_offsets=base_offsets))

    def note_segment(self, partition: bytes, log: Log, segment: Segment, entries: Sequence[Entry]) -> None:
        """Store soon the summary and entries of a finished segment."""
        segment.summarised_size_bytes = segment.size_bytes
        self._pending.append(summary_pair(partition, segment.base_offset, log.summary_of(segment)))
        self.note_entries(partition, segment.base_offset, entries)

    async def forget_partitions(self, partitions: Collection[bytes]) -> None:
        """Delete the data of deleted partitions."""
        await self.write_pending()
        await self._ask(partial(jobs.delete_partitions, partitions=frozenset(partitions)))

    async def forget_unknown(self, is_known: IsKnown) -> None:
        """Delete the data of partitions for which `is_known` is false; call it before a partition is opened."""
        unknown = [one for one in self._stored if not is_known(*of_partition_key(one))]
        for partition in unknown:
            del self._stored[partition]
        await self.forget_partitions(unknown)

    # Reading

    async def entries(self, partition: bytes, base_offset: int) -> list[Entry]:
        """The stored entries of a segment; empty if that of its first batch is missing."""
        await self.write_pending()
        found = await self._ask(partial(jobs.entries, partition=partition, base_offset=base_offset)) or []
        return found if found and found[0].offset == base_offset else []

    async def distrust(self, reason: str) -> None:
        """Replace the index, after one of its answers was wrong."""
        if self._store is not None:
            await self._replace(self._store, reason)

    # Keys of records

    async def keys_to(self, partition: bytes) -> int | None:
        """The offset below which all keys are stored; None: there is no index."""
        return await self._ask(partial(jobs.keys_to, partition=partition))

    async def add_keys(
        self, partition: bytes, places: Sequence[tuple[int, bytes, int, int]], before: int, keys_to: int
    ) -> bool:
        """Store keys up to offset `keys_to`; False, and none is stored, if keys are not stored up to `before` now.

        `places`: (segment base offset, key hash, batch offset, position).
        """
        puts = [key_pair(partition, *place) for place in places]
        job = partial(jobs.add_keys, partition=partition, puts=puts, before=before, after=keys_to)
        return bool(await self._ask(job))

    async def key_places(
        self, partition: bytes, base_offset: int, key_hash: bytes, after: int, limit: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """The offset up to which keys are stored, and (offset, position) of a segment's first `limit` batches behind
        offset `after` that may have the key."""
        prefix = segment_key(KEY, partition, base_offset) + key_hash
        job = partial(jobs.key_places, partition=partition, prefix=prefix, after=after, limit=limit)
        return await self._ask(job) or (0, [])

    # The end

    def stop(self) -> None:
        """Write nothing more: the log dir failed."""
        self._is_stopped = True

    async def close(self, logs: Mapping[bytes, Log]) -> None:
        """Write all noted data durably, and close the store."""
        for partition, log in logs.items():
            if log.unindexed or log.active.summarised_size_bytes != log.active.size_bytes:
                self.note(partition, log, log.end.offset)
            self._note_summaries(partition, log, reversed(log.segments))
        await self.write_pending(sync=True)
        if self._store is not None:
            store, self._store = self._store, None
            await self._pool.run(self._worker, store.close)

    # The store and its replacement

    async def _ask(self, job: Callable[[IndexStore], T]) -> T | None:
        """Run a job with the store; None: there is no index (any more)."""
        store = self._store
        if store is None:
            return None
        try:
            return await self._pool.run(self._worker, partial(_guarded, job, store))
        except IndexBroken as error:
            await self._replace(store, str(error))
            return None

    async def _replace(self, broken: IndexStore, reason: str) -> None:
        if self._store is not broken:
            return  # another caller has replaced it already
        self._store = None
        self._report(f"the index {self._directory} is dropped and built anew: {reason}")
        self._stored = {}
        async with self._replacing:
            self._store, problem = await self._pool.run(self._worker, partial(self._open, broken))
        if problem is not None:
            self._report(problem)
        self.on_replaced()

    def _open(self, broken: IndexStore | None = None) -> tuple[IndexStore | None, str | None]:
        """Open the store, or replace it; returns it, and a message for the operator. Runs on the worker."""
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
            # The data written by a killed process are used from now on, so a power cut must not take them any more,
            # least of all the deletion of entries.
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
