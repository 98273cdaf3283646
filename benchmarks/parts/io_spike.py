"""Where should small writes, fsync and the journal run when the event loop is busy?

One process, one trio loop with a task that burns CPU in small slices (as decoding requests does), one worker thread. A
commit batch writes one batch to each of n partition files and makes them durable. Six ways to split that:

  loop+worker   write on the loop, fdatasync on the worker
  worker        write and fdatasync on the worker
  loop          everything on the loop
  journal       one writev + one fdatasync of a single file on the worker
  loop+aio      write on the loop, fdatasync queued in the kernel (Linux AIO), completion by eventfd: no thread
  journal+aio   writev of a single file on the loop, its fdatasync queued in the kernel

Reported per way: latency of a commit batch, and the stall of the loop: the delay of a slice beyond its burnt CPU. The
decision taken from it: docs/decisions/0003-where-io-runs.md.
"""

import argparse
import ctypes
import itertools
import os
import queue
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import trio

IOV_MAX = 1024
WAYS = ("loop+worker", "worker", "loop", "journal", "loop+aio", "journal+aio")
TOY = ("--seconds", "0.02", "--rounds", "1", "--partitions", "1", "--intervals-s", "0.005")


class DoorHolder(trio.abc.Instrument):
    """Releases the GIL for a moment, at most every `every_s`, while a job is with a worker and the loop is busy.

    Why: a loop that polls more often than the switch interval gives up the GIL at each poll and takes it back before a
    waiting thread has woken. Each time, the switch interval of that thread begins again, so it may starve for seconds.
    """

    def __init__(self, every_s: float) -> None:
        self.jobs = 0
        self._every_s = every_s
        self._last = 0.0

    def job_leaves(self) -> None:
        self.jobs += 1
        self._last = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        if self.jobs and timeout <= 0 and (now := time.perf_counter()) - self._last > self._every_s:
            time.sleep(0.00001)
            self._last = now


class Worker:
    """A thread that runs jobs; each job wakes the loop once."""

    def __init__(self, hold_every_s: float) -> None:
        self._door = DoorHolder(hold_every_s)
        if hold_every_s:
            trio.lowlevel.add_instrument(self._door)
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], trio.Event] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job[0]()
            self._token.run_sync_soon(job[1].set)

    async def run(self, job: Callable[[], None]) -> None:
        done = trio.Event()
        self._jobs.put((job, done))
        self._door.job_leaves()
        await done.wait()
        self._door.jobs -= 1

    def stop(self) -> None:
        self._jobs.put(None)


class KernelQueue:
    """fdatasync through Linux AIO (x86-64 only: this is a spike)."""

    IO_SETUP, IO_DESTROY, IO_GETEVENTS, IO_SUBMIT = 206, 207, 208, 209
    FDSYNC, RESFD = 3, 1
    IOCB = struct.Struct("<QIIHhIQQqQII")
    DEPTH = 1024

    def __init__(self) -> None:
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._blocks = (ctypes.c_char * (self.DEPTH * self.IOCB.size))()
        first = ctypes.addressof(self._blocks)
        self._pointers = (ctypes.c_ulong * self.DEPTH)(*[first + n * self.IOCB.size for n in range(self.DEPTH)])
        self._events = (ctypes.c_char * (self.DEPTH * 32))()
        self._call(self.IO_SETUP, self.DEPTH, ctypes.byref(self._context))

    def _call(self, number: int, *arguments: object) -> int:
        result: int = self._syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    async def fdatasync(self, files: list[int]) -> None:
        for n, file in enumerate(files):
            block = (n, 0, 0, self.FDSYNC, 0, file, 0, 0, 0, 0, self.RESFD, self._eventfd)
            self.IOCB.pack_into(self._blocks, n * self.IOCB.size, *block)
        submitted = 0
        while submitted < len(files):
            submitted += self._call(
                self.IO_SUBMIT,
                self._context,
                ctypes.c_long(len(files) - submitted),
                ctypes.byref(self._pointers, submitted * 8),
            )
        left = len(files)
        while left:
            await trio.lowlevel.wait_readable(self._eventfd)
            left -= os.eventfd_read(self._eventfd)
        done = self._call(
            self.IO_GETEVENTS, self._context, ctypes.c_long(len(files)), ctypes.c_long(self.DEPTH), self._events, None
        )
        assert done == len(files)
        assert all(struct.unpack_from("<q", self._events, n * 32 + 16)[0] == 0 for n in range(done))

    def close(self) -> None:
        self._call(self.IO_DESTROY, self._context)
        os.close(self._eventfd)


