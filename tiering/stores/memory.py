"""An object store in memory with faults: for tests, and for simulated brokers.

A `Fault` is decided for each request: a request that is lost, or takes effect late; a reply that is lost; flipped or
missing bytes; a listing that lags behind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, cast

import trio
from crc32c import crc32c

from tiering.object_store import (
    LIST_MAX,
    Content,
    FilePart,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from engine.tier import File


class Operation(Enum):
    """The operations of a store."""

    PUT = "put"
    GET = "get"
    HEAD = "head"
    DELETE = "delete"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one request; times are in seconds.

    `late_s`: it takes effect so much later than the caller got its error. `is_stale`, of a listing: it has the state
    before the newest change. `is_torn`, of a put: the object has only its first half, as some servers publish it after
    a broken connection.
    """

    wait_s: float = 0.0
    is_lost: bool = False
    is_reply_lost: bool = False
    is_refused: bool = False
    late_s: float | None = None
    is_short: bool = False
    is_flipped: bool = False
    is_stale: bool = False
    is_torn: bool = False


HEALTHY = Fault()


def never(_operation: Operation, _key: str) -> Fault:
    """The fault function of a store without faults."""
    return HEALTHY


class ObjectFile:
    """Implements `engine.tier.File`, for reads only."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def fileno(self) -> None:
        return None

    def size(self) -> int:
        return len(self._content)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self._content[position : position + size_bytes]

    def read_cached(self, position: int, size_bytes: int) -> bytes:
        return self.read_at(position, size_bytes)

    def is_cached(self, _position: int, _size_bytes: int) -> bool:
        return True

    def cached_size(self, _position: int, size_bytes: int) -> int:
        return size_bytes

    def read_ahead(self, position: int, size_bytes: int) -> None:
        """Do nothing: all is in memory."""


class MemoryStore:
    """Implements `tiering.object_store.ObjectStore`. It outlives its users.

    Late effects run in `nursery`; without it there are none. `has_files`: it behaves as if its objects were files.
    """

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: 0,
        fault: Callable[[Operation, str], Fault] = never,
        nursery: trio.Nursery | None = None,
        *,
        has_files: bool = False,
    ) -> None:
        self.has_files = has_files
        self.objects: dict[str, tuple[bytes, int]] = {}  # with the times of their puts
        self.fault = fault
        self.nursery = nursery
        self.requests: dict[Operation, int] = dict.fromkeys(Operation, 0)
        self._now_ms = now_ms
        self._before: Mapping[str, tuple[bytes, int]] = {}

    async def put(self, key: str, content: Content, *, if_absent: bool = False) -> None:
        data = b"".join(content.slices())

        def effect(fault: Fault) -> None:
            if if_absent and key in self.objects:
                raise ObjectExists(key)
            self._before = dict(self.objects)
            self.objects[key] = data[: len(data) // 2] if fault.is_torn else data, self._now_ms()

        await self._change(Operation.PUT, key, effect)

    async def delete(self, key: str) -> None:
        def effect(_fault: Fault) -> None:
            self._before = dict(self.objects)
            self.objects.pop(key, None)

        await self._change(Operation.DELETE, key, effect)

    async def get(self, key: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        fault = await self._ask(Operation.GET, key)
        if key not in self.objects:
            raise ObjectMissing(key)
        found = self.objects[key][0][start:]
        found = found if size_bytes is None else found[:size_bytes]
        if fault.is_short:
            found = found[: len(found) // 2]
        if fault.is_flipped and found:
            middle = len(found) // 2
            found = found[:middle] + bytes([found[middle] ^ 1]) + found[middle + 1 :]
        return found

    async def get_part(self, key: str, start: int, size_bytes: int) -> bytes | FilePart:
        found = await self.get(key, start, size_bytes)
        if not self.has_files:
            return found
        return FilePart(cast("File", ObjectFile(bytes(start) + found)), start, len(found))

    async def head(self, key: str) -> ObjectInfo | None:
        await self._ask(Operation.HEAD, key)
        if key not in self.objects:
            return None
        data, modified_ms = self.objects[key]
        return ObjectInfo(key, len(data), modified_ms, crc32c(data))

    async def list_after(self, prefix: str, after: str = "", count_max: int = LIST_MAX) -> Sequence[ObjectInfo]:
        fault = await self._ask(Operation.LIST, prefix)
        there = self._before if fault.is_stale else self.objects
        keys = sorted(key for key in there if key.startswith(prefix) and key > after)[: min(count_max, LIST_MAX)]
        return [ObjectInfo(key, len(there[key][0]), there[key][1]) for key in keys]

    def close(self) -> None:
        """Do nothing: no request waits for long."""

    async def _ask(self, operation: Operation, key: str) -> Fault:
        fault = await self._begin(operation, key)
        if fault.is_lost or fault.is_reply_lost:
            raise StoreUnavailable(f"{operation.value} {key}: no reply")
        return fault

    async def _change(self, operation: Operation, key: str, effect: Callable[[Fault], None]) -> None:
        fault = await self._begin(operation, key)
        if fault.is_lost:
            raise StoreUnavailable(f"{operation.value} {key}: it got lost")
        if fault.late_s is not None:
            assert self.nursery is not None
            self.nursery.start_soon(_late, fault, effect)
            raise StoreUnavailable(f"{operation.value} {key}: no reply yet")
        effect(fault)
        if fault.is_reply_lost or fault.is_torn:
            raise StoreUnavailable(f"{operation.value} {key}: no reply")

    async def _begin(self, operation: Operation, key: str) -> Fault:
        self.requests[operation] += 1
        fault = self.fault(operation, key)
        await trio.sleep(fault.wait_s)
        if fault.is_refused:
            raise StoreRefused(f"{operation.value} {key}: 403")
        return fault


async def _late(fault: Fault, effect: Callable[[Fault], None]) -> None:
    await trio.sleep(fault.late_s or 0)
    try:
        effect(fault)
    except ObjectExists:
        return  # its caller has gone
