"""The stored index equals a walk over the log, may only lag behind, and is replaced when it is broken."""

import errno
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batches.batch import Record, build_batch
from engine.index import jobs
from engine.index.rows import (
    FORMAT_KEY,
    INDEXED_TO,
    KEYS_TO,
    following,
    key_pair,
    keys_to_pair,
    read_offset,
    segment_key,
)
from engine.index.rows import KEY as KEYS
from engine.index.store import KeyValue
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.segments.position import LogPosition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.testing.simulated_index import SimulatedIndexStore
from engine.tests.index_checks import KEY, check_index_equals_walk, stored
from testkit.logs import ORDERS, append, fates, open_orders, read_all, running

ROLLING = LogConfig(segment_size_bytes=40_000)
BATCHES = "/data/index/batches"


def records(count: int, timestamp_ms: int) -> memoryview:
    return memoryview(build_batch([Record(None, b"x" * 20, timestamp_ms + n) for n in range(count)]))


batches = st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 10_000)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(st.lists(batches, min_size=1, max_size=4), st.booleans())
def test_stored_entries_and_summaries_equal_a_walk_after_clean_and_unclean_stops(
    lives: list[list[tuple[int, int]]], clean: bool
) -> None:
    async def run() -> None:
        filesystem = SimulatedFileSystem()
        for epoch, life in enumerate(lives):
            async with running(filesystem) as store:
                log = await open_orders(store, ROLLING, epoch)
                for count, timestamp_ms in life:
                    await log.append(records(count, timestamp_ms), acks=-1).wait()
                await trio.sleep(1)
                if clean:
                    await store.close()
            check_index_equals_walk(filesystem, with_last_summary=clean)

    clock: Callable[[], trio.abc.Clock] = partial(trio.testing.MockClock, autojump_threshold=0)
    trio.run(run, clock=clock())


async def test_l6_nothing_is_indexed_before_the_reply() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"a")
        assert stored(filesystem, b"e" + KEY) == []
        await trio.sleep(1)
        assert len(stored(filesystem, b"e" + KEY)) == 1
        assert [read_offset(value) for _, value in stored(filesystem, b"i" + KEY)] == [1]


@pytest.mark.parametrize("seed", range(20))
async def test_l6_an_index_ahead_of_a_shortened_log_is_truncated_before_the_next_append(seed: int) -> None:
    """flush.policy=async: a power cut may leave the index and take the records."""
    filesystem = SimulatedFileSystem()
    config = LogConfig(segment_size_bytes=40_000, flush_policy=FlushPolicy.ASYNC)
    for life in range(3):
        async with running(filesystem) as store:
            log = await open_orders(store, config, 2 * life)
            for number in range(8):
                await log.append(records(1100, seed * life + number), acks=-1).wait()
            await trio.sleep(1)
            file = filesystem.open(BATCHES)
            file.fdatasync()
            filesystem.sync_dir("/data")
            filesystem.sync_dir("/data/index")
        filesystem.crash(random.Random(seed + life))
        async with running(filesystem) as store:
            log = await open_orders(store, config, 2 * life + 1)
            indexed_to = [read_offset(value) for _, value in stored(filesystem, b"i" + KEY)]
            assert indexed_to <= [log.high_watermark]
            await trio.sleep(1)
            check_index_equals_walk(filesystem, with_last_summary=False)
        filesystem.crash()


