"""Files and directories of the simulated disk: the state that programs see, the durable state, and the changes
between."""

from collections.abc import Iterator

from engine.testing.simulated_loss import Loss, Operation


class Inode:
    """A file: its content for programs, its durable content, and the changes between."""

    def __init__(self, number: int, path: str) -> None:
        self.number = number
        self.path = path
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[Operation] = []
        self.synced = 0  # count of changes that are durable, or lost
        self.lost_writes = 0  # count of failed write-backs
        self.loss_errno = 0
        self.is_loss_reported = True  # to at least one sync
        self.cold = range(0)  # the part that is not in the page cache; it is one range
        self.allocated_bytes = 0
        self.modified_ms = 0

    def warm(self, start: int, end: int) -> None:
        """Note that these bytes are in the page cache now. What is cold stays one range: the longer one behind them."""
        cold = self.cold
        if start <= cold.start or end < cold.stop:
            first, last = max(end, cold.start), cold.stop
        else:
            first, last = cold.start, min(start, cold.stop)
        self.cold = range(first, last) if first < last else range(0)

    def change(self, operation: Operation) -> None:
        self.unsynced.append(operation)
        operation.apply_to(self.content)
        if operation.kind == "truncate":
            self.allocated_bytes = 0

    @property
    def changes(self) -> int:
        return self.synced + len(self.unsynced)

    def sync(self, changes: int) -> None:
        """Make the first `changes` changes durable."""
        for operation in self._taken_off(changes):
            operation.apply_to(self.durable)

    def fail_sync(self, errno: int) -> None:
        """Lose the unsynced changes, which programs still see. Each descriptor gets the error once."""
        self._taken_off(self.changes)
        self.lost_writes += 1
        self.loss_errno = errno
        self.is_loss_reported = False

    def _taken_off(self, changes: int) -> list[Operation]:
        count = max(0, changes - self.synced)
        taken, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        self.synced += count
        return taken

    def forget(self) -> None:
        """Drop the page cache: the size stays, and bytes that never reached the disk read as zeros."""
        self.content = self.durable[: len(self.content)].ljust(len(self.content), b"\0")

    def crash(self, loss: Loss) -> None:
        """Cut the power: errors that were not reported yet are gone, too."""
        self.is_loss_reported = True
        for operation in loss.survivors(self.unsynced):
            operation.apply_to(self.durable)
        self._taken_off(self.changes)
        self.content = bytearray(self.durable)


class Directory:
    """A directory: its names for programs, and its durable names."""

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
