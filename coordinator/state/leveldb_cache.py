"""The cache of an internal topic's coordinator state in LevelDB, for faster starts. A door to plyvel.

`LevelDbStateCache` runs one call after the other, off the loop, and never fails: a database that cannot be opened, read
or written, or has unexpected content, is deleted, and the log is read instead. It refuses no start and gives nothing
that it cannot prove. The caller of `load` asks whether the checkpoint fits the log. Format: docs/formats/state-view.md.
"""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING, Final, TypeVar

import plyvel
import structlog
import trio

from coordinator.private_directory import make_private
from coordinator.state.cache import Checkpoint
from coordinator.state.log import StateRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from coordinator.state.cache import PartitionChange

    Run = Callable[[Callable[[], None]], Awaitable[object]]

T = TypeVar("T")

FORMAT_KEY: Final = b"format"  # behind all other keys
FORMAT: Final = b"2"
SLOTS: Final = 1 << 15  # more than there are batches in two write buffers
WRITE_BUFFER_BYTES: Final = 1 << 20
CACHE_BYTES: Final = 1 << 20
OPEN_FILES_MAX: Final = 64
_CHECKPOINT: Final = struct.Struct(">16siqq")

_log = structlog.get_logger(__name__)


class Damaged(Exception):
    """The database can be read, but some of its content is wrong or missing."""


_ERRORS: Final = (plyvel.Error, OSError, struct.error, Damaged)


async def open_state_cache(directory: Path, run: Run) -> LevelDbStateCache:
    """Opens or creates a cache. `run` runs a blocking function: on a worker of its own, or inline in tests."""
    opened: list[_Database | None] = []
    with trio.CancelScope(shield=True):
        await run(lambda: opened.append(_open(directory)))
    return LevelDbStateCache(directory, opened[0], run)


class LevelDbStateCache:
    """A `StateCache` in one directory, for one process. After an error it is empty and takes nothing."""

    def __init__(self, directory: Path, database: _Database | None, run: Run) -> None:
        self._directory = directory
        self._database = database
        self._run = run
        self._turn = trio.Lock()

    async def load(self, partition: int) -> tuple[Checkpoint, Sequence[StateRecord]] | None:
        """See `StateCache`."""
        return await self._in_turn(lambda database: database.load(partition))

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        """See `StateCache`."""
        await self._in_turn(lambda database: database.save(changes))

    async def discard(self, partition: int) -> None:
        """See `StateCache`."""
        await self._in_turn(lambda database: database.discard(partition))

    async def drop(self) -> None:
        """See `StateCache`."""
        await self._in_turn(lambda database: database.delete(self._directory))
        self._database = None

    async def close(self) -> None:
        """See `StateCache`."""
        await self._in_turn(_Database.close)
        self._database = None

    async def _in_turn(self, job: Callable[[_Database], T]) -> T | None:
        outcome: list[T] = []
        with trio.CancelScope(shield=True):
            async with self._turn:
                database = self._database
                if database is None:
                    return None
                try:
                    await self._run(lambda: outcome.append(job(database)))
                except _ERRORS as error:
                    self._database = None
                    _log.error("state cache abandoned", directory=str(self._directory), reason=str(error))
                    await self._run(lambda: database.delete(self._directory))
        return outcome[0] if outcome else None


class _Database:
    """An open database; blocks. After an error, none of its content is to be believed any more."""

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self._database = plyvel.DB(
            str(directory),
            create_if_missing=True,
            paranoid_checks=True,
            write_buffer_size=WRITE_BUFFER_BYTES,
            lru_cache_size=CACHE_BYTES,
            max_open_files=OPEN_FILES_MAX,
        )
        self._number = 0
        try:
            if self._database.get(FORMAT_KEY, verify_checksums=True) is None:
                self._create()
            else:
                self._number = self._last_number()
        except BaseException:
            self._database.close()
            raise

    def _create(self) -> None:
        if next(self._database.iterator(), None) is not None:
            raise Damaged("it is of an unknown format")
        batch = self._database.write_batch()
        batch.put(FORMAT_KEY, FORMAT)
        self._write(batch)

    def _last_number(self) -> int:
        """The number of the last batch. Raises Damaged if an earlier batch is missing."""
        numbers = sorted(int.from_bytes(found.value or b"", "big") for found in self._scan(b"b"))
        if not numbers or numbers != list(range(max(0, numbers[-1] - SLOTS) + 1, numbers[-1] + 1)):
            raise Damaged("a written batch is missing")
        return numbers[-1]

    def load(self, partition: int) -> tuple[Checkpoint, Sequence[StateRecord]] | None:
        """See `StateCache`."""
        found = self._database.get(_checkpoint_key(partition), verify_checksums=True)
        if found is None:
            return None
        return Checkpoint(*_CHECKPOINT.unpack(found)), self._scan(_entry_key(partition))

    def save(self, changes: Sequence[PartitionChange]) -> None:
        """See `StateCache`."""
        batch = self._database.write_batch()
        for change in changes:
            batch.put(_checkpoint_key(change.partition), _CHECKPOINT.pack(*change.checkpoint))
            head = _entry_key(change.partition)
            for key, value in change.values.items():
                if value is None:
                    batch.delete(head + key)
                else:
                    batch.put(head + key, value)
        self._write(batch)

    def discard(self, partition: int) -> None:
        """See `StateCache`."""
        batch = self._database.write_batch()
        batch.delete(_checkpoint_key(partition))
        head = _entry_key(partition)
        for key, _ in self._scan(head):
            batch.delete(head + key)
        self._write(batch)

    def close(self) -> None:
        """See `StateCache`."""
        self._write(self._database.write_batch(sync=True))
        self._database.close()

    def delete(self, directory: Path) -> None:
        """Delete the database, as far as the disk allows."""
        self._database.close()
        shutil.rmtree(directory, ignore_errors=True)

    def _scan(self, prefix: bytes) -> list[StateRecord]:
        """All entries below a prefix, in order, without the prefix in their keys."""
        entries = self._database.prefixed_db(prefix)
        with entries.iterator(verify_checksums=True, fill_cache=False) as found:
            scanned = list(map(StateRecord._make, found))
        # The iterator reports a damaged block only if a key follows it.
        if self._database.get(FORMAT_KEY, verify_checksums=True) != FORMAT:
            raise Damaged("it is of an unknown format")
        return scanned

    def _write(self, batch: plyvel.WriteBatch) -> None:
        self._number += 1
        batch.put(b"b" + (self._number % SLOTS).to_bytes(2, "big"), self._number.to_bytes(8, "big"))
        batch.write()


def _checkpoint_key(partition: int) -> bytes:
    return b"c" + partition.to_bytes(4, "big")


def _entry_key(partition: int) -> bytes:
    return b"e" + partition.to_bytes(4, "big")


def _open(directory: Path) -> _Database | None:
    """The database as it is found, else an empty one, else none."""
    try:
        return _Database(directory)
    except _ERRORS as error:
        where, reason = str(directory), str(error)
    if f"lock {directory / 'LOCK'}" in reason:
        _log.error("state cache locked by another process", directory=where, reason=reason)
        return None
    _log.warning("state cache deleted", directory=where, reason=reason)
    shutil.rmtree(directory, ignore_errors=True)
    try:
        return _Database(directory)
    except _ERRORS as error:
        _log.error("state cache not opened", directory=where, reason=str(error))
        return None
