"""Cost of an append on the event loop, in microseconds of CPU, without a network: checks, commit batch, result.

The simulated filesystem would measure itself, so files are real (`--dir`, best on tmpfs) and syncs run on the thread
pool. A client keeps 1 to 100 appends going; CPU of the loop's thread is divided by the number of appends. The CRC is
timed apart, because it grows with the bytes and nothing else here does.

Then commit batches, as the dispatcher begins them: a turn's appends to several partitions, held until all are there.
With the log dirs on tmpfs, a sync costs only the work of the loop; two versions of the engine differ by a twentieth or
more if they differ here (`PYTHONPATH` names the other one).
"""

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from random import SystemRandom

import trio
from crc32c import crc32c

from engine.api import Isolation, PartitionLog, PendingAppend, TopicIdPartition
from engine.batches.batch import Record, build_batch
from engine.files.filesystem import PosixFileSystem
from engine.files.io_workers import ThreadPool
from engine.index.store import LevelDbStore
from engine.log_config import FlushPolicy, LogConfig
from engine.options import StoreDeps, StoreOptions
from engine.store import SegmentStore

TOY = ("--count", "20", "--repeats", "1")
PARTITIONS = 50
ROUNDS = [
    (policy, partitions, each) for policy in FlushPolicy for partitions, each in ((1, 1), (20, 1), (1, 5), (4, 5))
]
WARM_UP_ROUNDS = 50


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def complain(message: str) -> None:
    print(message)


def new_store(directory: str, pool: ThreadPool) -> SegmentStore:
    """A store on real files."""
    world = StoreDeps(PosixFileSystem(), LevelDbStore, pool, SystemRandom(), now_ms, complain, complain)
    return SegmentStore(StoreOptions((directory,), "bench", 1), world)


def plain_batch(size_bytes: int) -> bytearray:
    """A batch with one record."""
    return build_batch([Record(None, bytes(size_bytes - 80), now_ms())])


async def measure(directory: str, batch_size_bytes: int, count: int, in_flight: int, acks: int) -> dict[str, float]:
    plain = plain_batch(batch_size_bytes)
    pool = ThreadPool()
    store = new_store(directory, pool)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        log = await store.open_partition(TopicIdPartition(bytes(16), "bench", 0), LogConfig(), 0)
        buffers = [bytearray(plain) for _ in range(in_flight)]
        pending: deque[PendingAppend] = deque()
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        for number in range(count):
            if len(pending) == in_flight:
                await pending.popleft().wait()
            buffer = buffers[number % in_flight]
            buffer[:8] = bytes(8)  # a fresh batch has base offset 0
            pending.append(log.append(memoryview(buffer), acks=acks))
        while pending:
            await pending.popleft().wait()
        cpu_s, wall_s = time.thread_time() - cpu_s, time.perf_counter() - wall_s
        started = time.thread_time()
        for offset in range(0, count, max(1, count // 10_000)):
            log.read(offset, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
        read_s = (time.thread_time() - started) / len(range(0, count, max(1, count // 10_000)))
        started = time.thread_time()
        for _ in range(1000):
            crc32c(plain)
        crc_us = (time.thread_time() - started) * 1000
        await store.close()
    pool.close()
    return {
        "loop_us": cpu_s / count * 1e6,
        "crc_us": crc_us,
        "per_s": count / wall_s,
        "read_us": read_s * 1e6,
    }


async def measure_rounds(directory: str, policy: FlushPolicy, partitions: int, each: int, count: int) -> float:
    """CPU of the loop per append of 1 KiB, in microseconds, in commit batches with `each` appends to each of
    `partitions`."""
    plain = plain_batch(1024)
    pool = ThreadPool()
    store = new_store(directory, pool)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        config = LogConfig(flush_policy=policy)
        names = [TopicIdPartition(b"id of the topic ", "bench", number) for number in range(PARTITIONS)]
        logs = deque[PartitionLog]([await store.open_partition(name, config, 0) for name in names])
        buffers = [bytearray(plain) for _ in range(partitions * each)]
        for rounds in (WARM_UP_ROUNDS, count // len(buffers)):
            cpu_s = time.thread_time()
            for _ in range(rounds):
                await _one_round(store, logs, partitions, buffers)
            cpu_s = time.thread_time() - cpu_s
        await store.close()
    pool.close()
    return cpu_s / (rounds * len(buffers)) * 1e6


async def _one_round(
    store: SegmentStore, logs: deque[PartitionLog], partitions: int, buffers: Sequence[bytearray]
) -> None:
    """Append one commit batch to the first of `logs`, and move these to the end."""
    pending = []
    store.hold_commit_batches()
    for number, buffer in enumerate(buffers):
        buffer[:8] = bytes(8)
        pending.append(logs[number % partitions].append(memoryview(buffer), acks=-1))
    logs.rotate(-partitions)
    store.write_commit_batches()
    for one in pending:
        await one.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to put the log dirs (default: the system's temporary dir)")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help=f"shows that it works, no more: {' '.join(TOY)}")
    given = parser.parse_args(arguments)
    options = parser.parse_args(TOY, given) if given.toy else given
    for size_bytes, in_flight in ((1024, 1), (1024, 5), (1024, 100), (16 * 1024, 5), (128 * 1024, 5)):
        count = min(options.count, (1 << 29) // size_bytes)
        runs = []
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory(dir=options.dir) as directory:
                runs.append(trio.run(measure, f"{directory}/log", size_bytes, count, in_flight, -1))
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        print(
            f"{size_bytes // 1024:4d} KiB, {in_flight:3d} in flight: loop {median['loop_us']:6.1f} us/append "
            f"(CRC alone {median['crc_us']:.1f}), {median['per_s']:8.0f} appends/s, read {median['read_us']:.1f} us",
            flush=True,
        )
    for policy, partitions, each in ROUNDS:
        us = []
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory(dir=options.dir) as directory:
                us.append(
                    trio.run(measure_rounds, f"{directory}/log", policy, partitions, each, max(options.count // 2, 100))
                )
        print(
            f"   rounds, {policy.value}, {each} of 1 KiB to {partitions:2d} partitions: loop {min(us):6.1f} us/append",
            flush=True,
        )


if __name__ == "__main__":
    main()
