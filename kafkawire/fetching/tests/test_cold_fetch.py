"""Fetches of records that only the remote tier has: which requests wait, for how long, and loads without a waiting
fetch."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from engine.api import Isolation, PartitionLog
from engine.errors import StorageError, TierUnreachable
from kafkawire.fetching import cold_loads
from kafkawire.fetching.cold_loads import HELD_S, LOAD_MAX_BYTES, ColdLoads
from kafkawire.messages.fetch import FetchRequest
from testkit.cold_broker import COLD, VALUE_BYTES, WARM, Cold, cold_broker, fetch_request, rows
from testkit.logs import batches_in
from tiering.read import chunks
from tiering.stores.memory import Fault

STORAGE_ERROR, CORRUPT_MESSAGE = 56, 2
HOT, FIRST = (WARM, 0), (COLD, 0)
AWAY = Fault(is_lost=True)


def is_empty(row: Any) -> bool:
    return not row.error_code and not row.records


def has_records(row: Any) -> bool:
    return not row.error_code and len(row.records) > VALUE_BYTES


async def test_a_fetch_with_warm_records_does_not_wait_for_cold_records() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=10))
        began_s = trio.current_time()
        found = await cold.fetch(FIRST, HOT, max_wait_ms=30_000)
        assert trio.current_time() == began_s
        assert is_empty(found[FIRST])
        assert b"warm" in bytes(found[HOT].records)
        await trio.sleep(10.1)
        gets = cold.gets
        assert has_records((await cold.fetch(FIRST, HOT))[FIRST])
        assert cold.gets == gets


async def test_cold_partitions_come_together() -> None:
    count = 20
    async with cold_broker(count) as cold:
        wanted = [(COLD, number) for number in range(count)]
        cold.read_with(Fault(wait_s=1))
        began_s, gets = trio.current_time(), cold.gets
        found = await cold.fetch(*wanted, max_wait_ms=30_000, min_bytes=count * VALUE_BYTES)
        assert trio.current_time() - began_s < 1.5
        assert all(has_records(row) for row in found.values())
        assert cold.gets - gets <= 3 * count  # for each the manifest, a look for a newer one, and the segment


async def test_cold_records_that_load_too_late_are_returned_by_a_later_fetch() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=2))
        began_s = trio.current_time()
        row = (await cold.fetch(FIRST, max_wait_ms=100))[FIRST]
        assert is_empty(row)
        assert row.high_watermark == 2
        assert trio.current_time() - began_s == pytest.approx(0.5)  # remote.fetch.max.wait.ms
        gets = cold.gets
        assert is_empty((await cold.fetch(FIRST, max_wait_ms=900))[FIRST])
        assert trio.current_time() - began_s == pytest.approx(1.4)
        assert has_records((await cold.fetch(FIRST, max_wait_ms=900))[FIRST])
        assert trio.current_time() - began_s == pytest.approx(2)
        assert has_records((await cold.fetch(FIRST, max_wait_ms=900))[FIRST])
        assert cold.gets == gets


@pytest.mark.parametrize("max_wait_ms", [0, 900])
async def test_a_fetch_with_min_bytes_0_waits_for_the_tier_nevertheless(max_wait_ms: int) -> None:
    """A client that is answered at once would ask again and again until a GET is over. Kafka waits too."""
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=0.3))
        began_s = trio.current_time()
        assert has_records((await cold.fetch(FIRST, max_wait_ms=max_wait_ms, min_bytes=0))[FIRST])
        assert trio.current_time() - began_s == pytest.approx(0.3)


async def test_a_long_poll_is_woken_when_its_cold_records_are_loaded() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=2))
        began_s = trio.current_time()
        assert has_records((await cold.fetch(FIRST, max_wait_ms=30_000))[FIRST])
        assert trio.current_time() - began_s == pytest.approx(2)


async def test_a_fetch_past_its_wait_time_returns_the_first_loaded_records() -> None:
    """A request with a large min.bytes returns the first records that come after its time is over."""
    async with cold_broker(2) as cold:
        cold.read_with(Fault(wait_s=0.3), partition=0)
        began_s = trio.current_time()
        found = await cold.fetch(FIRST, max_wait_ms=200, min_bytes=10**8)
        assert has_records(found[FIRST])
        assert trio.current_time() - began_s == pytest.approx(0.3)


async def test_a_load_of_a_disconnected_client_completes_and_serves_a_later_fetch() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=2))
        gone = cold.opened.connect()
        await gone.send(fetch_request(FIRST, max_wait_ms=30_000), version=12)
        await trio.sleep(0.5)
        gets = cold.gets
        await gone.stream.aclose()
        await trio.sleep(2)
        assert has_records((await cold.fetch(FIRST))[FIRST])
        assert cold.gets == gets


async def test_a_session_goes_on_asking() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=2))
        first: Any = await cold.client.call(fetch_request(FIRST, HOT, session_epoch=0), 12)
        assert is_empty(rows(first)[FIRST])
        await trio.sleep(2.1)
        following = FetchRequest(
            topics=[], forgotten_topics_data=[], session_id=first.session_id, session_epoch=1, max_wait_ms=0,
            min_bytes=1, max_bytes=2**31 - 1,
        )  # fmt: skip
        assert has_records(rows(await cold.client.call(following, 12))[FIRST])


async def test_a_store_that_is_away_is_no_error() -> None:
    async with cold_broker() as cold:
        cold.read_with(AWAY)
        began_s = trio.current_time()
        assert is_empty((await cold.fetch(FIRST, max_wait_ms=3000))[FIRST])
        assert trio.current_time() - began_s == pytest.approx(3)  # so that the client does not ask again at once
        assert is_empty((await cold.fetch(FIRST, HOT))[FIRST])
        await cold.append(WARM, 0, b"still here")
        assert b"still here" in bytes((await cold.fetch(HOT, partition_max_bytes=10_000))[HOT].records)
        [log_dir] = await cold.opened.broker.store.describe_log_dirs()
        assert log_dir.is_online
        await trio.sleep(0.1)  # the load that is under way fails
        cold.read_with()
        assert has_records((await cold.fetch(FIRST))[FIRST])


async def test_a_fetch_without_a_cold_segment_index_returns_no_records_and_no_error() -> None:
    async with cold_broker() as cold:
        await trio.sleep(0.3)  # the broker looks the manifest up each second
        log: Any = cold.log()
        log.log.cold.drop_all()  # as after a start without an index
        row = (await cold.fetch(FIRST))[FIRST]
        assert is_empty(row)
        assert row.high_watermark == 2


@pytest.mark.parametrize("fault", [None, Fault(is_flipped=True)])
async def test_an_error_of_one_partition_is_returned_for_that_partition_only(fault: Fault | None) -> None:
    """The error is returned at once, also to a request that waits for other partitions."""
    async with cold_broker(2) as cold:
        if fault is None:
            found = [key for key in cold.deps.objects.objects if "/0/0" in key]
            for key in found:
                del cold.deps.objects.objects[key]
        else:
            cold.read_with(fault, partition=0)
        began_s = trio.current_time()
        reply = await cold.fetch(FIRST, (COLD, 1), max_wait_ms=30_000, min_bytes=10**8)
        assert trio.current_time() == began_s
        assert reply[FIRST].error_code == (STORAGE_ERROR if fault is None else CORRUPT_MESSAGE)
        assert has_records((await cold.fetch((COLD, 1)))[COLD, 1])


async def test_a_load_error_is_returned_also_to_a_fetch_that_warm_records_answer() -> None:
    async with cold_broker(2) as cold:
        cold.read_with(Fault(is_flipped=True, wait_s=1), partition=0)
        assert is_empty((await cold.fetch(FIRST, HOT))[FIRST])
        await trio.sleep(3)
        found = await cold.fetch(FIRST, HOT)
        assert found[FIRST].error_code == CORRUPT_MESSAGE
        assert found[HOT].records
        cold.read_with()
        assert is_empty((await cold.fetch(FIRST, HOT))[FIRST])
        assert has_records((await cold.fetch(FIRST))[FIRST])


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_records_that_lie_in_several_chunks_come_whole(version: int) -> None:
    """Version 4 takes the general path, the others the fast path."""
    async with cold_broker(1, 9, segment_bytes="4000000") as cold:
        found = await cold.fetch(FIRST, version=version, partition_max_bytes=3_000_000)
        records = bytes(found[FIRST].records)
        assert len(records) == 3_000_000
        assert records.count(b"\x03") >= VALUE_BYTES


async def test_more_is_not_loaded_than_there_is_room_for() -> None:
    async with cold_broker(4) as cold:
        wanted = [(COLD, number) for number in range(4)]
        for number in range(4):  # once, for its manifest
            await cold.log(COLD, number).load(0, 1)
        gets = cold.gets
        cold.read_with(Fault(wait_s=1))
        await forget_chunks(cold.opened.broker)
        await cold.fetch(*wanted, max_bytes=VALUE_BYTES, partition_max_bytes=VALUE_BYTES // 2)
        assert cold.gets - gets == 2


async def test_a_load_beyond_the_limit_is_left_to_the_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_loads, "LOADS_MAX", 1)
    async with cold_broker(2) as cold:
        cold.read_with(Fault(wait_s=0.2))
        found = await cold.fetch(FIRST, (COLD, 1), min_bytes=10**8, max_wait_ms=300)
        assert has_records(found[FIRST])
        assert is_empty(found[COLD, 1])
        assert has_records((await cold.fetch((COLD, 1)))[COLD, 1])


@pytest.mark.parametrize("is_patient", [True, False])
async def test_many_readers_of_a_tiny_cache_make_progress(monkeypatch: pytest.MonkeyPatch, is_patient: bool) -> None:
    """Loaded records are not evicted for the next load before they are read, even if their client has to ask again."""
    monkeypatch.setattr(chunks, "KEPT_MIN", 1)
    count = 6
    async with cold_broker(count, cache="0") as cold:
        cold.read_with(Fault(wait_s=0.7 if is_patient else 1.2))
        rounds: dict[int, int] = dict.fromkeys(range(count), 0)

        async def read(number: int) -> None:
            client = cold.opened.connect()
            row = None
            while row is None or is_empty(row):
                rounds[number] += 1
                request = fetch_request((COLD, number), max_wait_ms=100_000 if is_patient else 1000)
                row = rows(await client.call(request, 12))[COLD, number]
            assert has_records(row)

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(read, number)
        assert max(rounds.values()) <= (1 if is_patient else 3 * count)
        broker: Any = cold.opened.broker
        assert broker._tier.cache.statistics.evicted >= count - 1


@pytest.mark.parametrize(("lost", "takes_s", "is_there"), [(2, 0.6, True), (10**6, 30, False)])
async def test_records_evicted_before_they_are_read_are_loaded_again_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch, lost: int, takes_s: float, is_there: bool
) -> None:
    """Records may be evicted early, for example by the kernel. The fetch does not wait until its time is over, and no
    load is repeated for ever."""
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=0.2))
        times = iter(range(10**9))
        monkeypatch.setattr(chunks.Chunk, "is_cached", lambda _self, _start, _size_bytes: next(times) >= lost)
        monkeypatch.setattr(chunks.Chunk, "cached_size", lambda _self, _start, _size_bytes: 0)
        began_s, gets = trio.current_time(), cold.gets
        found = await cold.fetch(FIRST, max_wait_ms=30_000)
        assert trio.current_time() - began_s <= takes_s
        assert has_records(found[FIRST]) is is_there
        assert cold.gets - gets <= 3
        assert cold.opened.broker.metrics.unserved_reads == (not is_there)


@pytest.mark.parametrize("size_mib", [1, 4, 5, 8, 50])
async def test_a_read_larger_than_a_load_makes_progress_though_all_of_it_was_checked_before(size_mib: int) -> None:
    """The kernel drops the pages of the tier's cache. A load brings 4 MiB, and the read is for more."""
    async with cold_broker(1, 35, segment_bytes="12000000") as cold:
        end = local_start(cold)
        assert end > 30
        await read_from_0(cold, end, 1 << 20)
        drop_pages(cold.opened.broker)
        gets = cold.gets
        assert await read_from_0(cold, end, size_mib << 20) <= 36
        drop_pages(cold.opened.broker)
        assert await read_from_0(cold, end, size_mib << 20) <= 36
        assert cold.gets == gets, "all is in the cache of the tier"
        assert cold.opened.broker.metrics.unserved_reads == 0


