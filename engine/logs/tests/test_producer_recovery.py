"""Recovery of producers and transactions: a start knows what the broker knew before, however it stopped."""

import random
from collections.abc import Sequence
from struct import pack

import pytest
import trio
import trio.testing
from crc32c import crc32c

from engine.api import Leadership, Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.compaction.tests.test_cleaner import COMPACT, files, fill, until_compacted
from engine.errors import TransactionCoordinatorFenced
from engine.log_config import LogConfig
from engine.logs.producers import recovery
from engine.logs.producers.snapshot import read_snapshot, snapshot_name
from engine.logs.producers.state import Producer
from engine.logs.producers.walk import produced
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, open_orders, running
from testkit.replicas import following, marker_at, others, stamped

DIRECTORY = "/data/orders-0"
ROLLING = LogConfig(segment_size_bytes=400)
CHECKPOINTED_S = 130  # time from an append until two checkpoints; the second finds everything durable


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
    """More batches than are kept come behind the marker: after a crash the log is read from the marker on."""
    filesystem = SimulatedFileSystem()
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


async def test_the_coordinator_epoch_of_each_of_many_producers_is_recovered_from_the_log() -> None:
    filesystem = SimulatedFileSystem()
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


def where_walks_begin(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Record the offsets at which scans begin, from now on."""
    began = []

    def noted(*args: object) -> object:
        began.append(args[3])
        return produced(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "produced", noted)
    return began


async def test_a_marker_of_long_ago_lets_no_start_read_all_that_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at each roll keeps the coordinator epoch: the scan begins there."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, ROLLING)
        await send(log, [0])
        await end(log, 5)
        await send(log, range(1, 40))
        active = log.log.active.base_offset
        await trio.sleep(CHECKPOINTED_S)
    filesystem.crash()
    began = where_walks_begin(monkeypatch)
    async with running(filesystem) as store:
        assert await is_fenced(await opened(store, epoch=1), 4)
    assert began == [active]


async def test_a_coordinator_epoch_is_recovered_though_the_cleaner_dropped_its_marker() -> None:
    """Compaction keeps all snapshots, and that of the active segment lies behind all segments that it rewrites."""
    filesystem = SimulatedFileSystem()

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
    filesystem = SimulatedFileSystem()
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
    """A snapshot as earlier versions wrote it: without the last marker of producer 7, behind which a batch came."""
    its = pack(">iqq", 1, 7, marker_offset)
    assert its in content
    body = content[6:].replace(its, pack(">i", 0))
    return content[:2] + pack(">I", crc32c(body)) + body


async def test_a_coordinator_epoch_is_recovered_from_a_snapshot_without_the_marker_offset() -> None:
    filesystem = SimulatedFileSystem()
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


def batch_of(producer_id: int, sequence: int, offset: int) -> bytes:
    its = producer_id, 0, sequence
    return stamped(offset, 0, b"value", attributes=TRANSACTIONAL_BIT, producer=its)


def marker_of(producer_id: int, offset: int, outcome: Outcome = Outcome.COMMIT, coordinator_epoch: int = 1) -> bytes:
    return marker_at(offset, 0, Marker(producer_id, 0, coordinator_epoch, outcome))


async def take(follower: Partition, *sent: bytes) -> None:
    await follower.replicate(memoryview(bytearray(b"".join(sent)))).wait()


async def leading(store: SegmentStore, config: LogConfig, epoch: int = 1) -> Partition:
    """Open the partition as leader, with replica 2 in sync."""
    [log] = await store.open_partitions([Leadership(ORDERS, config, epoch, others(1, 2))])
    assert isinstance(log, Partition)
    return log


@pytest.mark.parametrize("config", [ROLLING, LogConfig()])
@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_transaction_ended_above_the_high_watermark_is_not_stable_after_a_restart(
    config: LogConfig, is_clean: bool
) -> None:
    """The transactions become stable only when all replicas in sync have the marker: the next leader might lack it."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, config)
        await take(follower, stamped(0, 0, b"plain"), batch_of(7, 0, 1), batch_of(7, 1, 2), marker_of(7, 3))
        await take(
            follower, batch_of(8, 0, 4), marker_of(8, 5, Outcome.ABORT), *(batch_of(7, n, 4 + n) for n in (2, 3))
        )
        follower.note_leader(2)
        assert (follower.high_watermark, follower.last_stable_offset) == (2, 1)
        await trio.sleep(CHECKPOINTED_S)
        if is_clean:
            await store.close()
    if not is_clean:
        filesystem.crash()
    async with running(filesystem) as store:
        leader = await leading(store, config)
        stable = [(leader.high_watermark, leader.last_stable_offset)]
        for end_offset in range(3, 9):
            leader.progress.note_replica(2, end_offset)
            stable.append((leader.high_watermark, leader.last_stable_offset))
        assert stable == [(2, 1), (3, 1), (4, 4), (5, 4), (6, 6), (7, 6), (8, 6)]
        leader.end_transaction(Marker(7, 0, 1, Outcome.COMMIT))
        await trio.testing.wait_all_tasks_blocked()
        leader.progress.note_replica(2, 9)
        assert leader.last_stable_offset == leader.high_watermark == 9, "nothing is held for ever"
        assert leader.undecided_from == 9


async def test_a_marker_that_a_new_leader_does_not_have_is_cut_and_the_transaction_open_again() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, ROLLING)
        await take(follower, batch_of(7, 0, 0), batch_of(7, 1, 1), marker_of(7, 2), batch_of(7, 2, 3), marker_of(7, 4))
        follower.note_leader(2)
        await trio.sleep(CHECKPOINTED_S)
        await store.close()
    async with running(filesystem) as store:
        follower = await following(store, ROLLING, epoch=1)
        assert (follower.high_watermark, follower.last_stable_offset) == (2, 0)
        await store.truncate_partition(ORDERS, 2)
        assert dict(follower.log.producers.open_transactions) == {7: 0}
        await take(follower, stamped(2, 1, b"of the new leader"))
        follower.note_leader(3)
        assert (follower.high_watermark, follower.last_stable_offset) == (3, 0)
        await take(follower, marker_at(3, 1, Marker(7, 0, 1, Outcome.ABORT)))
        follower.note_leader(4)
        assert follower.last_stable_offset == 4


