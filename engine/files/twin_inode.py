"""Files and directories of the twin in memory: what programs see, what the disk has, and what lies between."""

from collections.abc import Iterator

from engine.files.twin_loss import Loss, Operation


class Inode:
    """A file: what programs see, what the disk has, and the changes in between."""

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Operation] = []
        self.synced = 0  # changes that are durable, or lost
        self.lost_writes = 0  # times that the system could not write back
        self.loss_errno = 0
        self.is_loss_told = True  # to somebody
        self.cold = range(0)  # the part that is not in memory
        self.allocated_bytes = 0
        self.modified_ms = 0

    def change(self, operation: Operation) -> None:
        self.unsynced.append(operation)
        operation.apply_to(self.content)
        if operation.kind == "truncate":
            self.allocated_bytes = 0

    @property
    def changes(self) -> int:
        return self.synced + len(self.unsynced)

    def sync(self, changes: int) -> None:
        """The first so many are durable."""
        for operation in self._taken_off(changes):
            operation.apply_to(self.durable)

    def fail_sync(self, errno: int) -> None:
        """What was not synced never will be: programs still see it. Each descriptor is told of it once."""
        self._taken_off(self.changes)
        self.lost_writes += 1
        self.loss_errno = errno
        self.is_loss_told = False

    def _taken_off(self, changes: int) -> list[Operation]:
        count = max(0, changes - self.synced)
        taken, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        self.synced += count
        return taken

    def forget(self) -> None:
        """The page cache is dropped; the size stays, and what never reached the disk reads as zeros."""
        self.content = self.durable[: len(self.content)].ljust(len(self.content), b"\0")

    def crash(self, loss: Loss) -> None:
        """The power is cut: what the system was yet to tell of a loss is gone with it."""
        self.is_loss_told = True
        for operation in loss.survivors(self.unsynced):
            operation.apply_to(self.durable)
        self._taken_off(self.changes)
        self.content = bytearray(self.durable)


class Directory:
    """Names as programs see them and as the disk has them."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}

    def size_bytes(self) -> int:
        return sum(
            entry.size_bytes() if isinstance(entry, Directory) else max(len(entry.content), entry.allocated_bytes)
            for entry in self.entries.values()
        )

    def crash(self, loss: Loss) -> None:
        if not loss.keeps_names(self.entries != self.durable):
            self.entries = dict(self.durable)
        self.durable = dict(self.entries)
        for entry in self.entries.values():
            entry.crash(loss)


def files_below(path: str, directory: Directory) -> Iterator[tuple[str, bytes]]:
    for name, entry in directory.entries.items():
        if isinstance(entry, Directory):
            yield from files_below(f"{path}/{name}", entry)
        else:
            yield f"{path}/{name}", bytes(entry.content)