async def test_reads_whose_pages_are_dropped_at_random_make_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that cannot be served is counted, and logged once a minute."""
    random = Random(1)

    async with cold_broker(1, 35, segment_bytes="12000000") as cold:
        end = local_start(cold)
        await read_from_0(cold, end, 1 << 20)
        drop_pages(cold.opened.broker)
        monkeypatch.setattr(chunks.Chunk, "is_cached", lambda *_: random.random() < 0.2)
        monkeypatch.setattr(chunks.Chunk, "cached_size", lambda _self, _start, size: size * (random.random() < 0.2))
        with capture_logs() as lines:
            assert await read_from_0(cold, end, 8 << 20) < 300
        unserved = cold.opened.broker.metrics.unserved_reads
        assert unserved
        logged = [one for one in lines if one["event"] == "loaded records not in memory"]
        assert 0 < len(logged) <= unserved
        assert {(one["topic"], one["partition"]) for one in logged} == {FIRST}


def local_start(cold: Cold) -> int:
    """The offset below which only the tier has records."""
    log: Any = cold.log()
    return int(log.log.local_start_offset)


async def read_from_0(cold: Cold, end: int, size_bytes: int) -> int:
    """Read the partition up to an offset; returns the number of fetches."""
    offset, count = 0, 0
    while offset < end:
        request = fetch_request(FIRST, partition_max_bytes=size_bytes, max_wait_ms=1000)
        request.topics[0].partitions[0].fetch_offset = offset
        found = batches_in(bytes(rows(await cold.client.call(request, 12))[FIRST].records or b""))
        offset = found[-1][0].next_offset if found else offset
        count += 1
        assert count < 1000
    return count


def drop_pages(broker: Any) -> None:
    """Drop the pages of the tier's cache, as the kernel does when memory is short."""
    for chunk in broker._tier.cache._chunks.values():
        chunk.file._inode.cold = range(chunk.size_bytes)


