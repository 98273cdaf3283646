"""A search finds the same records as a scan of the whole log, in bounded steps."""

import dataclasses
from contextlib import suppress

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import FoundRecord, PartitionLog, RecordFilter
from engine.batches.batch import HEADER_SIZE_BYTES, Record, RecordHeader, build_batch, parse_header, walk_records
from engine.errors import CorruptMessage, UnknownPartition
from engine.log_config import LogConfig
from engine.reading import search
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, found, open_orders, running

CONFIG = LogConfig(segment_size_bytes=500)
FIRST_MS = NOW_MS - 100_000


async def append(log: PartitionLog, *times: int) -> None:
    """Append a record for each time, with the last digit as its key."""
    records = [Record(b"%d" % (time % 10), b"at %d" % time, FIRST_MS + time) for time in times]
    await log.append(memoryview(build_batch(records)), acks=-1).wait()


times = st.integers(0, 60)
bounds = st.tuples(st.none() | times, st.none() | times)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(times, min_size=1, max_size=5), max_size=20),
    st.lists(st.tuples(bounds, st.none() | st.integers(0, 9), st.sampled_from([1, 3, 1000])), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 40),
)
def test_a_search_equals_a_scan(
    batches: list[list[int]],
    asked: list[tuple[tuple[int | None, int | None], int | None, int]],
    has_key_index: bool,
    start: int,
) -> None:
    async def run() -> None:
        async with running(SimulatedFileSystem()) as store:
            log = await open_orders(store, dataclasses.replace(CONFIG, index_keys=has_key_index))
            for batch in batches:
                await append(log, *batch)
            await trio.sleep(1)
            model = list(enumerate(time for batch in batches for time in batch))
            first = min(start, len(model))
            await log.delete_records(first)
            for (from_time, to_time), key, count in asked:
                wanted = RecordFilter(
                    None if key is None else b"%d" % key,
                    -1 if from_time is None else FIRST_MS + from_time,
                    2**63 - 1 if to_time is None else FIRST_MS + to_time,
                )
                expected = [
                    offset
                    for offset, time in model[first:]
                    if (from_time is None or time >= from_time)
                    and (to_time is None or time < to_time)
                    and (key is None or time % 10 == key)
                ]
                assert [one.offset for one in await found(log, wanted, count)] == expected[:count]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "STEP_BYTES", 150)
        patch.setattr(search, "PLACES_MAX", 2)
        patch.setattr("engine.reading.key_indexer.TAIL_BYTES", 100)
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_found_record_equals_the_produced_record() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        headers = (RecordHeader(b"h", b"1"), RecordHeader(b"h", None))
        batch = build_batch([Record(None, None, FIRST_MS), Record(b"k", b"v", FIRST_MS + 5, headers)])
        await log.append(memoryview(batch), acks=-1).wait()
        assert await found(log, RecordFilter()) == [
            FoundRecord(0, FIRST_MS, False, None, None, ()),
            FoundRecord(1, FIRST_MS + 5, False, b"k", b"v", headers),
        ]


async def test_a_search_step_is_bounded_by_bytes_read_and_records_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STEP_BYTES", 300)
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        for time in range(50):
            await append(log, time)
        step = await log.find_records(RecordFilter(b"no such key"), 0, 10)
        assert step.records == []
        assert 0 < step.next_offset < 10
        step = await log.find_records(RecordFilter(from_ms=FIRST_MS + 49), 0, 10)
        assert 0 < step.next_offset <= 50
        step = await log.find_records(RecordFilter(), 7, 2)
        assert ([one.offset for one in step.records], step.next_offset) == ([7, 8], 9)
        assert (await log.find_records(RecordFilter(), 50, 2)) == ([], 50)


async def test_damage_is_told_and_a_deleted_partition_too() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        for time in range(5):
            await append(log, time)
        filesystem.damage("/data/orders-0/00000000000000000000.log", 68, b"?")
        with pytest.raises(CorruptMessage):
            await log.find_records(RecordFilter(), 0, 10)
        await store.delete_partition(ORDERS)
        with pytest.raises(UnknownPartition):
            await log.find_records(RecordFilter(), 0, 10)


some_bytes = st.binary(max_size=3) | st.sampled_from([b"key", b"\x06key", b"x" * 70, b"y" * 9000])
any_records = st.lists(
    st.builds(
        Record,
        st.none() | some_bytes,
        st.none() | some_bytes,
        st.integers(-1, 2**40),
        st.lists(st.builds(RecordHeader, some_bytes, st.none() | some_bytes), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=50,
)


@given(any_records, some_bytes)
def test_records_with_a_key_are_those_a_walk_finds(records: list[Record], key: bytes) -> None:
    batch = build_batch(records)
    header, body = parse_header(batch), bytes(batch[HEADER_SIZE_BYTES:])
    walked = [record for record in walk_records(header, body) if record.key == key]
    assert list(search._with_key(header, body, key)) == walked


@given(any_records, some_bytes, st.data())
def test_damaged_records_are_told_or_have_the_key(records: list[Record], key: bytes, data: st.DataObject) -> None:
    batch = build_batch(records)
    header, body = parse_header(batch), batch[HEADER_SIZE_BYTES:]
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptMessage):
        assert all(record.key == key for record in search._with_key(header, bytes(body), key))
