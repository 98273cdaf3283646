"""Offsets by key equal those of a full scan, with any part indexed, truncated, lost or wrong."""

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import PartitionLog
from engine.batches.batch import Codec, Record, build_batch, seal_batch
from engine.errors import CorruptMessage, UnknownPartition
from engine.index import keys
from engine.index.keys import hash_of
from engine.index.rows import KEY, KEYS_TO, following, partition_key, read_offset
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.recovery.loading import Part
from engine.logs.segments.position import LogPosition
from engine.logs.segments.segment import Segment
from engine.reading import key_indexer as key_index
from engine.reading import search
from engine.reading.reader import LogReader
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.testing.simulated_index import SimulatedIndexStore
from testkit.logs import ORDERS, HeldPool, compressed_batch, offsets_for_key, open_orders, options, running

CONFIG = LogConfig(segment_size_bytes=400, index_keys=True)
PARTITION = partition_key(ORDERS.topic_id, ORDERS.partition)
MANY = 1000


def records(*names: int | None) -> list[Record]:
    return [Record(None if name is None else b"%d" % name, b"v") for name in names]


async def append(log: PartitionLog, *names: int | None, is_compressed: bool = False) -> None:
    batch = compressed_batch(Codec.GZIP, records(*names)) if is_compressed else build_batch(records(*names))
    await log.append(memoryview(batch), acks=-1).wait()


async def check(log: PartitionLog, model: list[int | None]) -> None:
    for name in range(6):
        expected = [offset for offset, one in enumerate(model) if one == name]
        assert await offsets_for_key(log, b"%d" % name, MANY) == expected
        assert await offsets_for_key(log, b"%d" % name, 2) == expected[:2]


names = st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, st.booleans()),
        st.tuples(st.sampled_from(["restart", "kill", "forget", "truncate", "without"]), st.just([]), st.just(False)),
    ),
    max_size=25,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SLICE_BYTES", 150)
    monkeypatch.setattr(key_index, "TAIL_BYTES", 100)
    monkeypatch.setattr(search, "STEP_BYTES", 150)
    monkeypatch.setattr(search, "PLACES_MAX", 2)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_offsets_by_key_equal_a_full_scan(script: list[tuple[str, list[int | None], bool]]) -> None:
    async def run() -> None:
        filesystem, model, epoch, remaining = SimulatedFileSystem(), list[int | None](), 0, list(script)
        config = CONFIG
        while remaining:
            async with running(filesystem) as store:
                log = await open_orders(store, config, epoch)
                epoch += 1
                while remaining:
                    kind, appended, is_compressed = remaining.pop(0)
                    if kind == "append":
                        await append(log, *appended, is_compressed=is_compressed)
                        model += appended
                        continue
                    await check(log, model)
                    await trio.sleep(1)
                    await check(log, model)
                    if kind == "truncate" and model:
                        await store.truncate_partition(ORDERS, len(model) // 2, below_sealed=True)
                        del model[log.log_end_offset :]
                    if kind in ("restart", "forget"):
                        await store.close()
                    if kind == "without":
                        config = dataclasses.replace(config, index_keys=not config.index_keys)
                    if kind != "truncate":
                        break
                await check(log, model) if kind in ("append", "truncate") else None
            if kind == "forget":
                filesystem.unlink("/data/index/batches")

    clock: Callable[[], trio.abc.Clock] = partial(trio.testing.MockClock, autojump_threshold=0)
    trio.run(run, clock=clock())


async def test_all_is_covered_but_a_tail_of_the_active_segment() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG)
        for number in range(30):
            await append(log, number % 3, None)
            await trio.sleep(1)
        index = SimulatedIndexStore(filesystem, "/data/index")
        covered_to = read_offset(index.get(KEYS_TO + PARTITION) or b"")
        active = max(name for name in filesystem.list_dir("/data/orders-0") if name.endswith(".log"))
        assert int(active.removesuffix(".log")) < covered_to < 60
        assert len(index.scan(KEY, following(KEY))) == covered_to // 2


async def test_keys_of_records_lost_in_a_crash_are_forgotten() -> None:
    filesystem = SimulatedFileSystem()
    config = dataclasses.replace(CONFIG, flush_policy=FlushPolicy.ASYNC, segment_size_bytes=10_000)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        for _ in range(10):
            await append(log, 1)
        await trio.sleep(1)
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, config, 1)
        assert log.high_watermark < 10
        model: list[int | None] = [*[1] * log.high_watermark, *[2] * 10]
        for _ in range(10):
            await append(log, 2)
            await check(log, model[: log.high_watermark])


