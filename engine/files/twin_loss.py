"""What the twin of the disk records, and what a crash takes of it.

No loss here takes what was synced: POSIX promises that. How much more is lost is the test's to say.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Operation(NamedTuple):
    """A change, as recorded; `inode` and `data` where the kind has them."""

    kind: str  # create, write, truncate, fdatasync, make_dir, rename, unlink, remove_dir, sync_dir
    path: str
    inode: int = 0
    position: int = 0
    data: bytes = b""
    target: str = ""

    def apply_to(self, content: bytearray) -> None:
        """To that of its file."""
        if self.kind == "truncate":
            del content[self.position :]
        if len(content) < self.position + len(self.data) or self.kind == "truncate":
            content.extend(bytes(max(0, self.position - len(content))))
        content[self.position : self.position + len(self.data)] = self.data


class Loss(Protocol):
    """What a crash takes; asked file by file and directory by directory, from the root down."""

    def survivors(self, unsynced: Sequence[Operation]) -> Sequence[Operation]:
        """The changes of one file, maybe none, that reached the disk although nobody asked for it."""

    def keeps_names(self, has_unsynced: bool) -> bool: ...


class EverythingUnsynced:
    """No more survives than POSIX promises."""

    def survivors(self, _unsynced: Sequence[Operation]) -> Sequence[Operation]:
        return ()

    def keeps_names(self, _has_unsynced: bool) -> bool:
        return False


@dataclass(frozen=True)
class RandomLoss:
    """As a real disk does it: less than everything."""

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


class MemoryLock:
    """Gone at a crash, as a process's locks are."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)
