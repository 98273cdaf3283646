"""The interface of object stores, small enough for a directory. Only values have behaviour here.

`tiering.stores` has the implementations. Every method may be cancelled; its effect may happen nevertheless.
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
    """An object store has not done what it was asked for."""


class ObjectMissing(StoreError):
    """The object does not exist."""


class ObjectExists(StoreError):
    """The object exists already, but was to be absent."""


class StoreUnavailable(StoreError):
    """The request may or may not have taken effect: try again later."""


class StoreRefused(StoreError):
    """An operator has to act: no such bucket, wrong credentials, a wrong clock."""


class ContentUnreadable(StoreError):
    """The content to put cannot be read, or has changed."""


class ObjectInfo(NamedTuple):
    """The description of an object; `crc32c` only from `head`, if the store has it."""

    key: str
    size_bytes: int
    modified_ms: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of an object to put: bytes and ranges of files, with its CRC-32C.

    The files must stay until they are sent. A store with its own threads takes the content in evenly over `spread_s`
    seconds, if it can.
    """

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
        """All bytes, again at each call; may wait for a disk. Raises ContentUnreadable."""
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
    """Bytes of an object in a file, which do not change while this is referenced."""

    file: File
    position: int
    size_bytes: int

    def __len__(self) -> int:
        return self.size_bytes


class Workers(Protocol):
    """Threads for blocking work."""

    async def run(self, job: Callable[[], T]) -> T: ...


class ObjectStore(Protocol):
    """An object store. Keys are relative paths of letters, digits and `-_.`; all methods raise StoreUnavailable and
    StoreRefused."""

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        """Put an object durably, as a whole or not at all. Raises ObjectExists, ContentUnreadable."""

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Bytes of an object; fewer only at its end. Raises ObjectMissing."""

    async def get_part(self, key: str, start: int, size_bytes: int) -> bytes | bytearray | FilePart:
        """Bytes of an object as `get`, or their place, if the objects of the store are files. Raises ObjectMissing."""

    async def head(self, key: str) -> ObjectInfo | None:
        """The description of an object, with its CRC if the store has it; None without an object."""

    async def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        """Objects whose key begins with `prefix` and is greater than `after`, ascending by UTF-8.

        Fewer than `count_max` (1,000 at most) mean that there are no more. The listing may lag behind.
        """

    def close(self) -> None:
        """Stop all use, and end the waits of threads for replies."""
