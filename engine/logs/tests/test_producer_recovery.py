"""What a start knows of producers and transactions is what the broker knew that ran before, whatever stopped it."""

from collections.abc import Sequence
from struct import pack

import pytest
import trio
from crc32c import crc32c

from engine.api import Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.compaction.tests.test_cleaner import COMPACT, files, fill, until_compacted
from engine.errors import TransactionCoordinatorFenced
from engine.files.twin import MemoryFileSystem
from engine.log_config import LogConfig
from engine.logs import producer_recovery
from engine.logs.producer_snapshot import read_snapshot, snapshot_name
from engine.logs.producer_state import Producer
from engine.logs.producer_walk import produced
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.tests.helpers import NOW_MS, open_orders, running

DIRECTORY = "/data/orders-0"
ROLLING = LogConfig(segment_size_bytes=400)
CHECKPOINTED_S = 130  # from an append on: two of them, of which the second finds all durable


async def opened(store: SegmentStore, config: LogConfig | None = None, epoch: int = 0) -> Partition:
    log = await open_orders(store, config, epoch)
    assert isinstance(log, Partition)
    return log


async def send(log: Partition, sequences: Sequence[int], producer_id: int = 7, key: bytes = b"k") -> None:
    for sequence in sequences:
        its = producer_id, 0, sequence
        batch = build_batch([Record(key, b"value", NOW_MS)], attributes=TRANSACTIONAL_BIT, producer=its)
        await log.append(memoryview(batch), acks=-1).wait()


async def end(log: Partition, coordinator_epoch: int, producer_id: int = 7) -> int:
    marker = Marker(producer_id, 0, coordinator_epoch, Outcome.COMMIT)
    return (await log.end_transaction(marker).wait()).base_offset


async def is_fenced(log: Partition, coordinator_epoch: int, producer_id: int = 7) -> bool:
    try:
        await end(log, coordinator_epoch, producer_id)
    except TransactionCoordinatorFenced:
        return True
    return False


def known(log: Partition, producer_id: int = 7) -> Producer:
    found = log.log.producers.get(producer_id)
    assert found is not None
    return found


@pytest.mark.parametrize("stop", ["clean", "power cut", "both"])
async def test_the_coordinator_of_the_last_marker_is_known_however_long_ago_that_was(stop: str) -> None:
    """Behind it are more batches than are kept: what a crash leaves has to be read from the marker on."""
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await opened(store)
        await send(log, [0])
        await end(log, 5)
        await send(log, range(1, 7))
        before = known(log)
        await trio.sleep(CHECKPOINTED_S)
        if stop != "power cut":
            await store.close()
    filesystem.crash()
    if stop == "both":
        async with running(filesystem) as store:
            log = await opened(store, epoch=1)
            await send(log, range(7, 14))
            before = known(log)
            await trio.sleep(CHECKPOINTED_S)
        filesystem.crash()
    async with running(filesystem) as store:
        log = await opened(store, epoch=2)
        assert known(log) == before
        assert await is_fenced(log, 4)
        assert not await is_fenced(log, 5)


async def test_each_of_many_producers_has_its_coordinator() -> None:
    filesystem = MemoryFileSystem()
    ids = range(20)
    async with running(filesystem) as store:
        log = await opened(store, ROLLING)
        for producer_id in ids:
            await send(log, [0], producer_id)
            await end(log, 100 + producer_id, producer_id)
        for producer_id in ids[::3]:
            await send(log, range(1, 8), producer_id)
        before = list(log.log.producers)
        await trio.sleep(CHECKPOINTED_S)
    filesystem.crash()
    for name in files(filesystem, ".snapshot"):  # as damage may take them: the log alone is left
        filesystem.open(f"{DIRECTORY}/{name}").write_at([b"\xff"], 20)
    async with running(filesystem) as store:
        log = await opened(store, epoch=1)
        assert list(log.log.producers) == before
        assert [await is_fenced(log, 99 + one, one) for one in ids] == [True] * len(ids)


