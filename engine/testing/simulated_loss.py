"""Recorded changes of the simulated disk, and the losses of a crash.

No loss takes synced changes: POSIX promises those. The test decides how much more is lost.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Operation(NamedTuple):
    """A recorded change. Only some kinds have `inode` and `data`."""

    kind: str  # create, write, truncate, fdatasync, make_dir, rename, unlink, remove_dir, sync_dir
    path: str
    inode: int = 0
    position: int = 0
    data: bytes = b""
    target: str = ""

    def apply_to(self, content: bytearray) -> None:
        """Apply the change to the content of its file."""
        if self.kind == "truncate":
            del content[self.position :]
        if len(content) < self.position + len(self.data) or self.kind == "truncate":
            content.extend(bytes(max(0, self.position - len(content))))
        content[self.position : self.position + len(self.data)] = self.data


class Loss(Protocol):
    """The losses of a crash, file by file and directory by directory, from the root down."""

    def survivors(self, unsynced: Sequence[Operation]) -> Sequence[Operation]:
        """The unsynced changes of one file that reached the disk all the same, maybe none."""

    def keeps_names(self, has_unsynced: bool) -> bool: ...


class EverythingUnsynced:
    """A crash that keeps no more than POSIX promises."""

    def survivors(self, _unsynced: Sequence[Operation]) -> Sequence[Operation]:
        return ()

    def keeps_names(self, _has_unsynced: bool) -> bool:
        return False


@dataclass(frozen=True)
class RandomLoss:
    """A crash that loses a random part of the unsynced changes, as a real disk does."""

    rng: random.Random

    def survivors(self, unsynced: Sequence[Operation]) -> Sequence[Operation]:
        if not unsynced:
            return ()
        if self.rng.random() < 0.3:
            return [operation for operation in unsynced if self.rng.random() < 0.5]
        kept = list(unsynced[: self.rng.randint(0, len(unsynced))])
        if kept and kept[-1].kind == "write" and self.rng.random() < 0.7:
            torn = kept[-1]
            kept[-1] = torn._replace(data=torn.data[: self.rng.randint(0, len(torn.data))])
        return kept

    def keeps_names(self, _has_unsynced: bool) -> bool:
        return self.rng.random() >= 0.5


class SimulatedLock:
    """A lock of the simulated disk; a crash releases it, as those of a process."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)
