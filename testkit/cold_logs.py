"""A log with a remote tier, over restarts of its store."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from engine.api import Isolation, OffsetSpec, RecordFilter
from engine.batches.batch import Record, build_batch
from engine.log_config import LogConfig
from engine.log_dirs.local_starts import move_local_start
from engine.logs.producers.snapshot import snapshot_name, snapshot_offsets
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.fake_tier import FakeTier
from testkit.logs import NOW_MS, found, offsets_for_key, open_orders, read_all, running

EVERYTHING = Isolation.READ_UNCOMMITTED

ROLLING = LogConfig(segment_size_bytes=400, index_keys=True)

DIRECTORY = "/data/orders-0"

COUNT = 24


class Broker:
    """A store that is stopped and started on one disk, and its tier."""

    def __init__(self, config: LogConfig = ROLLING) -> None:
        self.filesystem = SimulatedFileSystem()
        self.tier = FakeTier()
        self.config = config
        self.problems: list[str] = []
        self.epoch = 0
        self.store: SegmentStore
        self.log: Partition

    @asynccontextmanager
    async def life(self, *, is_clean: bool = True) -> AsyncIterator[Partition]:
        async with running(self.filesystem, problems=self.problems, tier=self.tier) as self.store:
            opened = await open_orders(self.store, self.config, self.epoch)
            assert isinstance(opened, Partition)
            self.log, self.epoch = opened, self.epoch + 1
            yield opened
            if is_clean:
                await self.store.close()

    async def fill(self, count: int = COUNT, first: int = 0) -> None:
        for number in range(first, first + count):
            record = Record(b"key %d" % (number % 3), b"value %d" % number, NOW_MS + number * 10)
            producer = (7 + number % 2, 0, number // 2)
            batch = build_batch([record], producer=producer)
            assert (await self.log.append(memoryview(batch), acks=-1).wait()).base_offset == number

    async def drop(self, segments: int) -> int:
        """Drop the files of the first `segments` segments that have some; returns the new local start."""
        self.tier.upload(self.filesystem, self.log)
        offset = self.log.log.segments[segments].base_offset
        await move_local_start(self.log.log_dir, self.log, offset)
        return offset

    def lose_index(self) -> None:
        for name in self.filesystem.list_dir("/data/index"):
            self.filesystem.unlink(f"/data/index/{name}")

    def rot_snapshots(self) -> None:
        for offset in snapshot_offsets(self.filesystem, DIRECTORY):
            self.filesystem.open(f"{DIRECTORY}/{snapshot_name(offset)}").write_at([b"rot"], 7)

    def files(self, suffix: str = ".log") -> list[int]:
        return [int(name.split(".")[0]) for name in self.filesystem.list_dir(DIRECTORY) if name.endswith(suffix)]


async def everything_of(log: Partition) -> Sequence[object]:
    """All answers that a client can get from a log."""
    times = [NOW_MS + offset * 10 - 5 for offset in range(COUNT + 2)]
    special = [OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP]
    return [
        await read_all(log),
        [await log.offset_for_timestamp(time, EVERYTHING) for time in (*times, *special)],
        [await offsets_for_key(log, b"key %d" % number) for number in range(4)],
        [one.offset for one in await found(log, RecordFilter(None, NOW_MS + 55, NOW_MS + 105))],
        [log.end_offset_for_epoch(epoch) for epoch in range(3)],
        (log.log_start_offset, log.high_watermark, log.log_end_offset),
    ]


async def lived() -> tuple[Broker, Sequence[object]]:
    """A broker with batches of three epochs, and the answers of the full log."""
    broker = Broker()
    for number in range(3):
        async with broker.life(is_clean=number != 1) as log:
            await broker.fill(COUNT // 3, number * COUNT // 3)
            full = await everything_of(log)
    return broker, full
