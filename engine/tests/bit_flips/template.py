"""A data directory on the real disk, with all kinds of files, and the records that a broker has to serve from it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import trio

from engine.api import PartitionLog, TopicIdPartition
from engine.batches.batch import Record, build_batch, parse_header
from engine.files.filesystem import PosixFileSystem
from engine.log_config import LogConfig
from testkit.logs import NOW_MS, bytes_of, options, read, running

CONFIG = LogConfig(segment_size_bytes=2500, file_delete_delay_ms=1000)
SLOT_SIZE_BYTES = 5 * 4096
PARTITIONS = 3
PRODUCER_ID = 7
LIVES = 3


@dataclass(frozen=True)
class StoredBatch:
    """A batch as it is stored in the log, and as it was sent."""

    base_offset: int
    stored: bytes
    sent: bytes
    timestamps_ms: tuple[int, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps_ms)


@dataclass
class Expected:
    """The expected content of a partition."""

    partition: TopicIdPartition
    start: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    sequence: int = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def visible(self) -> list[StoredBatch]:
        return [batch for batch in self.batches if batch.next_offset > self.start]


@dataclass
class Template:
    """A directory to be copied. `is_clean`: its broker was stopped, not killed."""

    directory: Path
    is_clean: bool
    partitions: list[Expected]

    def files(self) -> Iterator[Path]:
        """The files that are not empty, relative to the directory, without the logs of LevelDB."""
        for path in sorted(self.directory.rglob("*")):
            if path.is_file() and path.stat().st_size and not path.name.startswith("LOG"):
                yield path.relative_to(self.directory)


async def make_template(directory: Path, *, is_clean: bool, seed: int) -> Template:
    """Run a broker several times and copy its directory. `is_clean`: the last run ends with a stop, else with a kill,
    after which the page cache is still there."""
    rng = Random(seed)
    working = directory / "working"
    partitions = [
        Expected(TopicIdPartition(bytes([number + 1] * 16), f"topic{number}", number)) for number in range(PARTITIONS)
    ]
    filesystem = PosixFileSystem()
    store_options = options(str(working), journal_slot_size_bytes=SLOT_SIZE_BYTES)
    for life in range(LIVES):
        is_last = life == LIVES - 1
        async with running(filesystem, store_options) as store:
            logs = [await store.open_partition(one.partition, CONFIG, life) for one in partitions]
            for step in range(30):
                number = rng.randrange(PARTITIONS)
                await _append(logs[number], partitions[number], rng)
                if step == 15:
                    await trio.sleep(62)
            if life == 1:
                partitions[0].start = await logs[0].delete_records(partitions[0].end_offset // 2)
            await trio.sleep(2.5)
            await _append(logs[1], partitions[1], rng)
            if is_clean or not is_last:
                await store.close()
            else:
                shutil.copytree(working, directory / "template")
    if is_clean:
        shutil.copytree(working, directory / "template")
    return Template(directory / "template", is_clean, partitions)


async def _append(log: PartitionLog, expected: Expected, rng: Random) -> None:
    times = tuple(NOW_MS + rng.randrange(1000) for _ in range(rng.choice((1, 2, 5))))
    is_idempotent = rng.random() < 0.5
    producer = (PRODUCER_ID, 0, expected.sequence) if is_idempotent else (-1, -1, -1)
    sent = build_batch([Record(None, rng.randbytes(rng.choice((10, 200))), time) for time in times], producer=producer)
    result = await log.append(memoryview(bytearray(sent)), acks=-1).wait()
    if is_idempotent:
        expected.sequence += len(times)
    stored = bytes_of((await read(log, result.base_offset, 1)).records)
    assert parse_header(stored).base_offset == expected.end_offset
    expected.batches.append(StoredBatch(result.base_offset, stored, bytes(sent), times))
