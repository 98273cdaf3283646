"""How long does the truncation of many logs take, and how much does it slow down appends meanwhile?

One store with real files (`--dir`, on the disk in question): partitions of a MiB each that are truncated by a quarter,
all at once, while one more takes an append of 1 KiB after the other, `acks=all`.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence

import trio

from benchmarks.parts.engine_append import new_store, plain_batch
from engine.api import PartitionLog, TopicIdPartition
from engine.files.io_workers import ThreadPool
from engine.log_config import LogConfig
from engine.store import SegmentStore

TOY = ("--partitions", "8", "--batches", "4")
BATCH_SIZE_BYTES = 16 * 1024
BEFORE_S = 3.0
QUIET_S = 8.0  # so that nothing but the journal is behind


def partition(number: int) -> TopicIdPartition:
    return TopicIdPartition(number.to_bytes(16, "big"), f"bench{number}", 0)


async def fill(store: SegmentStore, partitions: int, batches: int) -> None:
    for number in range(partitions):
        log = await store.open_partition(partition(number), LogConfig(), 0)
        pending = [log.append(memoryview(plain_batch(BATCH_SIZE_BYTES)), acks=-1) for _ in range(batches)]
        for one in pending:
            await one.wait()


async def append_for_ever(log: PartitionLog, latencies_ms: list[float]) -> None:
    while True:
        begun_s = time.perf_counter()
        await log.append(memoryview(plain_batch(1024)), acks=-1).wait()
        latencies_ms.append((time.perf_counter() - begun_s) * 1000)


def p99(latencies_ms: Sequence[float]) -> float:
    return statistics.quantiles(latencies_ms, n=100)[98] if len(latencies_ms) > 1 else 0.0


async def measure(directory: str, partitions: int, batches: int) -> None:
    pool = ThreadPool()
    store = new_store(directory, pool)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await fill(store, partitions, batches)
        other = await store.open_partition(partition(partitions), LogConfig(), 0)
        latencies_ms = list[float]()
        nursery.start_soon(append_for_ever, other, latencies_ms)
        await trio.sleep(QUIET_S)
        latencies_ms.clear()
        await trio.sleep(BEFORE_S)
        before_ms = list(latencies_ms)
        latencies_ms.clear()
        begun_s = time.perf_counter()
        offsets = {partition(number): batches * 3 // 4 for number in range(partitions)}
        errors = await store.truncate_partitions(offsets)
        duration_s = time.perf_counter() - begun_s
        assert not any(errors), errors
        print(
            f"{partitions} partitions, {partitions * batches * BATCH_SIZE_BYTES / 2**20:.0f} MiB: {duration_s:.2f} s; "
            f"appends beside it p50 {statistics.median(latencies_ms):.2f} ms, p99 {p99(latencies_ms):.2f} ms, "
            f"worst {max(latencies_ms):.1f} ms; before p50 {statistics.median(before_ms):.2f} ms, "
            f"p99 {p99(before_ms):.2f} ms, worst {max(before_ms):.1f} ms",
            flush=True,
        )
        nursery.cancel_scope.cancel()
    pool.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to put the log dir (default: the system's temporary dir)")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=64, help="batches of 16 KiB in each partition")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help=f"shows that it works, no more: {' '.join(TOY)}")
    given = parser.parse_args(arguments)
    options = parser.parse_args(TOY, given) if given.toy else given
    for _ in range(1 if given.toy else options.repeats):
        with tempfile.TemporaryDirectory(dir=options.dir) as directory:
            trio.run(measure, f"{directory}/log", options.partitions, options.batches)


if __name__ == "__main__":
    main()