async def test_a_late_ended_transaction_is_searched_from_its_begin_and_not_from_the_log_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer has gone on since, and no older snapshot is left: the checkpoint tells where to begin."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, LogConfig())
        await take(follower, *(stamped(offset, 0, b"plain") for offset in range(50)))
        await take(follower, batch_of(7, 0, 50), batch_of(7, 1, 51), marker_of(7, 52))
        await take(follower, *(batch_of(7, n, 51 + n) for n in range(2, 10)), marker_of(7, 61))
        await take(follower, *(batch_of(7, n, 52 + n) for n in range(10, 20)), marker_of(7, 72))
        follower.note_leader(51)
        await trio.sleep(CHECKPOINTED_S)
        await store.close()
    began = where_walks_begin(monkeypatch)
    async with running(filesystem) as store:
        leader = await leading(store, LogConfig())
        assert (leader.high_watermark, leader.last_stable_offset) == (51, 50)
        assert began == [73, 51, 50], "from the snapshot; from the high watermark; from the first that is undecided"


class LeaderModel:
    """A random history of batches and markers, and a naive model of the state that follows from it."""

    def __init__(self) -> None:
        self.opened: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []
        self.sequences: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}
        self.end = 0

    def next_batch(self, rng: random.Random) -> bytes:
        producer_id, offset = rng.randrange(5), self.end
        self.end += 1
        if producer_id == 4:
            return stamped(offset, 0, b"plain")
        if producer_id in self.opened and rng.random() < 0.3:
            self.ended.append((self.opened.pop(producer_id), offset))
            self.coordinators[producer_id] = self.coordinators.get(producer_id, 0) + rng.randrange(2)
            outcome = rng.choice(list(Outcome))
            return marker_of(producer_id, offset, outcome, self.coordinators[producer_id])
        self.opened.setdefault(producer_id, offset)
        sequence = self.sequences[producer_id] = self.sequences.get(producer_id, -1) + 1
        return batch_of(producer_id, sequence, offset)

    def stable(self, high_watermark: int) -> int:
        undecided = [first for first, marker in self.ended if marker >= high_watermark]
        return min([high_watermark, *self.opened.values(), *undecided])


@pytest.mark.parametrize("seed", range(25))
async def test_a_start_recovers_the_producers_and_stable_offsets_of_the_log(seed: int) -> None:
    """Sequences, coordinator epochs, and the last stable offset at each high watermark, after any stops."""
    rng, filesystem, model = random.Random(seed), SimulatedFileSystem(), LeaderModel()
    config = rng.choice([ROLLING, LogConfig(segment_size_bytes=1500), LogConfig()])
    for epoch in range(4):
        async with running(filesystem) as store:
            follower = await following(store, config, epoch)
            assert {one: it.last_sequence for one, it in follower.log.producers} == model.sequences
            known_of = {one: it.coordinator_epoch for one, it in follower.log.producers if it.coordinator_epoch >= 0}
            assert known_of == model.coordinators
            for high_watermark in range(follower.high_watermark, rng.randint(follower.high_watermark, model.end) + 1):
                follower.note_leader(high_watermark)
                assert (follower.high_watermark, follower.last_stable_offset) == (
                    high_watermark,
                    model.stable(high_watermark),
                )
            for _ in range(rng.randint(0, 12)):
                await take(follower, *(model.next_batch(rng) for _ in range(rng.randint(1, 4))))
                if rng.random() < 0.3:
                    follower.note_leader(rng.randint(follower.high_watermark, model.end))
                if rng.random() < 0.3:
                    await trio.sleep(CHECKPOINTED_S)
            if rng.random() < 0.5:
                await store.close()
        if rng.random() < 0.7:
            filesystem.crash(rng)
    async with running(filesystem) as store:
        leader = await leading(store, config, 4)
        for high_watermark in range(leader.high_watermark, model.end + 1):
            leader.progress.note_replica(2, high_watermark)
            assert leader.last_stable_offset == model.stable(high_watermark)