async def test_a_marker_of_long_ago_lets_no_start_read_all_that_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at each roll has its coordinator: what is read begins there."""
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, ROLLING)
        await send(log, [0])
        await end(log, 5)
        await send(log, range(1, 40))
        active = log.log.active.base_offset
        await trio.sleep(CHECKPOINTED_S)
    filesystem.crash()
    began = []

    def noted(*args: object) -> object:
        began.append(args[3])
        return produced(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(producer_recovery, "produced", noted)
    async with running(filesystem) as store:
        assert await is_fenced(await opened(store, epoch=1), 4)
    assert began == [active]


async def test_what_the_cleaner_took_of_a_marker_is_known_still() -> None:
    """No snapshot is lost by compaction, and that of the active segment lies behind all that it touches."""
    filesystem = MemoryFileSystem()

    def now_ms() -> int:
        return NOW_MS + round(trio.current_time() * 1000)

    async with running(filesystem, clock=now_ms) as store:
        log = await opened(store, COMPACT)
        await send(log, [0], key=b"key 0")
        await end(log, 5)
        await send(log, range(1, 7), key=b"key 0")
        await end(log, 5)
        await send(log, [7])
        await end(log, 6)
        await send(log, range(8, 15))
        await end(log, 6)
        marker_offset = known(log).marker_offset
        await send(log, range(15, 22), producer_id=8)
        await end(log, 1, producer_id=8)
        for _ in range(4):
            await fill(log)
            await until_compacted(log)
            await trio.sleep(61)
        assert log.log.compacted_to > marker_offset
        before = list(log.log.producers)
        await trio.sleep(CHECKPOINTED_S)
    filesystem.crash()
    async with running(filesystem, clock=now_ms) as store:
        log = await opened(store, COMPACT, epoch=1)
        assert list(log.log.producers) == before
        assert await is_fenced(log, 5)


async def test_a_marker_below_the_log_start_counts() -> None:
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, ROLLING)
        await send(log, [0])
        marker_offset = await end(log, 5)
        await send(log, range(1, 20))
        await log.delete_records(log.log_end_offset - 1)
        await trio.sleep(CHECKPOINTED_S)
        assert log.log.segments[0].base_offset > marker_offset
    filesystem.crash()
    async with running(filesystem) as store:
        assert await is_fenced(await opened(store, epoch=1), 4)


def as_earlier_versions_wrote_it(content: bytes, marker_offset: int) -> bytes:
    """Where the last marker of producer 7 is, they did not tell if a batch had come since."""
    its = pack(">iqq", 1, 7, marker_offset)
    assert its in content
    body = content[6:].replace(its, pack(">i", 0))
    return content[:2] + pack(">I", crc32c(body)) + body


async def test_where_a_file_of_before_does_not_tell_of_a_marker_it_may_be_anywhere() -> None:
    filesystem = MemoryFileSystem()
    async with running(filesystem) as store:
        log = await opened(store)
        await send(log, [0])
        await end(log, 5)
        await send(log, range(1, 7))
        before, offset = known(log), log.log_end_offset
        await store.close()
    path = f"{DIRECTORY}/{snapshot_name(offset)}"
    earlier = as_earlier_versions_wrote_it(filesystem.content(path), before.marker_offset)
    filesystem.open(path).truncate(0)
    filesystem.open(path).write_at([earlier], 0)
    filesystem.open(path).fdatasync()
    assert read_snapshot(filesystem, DIRECTORY, offset).producers.get(7) == before._replace(marker_offset=0)
    async with running(filesystem) as store:
        log = await opened(store, epoch=1)
        await send(log, range(7, 14))
        await trio.sleep(CHECKPOINTED_S)
    filesystem.crash()
    async with running(filesystem) as store:
        assert await is_fenced(await opened(store, epoch=2), 4)