async def forget_chunks(broker: Any) -> None:
    cache = broker._tier.cache
    for key in {one.key for one in cache._chunks}:
        cache.forget(key)
    await trio.lowlevel.checkpoint()


class SlowLog:
    """A fake log whose loads take a second, and may fail then; loaded records are to be held."""

    def __init__(self, error: Exception | None = None) -> None:
        self.loads: list[tuple[int, int]] = []  # offset, size
        self._error = error

    async def load(self, offset: int, size_bytes: int, _isolation: Isolation) -> object:
        self.loads.append((offset, size_bytes))
        await trio.sleep(1)
        if self._error is not None:
            raise self._error
        return object()


async def test_a_load_keeps_its_cache_room_until_it_is_read_or_expires() -> None:
    slow = SlowLog()
    log: PartitionLog = slow  # type: ignore[assignment]
    async with trio.open_nursery() as nursery:
        loads = ColdLoads(nursery, lambda: 500, cache_size_bytes=2 * LOAD_MAX_BYTES)
        loads_started = []
        for offset in range(4):
            loads_started.append(loads.begin(log, offset, 10**9, Isolation.READ_UNCOMMITTED))
            await trio.testing.wait_all_tasks_blocked()
        first = loads_started[0]
        assert first is not None

        def one() -> None: ...
        def other() -> None: ...

        first.call_when_over(one)
        first.call_when_over(other)
        await trio.sleep(1.1)
        assert slow.loads == [(0, LOAD_MAX_BYTES), (1, LOAD_MAX_BYTES)]
        first.note_read(one)
        await trio.sleep(0.1)
        assert len(slow.loads) == 2
        first.note_read(other)
        await trio.sleep(0.1)
        assert len(slow.loads) == 3
        await trio.sleep(HELD_S - 0.4)
        assert len(slow.loads) == 3
        await trio.sleep(0.3)
        assert len(slow.loads) == 4  # no fetch came for the second


