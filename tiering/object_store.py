"""What is asked of an object store: little enough that a directory can be one. No behaviour but that of values.

`tiering.stores` has the back ends. Every method may be cancelled, and what it was to do may happen nevertheless.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from crc32c import crc32c

from engine.api import FileRange
from engine.tier import File

T = TypeVar("T")

SLICE_BYTES = 256 * 1024
LIST_MAX = 1000


class StoreError(Exception):
    """What an object store did not do."""


class ObjectMissing(StoreError):
    """There is no such object."""


class ObjectExists(StoreError):
    """There is one already, and there was to be none."""


class StoreUnavailable(StoreError):
    """It may or may not have been done: try again, later."""


class StoreRefused(StoreError):
    """Somebody has to do something: no such bucket, wrong credentials, a clock that is wrong."""


class ContentUnreadable(StoreError):
    """What was to be put cannot be read, or is not (any more) what it should be."""


class ObjectInfo(NamedTuple):
    """What there is to say of an object; `crc32c` only when one was asked for and the store can tell."""

    key: str
    size_bytes: int
    modified_ms: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """What an object is to hold: bytes, and parts of files that stay there until they are sent; with its CRC-32C. A
    store with threads of its own takes it in evenly over `spread_s`, if it can."""

    parts: tuple[bytes | FileRange, ...]
    crc32c: int
    spread_s: float = 0.0

    @classmethod
    def of(cls, data: bytes) -> "Content":
        return cls((data,), crc32c(data))

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.parts))

    def slices(self) -> Iterator[bytes]:
        """All of it, once more with each call; for a thread that may wait for a disk. ContentUnreadable."""
        checksum = 0
        for part in self.parts:
            for data in (part,) if isinstance(part, bytes) else _slices(part):
                checksum = crc32c(data, checksum)
                yield data
        if checksum != self.crc32c:
            raise ContentUnreadable("it has another CRC than before")


def _slices(part: FileRange) -> Iterator[bytes]:
    position, end = part.position, part.position + part.size_bytes
    while position < end:
        try:
            data = part.file.read_at(position, min(SLICE_BYTES, end - position))
        except OSError as error:
            raise ContentUnreadable(str(error)) from error
        if not data:
            raise ContentUnreadable(f"it ends at {position}, not at {end}")
        position += len(data)
        yield data


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of an object in a file, which stay what they are as long as somebody has this."""

    file: File
    position: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class Workers(Protocol):
    """Threads that may wait."""

    async def run(self, job: Callable[[], T]) -> T: ...


class ObjectStore(Protocol):
    """Keys are relative paths of letters, digits and `-_.`; all methods raise StoreUnavailable and StoreRefused."""

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        """Durably, and all of it or nothing. Raises ObjectExists, ContentUnreadable."""

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Fewer bytes only at the object's end. Raises ObjectMissing."""

    async def get_part(self, key: str, start: int, size_bytes: int) -> bytes | bytearray | FilePart:
        """As `get`; a store whose objects are files tells where it is instead. Raises ObjectMissing."""

    async def head(self, key: str) -> ObjectInfo | None:
        """With its CRC, as the store keeps or makes it; None: there is no such object."""

    async def delete(self, key: str) -> None:
        """Whether or not it is there."""

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        """Objects whose key begins with `prefix` and is greater than `after`, ascending by UTF-8; fewer than
        `count_max` (1,000 at most): there are no more. It may lag behind."""

    def close(self) -> None:
        """It is asked for nothing any more; whoever waits for a reply, on some thread, waits no longer."""