async def test_index_entries_of_a_killed_process_are_durable_after_the_next_start() -> None:
    """Otherwise a power cut after new appends could lose the deletion of old entries, which would count for the new
    batches."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await trio.sleep(1)
    filesystem.sync_dir("/data")
    filesystem.sync_dir("/data/index")
    filesystem.end_process()
    async with running(filesystem):
        pass
    filesystem.crash()
    assert len(stored(filesystem, b"e" + KEY)) == 1


@pytest.mark.parametrize("how", ["lost", "corrupt", "another format", "unreadable"])
async def test_a_lost_or_broken_index_is_rebuilt_and_only_a_broken_index_is_logged(how: str) -> None:
    filesystem, reports = SimulatedFileSystem(), list[str]()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        for number in range(20):
            await log.append(records(200, number), acks=-1).wait()
            await trio.sleep(0.5)
        await store.close()
    if how == "lost":
        filesystem.unlink(BATCHES)
    elif how == "corrupt":
        filesystem.damage(BATCHES, 30, b"\xff\xff")
    elif how == "another format":
        SimulatedIndexStore(filesystem, "/data/index").write([(FORMAT_KEY, b"2")])
    else:
        filesystem.faults.append(Fault("read", errno.EIO, "batches"))
    async with running(filesystem, problems=reports) as store:
        log = await open_orders(store, ROLLING, 1)
        assert len(await read_all(log)) == 4000
        await trio.sleep(1)
        check_index_equals_walk(filesystem, with_last_summary=False)
        await store.close()
    check_index_equals_walk(filesystem, with_last_summary=True)
    assert len(reports) == (how != "lost")


async def test_an_index_that_refuses_a_write_is_replaced_while_appends_go_on() -> None:
    filesystem, reports = SimulatedFileSystem(), list[str]()
    async with running(filesystem, problems=reports) as store:
        log = await open_orders(store, ROLLING)
        await log.append(records(200, 1), acks=-1).wait()
        filesystem.faults.append(Fault("write", errno.EIO, "batches"))
        for number in range(20):
            await log.append(records(200, number), acks=-1).wait()
            await trio.sleep(1)
        assert len(reports) == 1
        assert len(await read_all(log)) == 4200
        await store.close()
    summaries = stored(filesystem, b"s" + KEY)
    assert len(summaries) == len([name for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log")])


async def test_a_disk_that_takes_no_index_at_all_leaves_a_broker_without_one() -> None:
    filesystem, reports = SimulatedFileSystem(), list[str]()
    filesystem.faults.append(Fault("write", errno.EIO, "batches", is_lasting=True))
    async with running(filesystem, problems=reports) as store:
        log = await open_orders(store, ROLLING)
        for number in range(20):
            await log.append(records(200, number), acks=-1).wait()
        assert len(await read_all(log)) == 4000
        await store.close()
    assert "until the next start" in reports[-1]


async def test_a_deleted_partition_leaves_nothing_in_the_index() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"a")
        await store.delete_partition(ORDERS)
        await store.close()
    for kind in (b"e", b"i", b"s"):
        assert stored(filesystem, kind + KEY) == []


async def test_the_index_of_a_topic_deleted_while_the_broker_was_down_goes_with_it() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await store.close()
    async with running(filesystem) as store:
        await store.strays.apply_fates(fates(lambda *_: False))
        for kind in (b"e", b"i", b"s"):
            assert stored(filesystem, kind + KEY) == []


class Counting(SimulatedIndexStore):
    """A simulated index that records its writes."""

    def __init__(self) -> None:
        super().__init__(SimulatedFileSystem(), "/index")
        self.written: list[tuple[list[bytes], list[bytes]]] = []

    def write(self, puts: Sequence[KeyValue], deletes: Sequence[bytes] = (), *, sync: bool = False) -> None:
        self.written.append(([key for key, _ in puts], list(deletes)))
        super().write(puts, deletes, sync=sync)

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> list[KeyValue]:
        assert limit == jobs.PORTION
        return super().scan(start, stop, limit)


KEYS_TO_KEY = KEYS_TO + KEY
START = LogPosition(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("delete", "first", "last"),
    [
        (lambda store: jobs.delete(store, [segment_key(KEYS, KEY, 0)]), [], []),
        (lambda store: jobs.delete_partitions(store, {KEY}), [], []),
        (lambda store: jobs.give_up(store, KEY, [0]), [KEYS_TO_KEY], [FORMAT_KEY]),
        (lambda store: jobs.truncate(store, {KEY: START}, sync=True), [], [INDEXED_TO + KEY, KEYS_TO_KEY]),
    ],
    ids=["segments", "partitions", "replaced", "cut"],
)
def test_the_keys_of_a_segment_are_deleted_a_portion_at_a_time(
    monkeypatch: pytest.MonkeyPatch, delete: Callable[[Counting], None], first: list[bytes], last: list[bytes]
) -> None:
    """The offset that covers the keys is lowered first; the offset that requests the deletion is written last."""
    monkeypatch.setattr(jobs, "PORTION", 10)
    store = Counting()
    places = [(0, bytes(8), offset, offset) for offset in range(25)]
    store.write([*(key_pair(KEY, *place) for place in places), keys_to_pair(KEY, 25)])
    store.written.clear()
    delete(store)
    assert SimulatedIndexStore.scan(store, KEYS, following(KEYS)) == []
    assert [len(deleted) for _, deleted in store.written if len(deleted) > 1] == [10, 10, 5]
    assert (store.written[0][0], store.written[-1][0]) == (first, last)