async def test_a_request_that_comes_back_after_its_load_starts_another_load() -> None:
    slow = SlowLog()
    log: PartitionLog = slow  # type: ignore[assignment]
    async with trio.open_nursery() as nursery:
        loads = ColdLoads(nursery, lambda: 500, cache_size_bytes=0)
        loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED)
        await trio.sleep(1.1)
        again = loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED)
        assert again is not None
        await trio.sleep(1.1)
        assert again.is_over
        assert slow.loads == 2 * [(7, 100)]


@pytest.mark.parametrize("error", [None, AssertionError("a bug")])
async def test_requests_for_the_same_records_share_a_load(error: Exception | None) -> None:
    slow = SlowLog(error)
    log: PartitionLog = slow  # type: ignore[assignment]
    called: list[int] = []
    async with trio.open_nursery() as nursery:
        loads = ColdLoads(nursery, lambda: 500, cache_size_bytes=0)
        one, other = (loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED) for _ in range(2))
        assert one is not None
        assert one is other
        one.call_when_over(lambda: called.append(1))

        def leaves() -> None:
            called.append(2)

        one.call_when_over(leaves)
        one.forget(leaves)
        await trio.sleep(1.1)
        assert (one.is_over, one.error, called, len(slow.loads)) == (True, error, [1], 1)
        assert loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED) is not one


@pytest.mark.parametrize(
    ("error", "after_s", "is_reported"),
    [(StorageError("lost"), 1, True), (StorageError("lost"), 100, False), (TierUnreachable("away"), 1, False)],
)
async def test_a_storage_error_waits_a_while_for_the_next_fetch(
    error: Exception, after_s: int, is_reported: bool
) -> None:
    slow = SlowLog(error)
    log: PartitionLog = slow  # type: ignore[assignment]
    async with trio.open_nursery() as nursery:
        loads = ColdLoads(nursery, lambda: 500, cache_size_bytes=0)
        loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED)
        await trio.sleep(1 + after_s)
        for expected in (is_reported, False):  # once
            again = loads.begin(log, 7, 100, Isolation.READ_UNCOMMITTED)
            assert again is not None
            assert again.is_over == expected
