"""A simulated cache of coordinator state: after a crash, some prefix of the saved changes is left."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

import trio

from coordinator.state.cache import Checkpoint, PartitionChange
from coordinator.state.log import StateRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

UNSYNCED_MAX = 100  # writes that a crash may take; older ones are as good as synced

Contents = dict[int, tuple[Checkpoint, dict[bytes, bytes]]]  # by partition
Write = list[PartitionChange] | int  # changes, or the partition to forget


class SimulatedStateCaches:
    """All caches of a broker's coordinator state, as its disk has them. They outlive the broker. The public attributes
    are levers of a test."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random or Random(0)  # noqa: S311 - a seed, to repeat a run
        self.is_failing = False  # every write fails
        self._answers = trio.Event()
        self._answers.set()
        self.crashes = 0
        self.writes = 0  # of all views
        self._disks: dict[Path, _Disk] = {}

    async def open(self, directory: Path) -> SimulatedStateCache:
        """Open a cache, in place of `coordinator.state.leveldb_cache.open_state_cache`."""
        await trio.lowlevel.checkpoint()
        return SimulatedStateCache(self, self._disks.setdefault(directory, _Disk()))

    def hang(self) -> None:
        """No call returns until `answer`."""
        self._answers = trio.Event()

    def answer(self) -> None:
        """Let the disk answer again."""
        self._answers.set()

    async def answered(self) -> None:
        """Return when the disk answers."""
        await self._answers.wait()

    def crash(self) -> None:
        """The process, or the machine, ends: each cache loses its last writes, from none to all of them."""
        self.crashes += 1
        for disk in self._disks.values():
            disk.crash(self.random.randint(0, len(disk.unsynced)))

    def end_process(self) -> None:
        """`kill -9`: written changes stay, and calls that wait have no effect."""
        self.crashes += 1

    def lose(self) -> None:
        """Lose everything, as the next start finds it."""
        self.crashes += 1
        self._disks.clear()


class _Disk:
    def __init__(self) -> None:
        self.synced: Contents = {}
        self.current: Contents = {}
        self.unsynced: list[Write] = []

    def write(self, write: Write) -> None:
        _apply(self.current, write)
        self.unsynced.append(write)
        if len(self.unsynced) > UNSYNCED_MAX:
            _apply(self.synced, self.unsynced.pop(0))

    def read(self, partition: int) -> tuple[Checkpoint, list[StateRecord]] | None:
        if partition not in self.current:
            return None
        checkpoint, values = self.current[partition]
        return checkpoint, [StateRecord(key, values[key]) for key in sorted(values)]

    def lose(self) -> None:
        self.synced.clear()
        self.crash(0)

    def crash(self, kept: int) -> None:
        for write in self.unsynced[:kept]:
            _apply(self.synced, write)
        self.unsynced.clear()
        self.current = {partition: (at, dict(values)) for partition, (at, values) in self.synced.items()}


def _apply(contents: Contents, write: Write) -> None:
    if isinstance(write, int):
        contents.pop(write, None)
        return
    for change in write:
        _, values = contents.get(change.partition, (None, {}))
        for key, value in change.values.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        contents[change.partition] = (change.checkpoint, values)


class SimulatedStateCache:
    """A `StateCache`."""

    def __init__(self, caches: SimulatedStateCaches, disk: _Disk) -> None:
        self._caches = caches
        self._life = caches.crashes
        self._disk: _Disk | None = disk
        self._turn = trio.Lock()

    async def load(self, partition: int) -> tuple[Checkpoint, Sequence[StateRecord]] | None:
        """See `StateCache`."""
        return await self._in_turn(lambda disk: disk.read(partition))

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        """See `StateCache`."""
        write = [PartitionChange(one.partition, one.checkpoint, dict(one.values)) for one in changes]
        await self._in_turn(lambda disk: self._write(disk, write))

    async def discard(self, partition: int) -> None:
        """See `StateCache`."""
        await self._in_turn(lambda disk: self._write(disk, partition))

    async def drop(self) -> None:
        """See `StateCache`."""
        await self._in_turn(_Disk.lose)
        self._disk = None

    async def close(self) -> None:
        """See `StateCache`."""
        await self._in_turn(lambda disk: disk.crash(len(disk.unsynced)))
        self._disk = None

    def _write(self, disk: _Disk, write: Write) -> None:
        self._caches.writes += 1
        if self._caches.is_failing:
            self._disk = None
            disk.lose()
        else:
            disk.write(write)

    async def _in_turn(self, job: Callable[[_Disk], T]) -> T | None:
        """Run a job after those before. After an error, or once the broker is dead, the cache has nothing and takes
        nothing."""
        outcome: list[T] = []
        with trio.CancelScope(shield=True):
            async with self._turn:
                await self._caches.answered()
                if self._disk is not None and self._life == self._caches.crashes:
                    outcome.append(job(self._disk))
        return outcome[0] if outcome else None
