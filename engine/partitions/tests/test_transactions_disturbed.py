"""Transactions in a log that is damaged, or that changes under its readers: a read_committed reader never gets records
of open or aborted transactions."""

import dataclasses
import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from engine.api import Leadership, Outcome, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.compaction.cleaning_pass import CleanerOptions
from engine.errors import CorruptMessage
from engine.log_config import LogConfig
from engine.log_dirs.local_starts import move_local_start
from engine.log_dirs.log_starts import roll
from engine.logs.producers import walk
from engine.logs.segments.segment import find_batch, segment_name, walk_headers
from engine.logs.segments.sparse_index import START
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.fake_tier import FakeTier
from testkit.logs import NOW_MS, ORDERS, options, running
from testkit.transactional_logs import COMPACT, DIRECTORY, SMALL, append, end, now_ms, opened, values

OTHER = TopicIdPartition(bytes(16), "payments", 0)


class HeldLook:
    """Holds the next read of an aborted index on its way to a worker."""

    def __init__(self, log: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = log.log_dir.disk.run
        self.started, self._may_go_on = trio.Event(), trio.Event()
        monkeypatch.setattr(log.log_dir.disk, "run", self._hold)

    async def _hold(self, job: Callable[[], object]) -> object:
        if "aborted_of" in repr(job) and not self.started.is_set():
            self.started.set()
            await self._may_go_on.wait()
        return await self._run(job)

    def release(self) -> None:
        self._may_go_on.set()


async def taken_back(log: Partition, count: int) -> None:
    """Append and abort `count` transactions of three records."""
    for number in range(3 * count):
        await append(log, b"taken back %d" % number, (7, 0, number))
        if number % 3 == 2:
            await end(log, 7, Outcome.ABORT)


async def test_an_aborted_index_lookup_is_repeated_if_its_files_go_to_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem, tier = SimulatedFileSystem(), FakeTier()
    async with running(filesystem, tier=tier) as store:
        log = await opened(store, SMALL)
        await taken_back(log, 4)
        await append(log, b"there")
        await trio.sleep(1)
        tier.upload(filesystem, log)
        held, seen = HeldLook(log, monkeypatch), list[bytes | None]()

        async def consume() -> None:
            seen.extend(await values(log))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await held.started.wait()
            await move_local_start(log.log_dir, log, log.log.segments[3].base_offset)
            held.release()
        assert seen == await values(log) == [b"there"], "neither now nor later: what was found is remembered"


async def test_an_aborted_index_lookup_is_repeated_if_its_segment_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dedupe buffer is full before the aborted records, so that the first pass leaves them there."""
    cleaner = CleanerOptions(
        backoff_ms=500_000, io_max_bytes_per_s=100, dedupe_buffer_size_bytes=160 * 13, dedupe_buffer_load_factor=1
    )
    chosen = dataclasses.replace(options(), cleaner=cleaner)
    config = dataclasses.replace(COMPACT, segment_size_bytes=1500)
    async with running(SimulatedFileSystem(), chosen, clock=now_ms) as store:
        log = await opened(store, config)
        for number in range(4):
            await append(log, b"%d" % number, key=b"same")
        await roll(log.log_dir, log, log.log_end_offset)
        for number in range(12):
            await append(log, b"there", key=b"%d" % number)
        for number in range(2):
            await append(log, b"taken back", (7, 0, number), key=b"taken back %d" % number)
        await end(log, 7, Outcome.ABORT)
        await roll(log.log_dir, log, log.log_end_offset)
        await append(log, b"last", key=b"last")
        await trio.sleep(20)  # it is sealed
        before = log.log.replacements
        log.log.aborted.truncate(log.log.active.base_offset, [])  # drop the cached indexes
        held, seen = HeldLook(log, monkeypatch), list[bytes | None]()

        async def consume() -> None:
            seen.extend(await values(log, 14))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await held.started.wait()
            await trio.sleep(550)
            assert log.log.replacements == before + 1
            held.release()
        assert seen == await values(log, 14) == [b"there", b"there", b"last"]


@pytest.mark.parametrize("damage", ["sector", "header"])
async def test_where_a_transaction_begins_may_be_unknown(damage: str) -> None:
    """The log and the others open, and no record of the open transaction is returned. The log takes appends and the end
    of that transaction."""
    filesystem = SimulatedFileSystem()
    path = f"{DIRECTORY}/{segment_name(0)}"
    async with running(filesystem) as store:
        log = await opened(store)
        await store.open_partitions([Leadership(OTHER, LogConfig(), 0)])
        for _ in range(60):
            batch = build_batch([Record(b"k", b"plain", NOW_MS)] * 100)
            await log.append(memoryview(batch), acks=-1).wait()
        await append(log, b"undecided", (7, 0, 0))
        places = [at.position for at in walk_headers(filesystem.open(path), 0, log.log.active.size_bytes)]
        await trio.sleep(100)
        await store.close()
    filesystem.drop_cache()
    if damage == "header":
        filesystem.open(path).write_at([b"\x07"], places[1] + 16)  # the magic
    else:
        filesystem.faults.append(Fault("read", errno.EIO, f"orders-0/{segment_name(0)}", is_lasting=True))
    problems: list[str] = []
    async with running(filesystem, problems=problems) as store:
        wanted = [Leadership(one, LogConfig(), 1) for one in (ORDERS, OTHER)]
        first, other = await store.open_partitions(wanted)
        assert isinstance(first, Partition)
        assert isinstance(other, Partition)
        log = first
        assert "where an open transaction begins is not known" in problems[0]
        assert (log.high_watermark, log.last_stable_offset) == (6001, 0)
        filesystem.faults.clear()
        await append(log, b"behind")
        await end(log, 7, Outcome.ABORT)
        assert log.last_stable_offset == log.high_watermark == 6003
        assert await values(log, 6000) == [b"behind"]


async def shown_before(log: Partition) -> list[bytes | None]:
    """Records that read_committed readers get, one reader from the begin of each segment up to the damage."""
    found: list[bytes | None] = []
    for segment in log.log.segments:
        with suppress(CorruptMessage):
            found += await values(log, segment.base_offset)
    return found


async def test_aborted_records_stay_hidden_before_a_lost_segment() -> None:
    """The producer snapshots and the aborted index reach beyond the present log end."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, SMALL)
        await taken_back(log, 6)
        bases = [segment.base_offset for segment in log.log.segments]
        assert len(bases) >= 6
        assert await values(log) == []
        await trio.sleep(100)
        await store.close()
    for lost in reversed(bases[1:]):
        filesystem.unlink(f"{DIRECTORY}/{segment_name(lost)}")
        async with running(filesystem) as store:
            log = await opened(store, SMALL, 1)
            assert lost == bases[-1] or log.log.damaged_from == lost
            assert await shown_before(log) == [], "not even if its transaction ends behind the damage"


async def test_a_single_walk_finds_the_begin_of_all_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the number of open transactions; a walk for each would take up to minutes in all."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store)
        for producer_id in range(50):
            await append(log, b"plain")
            await append(log, b"open", (producer_id, 0, 0))
        await trio.sleep(100)
        await store.close()
    starts: list[tuple[int, int]] = []

    def noting(read: Any, start: tuple[int, int], end: int, offset: int, *others: Any) -> Any:
        starts.append(start)
        return find_batch(read, start, end, offset, *others)

    monkeypatch.setattr(walk, "find_batch", noting)
    async with running(filesystem) as store:
        log = await opened(store, epoch=1)
        assert starts[0] == START
        assert [offset for offset, _ in starts[1:]] == list(range(1, 99, 2)), "each from where the one before was found"
        for producer_id in range(50):
            assert log.last_stable_offset == 2 * producer_id + 1
            await end(log, producer_id, Outcome.COMMIT)
        assert log.last_stable_offset == log.high_watermark
