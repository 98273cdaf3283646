"""The metadata store of a broker that stands alone: a LevelDB directory. A door to plyvel.

All nodes are also in memory, so reads never wait. A write is one synced WriteBatch on a worker thread; it becomes
visible when it is durable. There is one session, the process: ephemeral nodes are never written. After a failed write
the store refuses every further one: only opening it again shows the content of LevelDB. The format is in
docs/formats/metadata.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import plyvel
import trio

from coordinator.errors import CannotStart
from coordinator.metadata_store.store import ConnectionLost, Node, Operation, SessionLost
from coordinator.metadata_store.tree import NO_SESSION, Effect, EffectKind, NodeTree
from coordinator.metadata_store.tree_reads import TreeReads
from coordinator.metadata_store.wakes import Wakes, touched_by
from coordinator.private_directory import make_private

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

FORMAT_KEY = b"format"
FORMAT = b"1"
SESSION_ID = 1
VERSION_SIZE_BYTES = 8


async def open_embedded(directory: Path, run: Callable[[Callable[[], None]], Awaitable[object]]) -> EmbeddedStore:
    """Opens or creates the store. `run` runs a blocking function: `trio.to_thread.run_sync`, or inline in tests.

    Raises: CannotStart.
    """
    opened: list[tuple[plyvel.DB, NodeTree]] = []
    with trio.CancelScope(shield=True):
        await run(lambda: opened.append(_open(directory)))
    database, tree = opened[0]
    return EmbeddedStore(database, tree, run)


class EmbeddedStore(TreeReads):
    """A `MetadataStore` in one directory, for one process."""

    def __init__(
        self, database: plyvel.DB, tree: NodeTree, run: Callable[[Callable[[], None]], Awaitable[object]]
    ) -> None:
        self._database = database
        self._tree = tree
        self._run = run
        self._writing = trio.Lock()
        self._wakes = Wakes()
        self._closed = False

    @property
    def session(self) -> None:
        """See `MetadataStore`."""
        return None

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See `MetadataStore`. A write that has begun is finished, even if the caller is cancelled."""
        async with self._writing:
            await self._enter()
            effects = self._tree.stage(operations, SESSION_ID)
            with trio.CancelScope(shield=True):
                await self._write(effects)
            self._tree.apply(effects)
        self._wakes.wake(touched_by(effects))

    async def sync(self) -> None:
        """See `MetadataStore`; every read here is the newest already."""
        await self._enter()

    async def renew(self) -> None:
        """See `MetadataStore`: a closed or failed store has to be opened again, by a new process."""
        raise SessionLost

    async def close(self) -> None:
        """See `MetadataStore`."""
        self._fail()
        async with self._writing:
            with trio.CancelScope(shield=True):
                await self._run(self._database.close)

    async def _enter(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise SessionLost

    async def _write(self, effects: Sequence[Effect]) -> None:
        lasting = [effect for effect in effects if effect.session_id == NO_SESSION]
        if not lasting:
            return
        try:
            await self._run(lambda: self._write_batch(lasting))
        except (plyvel.Error, OSError) as error:
            self._fail()
            raise ConnectionLost from error

    def _write_batch(self, effects: Sequence[Effect]) -> None:
        with self._database.write_batch(sync=True) as batch:
            for effect in effects:
                if effect.node is None:
                    batch.delete(effect.path.encode())
                else:
                    batch.put(effect.path.encode(), _encode(effect.node))

    def _fail(self) -> None:
        self._closed = True
        self._wakes.wake_all()


def _encode(node: Node) -> bytes:
    return node.version.to_bytes(VERSION_SIZE_BYTES, "big") + node.value


def _decode(stored: bytes) -> Node:
    return Node(stored[VERSION_SIZE_BYTES:], int.from_bytes(stored[:VERSION_SIZE_BYTES], "big"))


def _open(directory: Path) -> tuple[plyvel.DB, NodeTree]:
    """Opens the database, checks its format and reads all of it."""
    missing = [path for path in directory.parents if not path.exists()]
    try:
        make_private(directory)
        database = plyvel.DB(str(directory), create_if_missing=True, paranoid_checks=True)
    except (plyvel.Error, OSError) as error:
        raise CannotStart(_why_not_opened(directory, str(error))) from error
    try:
        for path in (directory.parent, *(path.parent for path in missing)):
            _sync_directory(path)
        return database, _load(database, directory)
    except BaseException:
        database.close()
        raise


def _why_not_opened(directory: Path, error: str) -> str:
    if f"lock {directory / 'LOCK'}" in error:
        return f"the metadata store {directory} is already in use by another broker"
    return f"the metadata store {directory} cannot be opened: {error}"


def _load(database: plyvel.DB, directory: Path) -> NodeTree:
    tree = NodeTree()
    try:
        # The format key lies behind every path: plyvel's iterator reports a damaged block only if a key follows it.
        found = database.get(FORMAT_KEY, verify_checksums=True)
        if next(database.iterator(include_value=False), None) is None:
            database.put(FORMAT_KEY, FORMAT, sync=True)
        elif found != FORMAT:
            raise CannotStart(
                f"the metadata store {directory} has the format {found!r}; this version knows {FORMAT.decode()} only"
            )
        # In the order of the paths, so a parent comes before its children.
        with database.iterator(start=b"/", stop=b"0", verify_checksums=True) as stored:
            tree.apply([Effect(EffectKind.CREATED, path.decode(), _decode(value)) for path, value in stored])
    except (plyvel.Error, OSError) as error:
        raise CannotStart(f"the metadata store {directory} is damaged: {error}") from error
    return tree


def _sync_directory(directory: Path) -> None:
    """Make a new directory's entry durable: LevelDB syncs only inside its own directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