@dataclass
class Disk:
    """The partition files and the journal of one run."""

    files: list[int]
    journal: int
    batch: bytes
    position: int = 0
    journal_position: int = 0

    def write(self) -> None:
        for file in self.files:
            os.pwrite(file, self.batch, self.position)
        self.position += len(self.batch)

    def sync(self) -> None:
        for file in self.files:
            os.fdatasync(file)

    def write_and_sync(self) -> None:
        self.write()
        self.sync()

    def append_journal(self) -> None:
        self.write_journal()
        os.fdatasync(self.journal)

    def write_journal(self) -> None:
        for start in range(0, len(self.files), IOV_MAX):
            vector = [self.batch] * min(IOV_MAX, len(self.files) - start)
            self.journal_position += os.pwritev(self.journal, vector, self.journal_position)


@dataclass
class Result:
    rounds_ms: list[float] = field(default_factory=list)
    stalls_ms: list[float] = field(default_factory=list)


def burn(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def keep_busy(slice_s: float, stalls_ms: list[float]) -> None:
    while True:
        started = time.perf_counter()
        burn(slice_s)
        await trio.lowlevel.checkpoint()
        stalls_ms.append((time.perf_counter() - started - slice_s) * 1000)


async def one_round(way: str, disk: Disk, worker: Worker, kernel: KernelQueue) -> None:
    if way == "loop+worker":
        disk.write()
        await worker.run(disk.sync)
    elif way == "worker":
        await worker.run(disk.write_and_sync)
    elif way == "journal":
        await worker.run(disk.append_journal)
    elif way == "loop+aio":
        disk.write()
        await kernel.fdatasync(disk.files)
    elif way == "journal+aio":
        disk.write_journal()
        await kernel.fdatasync([disk.journal])
    else:
        disk.write_and_sync()
        await trio.lowlevel.checkpoint()


async def measure(way: str, disk: Disk, options: argparse.Namespace) -> Result:
    result = Result()
    worker, kernel = Worker(options.let_in_s), KernelQueue()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_busy, options.slice_s, result.stalls_ms)
        until = time.perf_counter() + options.seconds
        while time.perf_counter() < until or len(result.rounds_ms) < options.rounds or not result.stalls_ms:
            started = time.perf_counter()
            await one_round(way, disk, worker, kernel)
            result.rounds_ms.append((time.perf_counter() - started) * 1000)
        nursery.cancel_scope.cancel()
    worker.stop()
    kernel.close()
    return result


def percentile(values: list[float], fraction: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * fraction))]


def run_case(way: str, partitions: int, batch_size_bytes: int, options: argparse.Namespace) -> Result:
    with tempfile.TemporaryDirectory(dir=os.environ.get("SPIKE_DIR")) as directory:
        flags = os.O_RDWR | os.O_CREAT
        files = [os.open(Path(directory, f"{n}.log"), flags, 0o600) for n in range(partitions)]
        journal = os.open(Path(directory, "journal"), flags, 0o600)
        try:
            return trio.run(measure, way, Disk(files, journal, os.urandom(batch_size_bytes)), options)
        finally:
            for file in (*files, journal):
                os.close(file)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each case")
    parser.add_argument("--rounds", type=int, default=3, help="least number of commit batches of each case")
    parser.add_argument("--slice-s", type=float, default=0.0002, help="CPU the loop burns between two polls")
    parser.add_argument("--let-in-s", type=float, default=0.0, help="let workers in that often; 0: never")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--intervals-s", type=float, nargs="+", default=[0.005, 0.0005, 0.00005])
    parser.add_argument("--toy", action="store_true", help=f"shows that it works, no more: {' '.join(TOY)}")
    given = parser.parse_args(arguments)
    return parser.parse_args(TOY, given) if given.toy else given


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    cases = [(1, 1024), (100, 1024), (1000, 1024), (1, 131072), (100, 131072)]
    cases = [case for case in cases if case[0] in options.partitions]
    print("| switch ms | partitions | batch KiB | way | rounds | round p50 ms | p99 ms | loop stall p99 ms | max ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    before_s = sys.getswitchinterval()
    try:
        for interval_s, (partitions, size_bytes), way in itertools.product(options.intervals_s, cases, options.ways):
            sys.setswitchinterval(interval_s)
            result = run_case(way, partitions, size_bytes, options)
            rounds, stalls = result.rounds_ms, result.stalls_ms
            print(
                f"| {interval_s * 1000:g} | {partitions} | {size_bytes // 1024} | {way} | {len(rounds)} "
                f"| {percentile(rounds, 0.5):.2f} | {percentile(rounds, 0.99):.2f} "
                f"| {percentile(stalls, 0.99):.2f} | {max(stalls):.2f} |",
                flush=True,
            )
    finally:
        sys.setswitchinterval(before_s)


if __name__ == "__main__":
    main()