async def test_keys_collected_before_a_truncation_are_not_stored_after_it() -> None:
    pool = HeldPool()
    async with running(SimulatedFileSystem(), dataclasses.replace(options(), reader_workers=2), pool=pool) as store:
        log = await open_orders(store, dataclasses.replace(CONFIG, segment_size_bytes=10_000))
        for _ in range(10):
            await append(log, 1)
        async with trio.open_nursery() as nursery:
            pool.is_holding = True
            nursery.start_soon(partial(store.truncate_partition, ORDERS, 2, below_sealed=True))
            await trio.sleep(1)
            pool.is_holding = False
            pool.release.set()
        for _ in range(10):
            await append(log, 2)
        await trio.sleep(1)
        await check(log, [*[1] * 2, *[2] * 10])


async def test_keys_with_the_same_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "hash_of", lambda key: bytes(8))
    monkeypatch.setattr(search, "hash_of", lambda key: bytes(8))
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, CONFIG)
        model = [number % 3 for number in range(30)]
        for name in model:
            await append(log, name)
        await trio.sleep(1)
        await check(log, list(model))


async def test_places_that_are_wrong_are_not_believed() -> None:
    filesystem, problems = SimulatedFileSystem(), list[str]()
    model = [number % 3 for number in range(30)]
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG)
        for name in model:
            await append(log, name)
        await trio.sleep(1)
        await store.close()
    index = SimulatedIndexStore(filesystem, "/data/index")
    key, value = index.scan(KEY, following(KEY))[0]
    index.write([(key, value[:-1] + b"\x07")])
    async with running(filesystem, problems=problems) as store:
        log = await open_orders(store, CONFIG, 1)
        await check(log, list(model))
        assert len(problems) == 1
        await trio.sleep(1)
        await check(log, list(model))


async def test_a_damaged_batch_is_told_and_not_passed_over() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG)
        for name in range(30):
            await append(log, name % 3)
        filesystem.damage("/data/orders-0/00000000000000000000.log", 68, b"?")
        with pytest.raises(CorruptMessage):
            await offsets_for_key(log, b"0", MANY)


async def test_the_keys_of_a_deleted_partition_are_removed_from_the_index() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, dataclasses.replace(options(), reader_workers=2)) as store:
        log = await open_orders(store, CONFIG)
        for name in range(30):
            await append(log, name % 3)
        await trio.sleep(1)
        await store.delete_partition(ORDERS)
        assert SimulatedIndexStore(filesystem, "/data/index").scan(KEY, following(KEYS_TO)) == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_records_that_lie_are_stepped_over(codec: Codec) -> None:
    """The records were appended before the topic had a key index, without validation."""
    filesystem = SimulatedFileSystem()
    without = dataclasses.replace(CONFIG, index_keys=False)
    async with running(filesystem) as store:
        log = await open_orders(store, without)
        lie = seal_batch(
            b"none of these",
            record_count=1,
            base_offset=0,
            leader_epoch=-1,
            attributes=codec,
            timestamps_ms=(0, 0),
            producer=(-1, -1, -1),
        )
        await log.append(memoryview(lie), acks=-1).wait()
        for _ in range(20):
            await append(log, 1)
        await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, CONFIG, 1)
        await append(log, 1)
        await trio.sleep(1)
        assert await offsets_for_key(log, b"1", MANY) == list(range(1, 22))
        covered_to = SimulatedIndexStore(filesystem, "/data/index").get(KEYS_TO + PARTITION)
        assert read_offset(covered_to or bytes(8)) > 1


def test_a_hash_has_eight_bytes_and_never_changes() -> None:
    assert hash_of(b"key").hex() == "ce7cccadc3a94cf5"


async def test_deletion_of_a_partition_ends_the_collection_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    part_from = LogReader.part_from
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, dataclasses.replace(CONFIG, segment_size_bytes=10_000))

        async def deleted_meanwhile(reader: LogReader, segment: Segment, offset: int, limit: LogPosition) -> Part:
            part = await part_from(reader, segment, offset, limit)
            await store.delete_partition(ORDERS)
            return part

        monkeypatch.setattr(LogReader, "part_from", deleted_meanwhile)
        await append(log, *range(20))
        await trio.sleep(1)
        with pytest.raises(UnknownPartition):
            store.get(ORDERS)
        await append(await open_orders(store, CONFIG), 1)
