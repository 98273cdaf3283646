"""The interface of a metadata store: ZooKeeper's model, no more than an ensemble can keep.

A tree of small nodes with versions. All writes are atomic `multi`s (a single change is a multi of one). Reads may be
stale until `sync`. Nodes can live with a session. A read can arm a wake-up, which is set once and says nothing but
"read again". Values are bytes here; `coordinator.metadata.nodes` decodes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.metadata_store.statistics import SessionStatistics

ANY_VERSION = -1
MULTI_OPERATIONS_MAX = 1_024  # a batch of 1,000 partitions and its other nodes
MULTI_SIZE_MAX_BYTES = 512 * 1024  # ZooKeeper's jute.maxbuffer is 1 MiB


class StoreError(Exception):
    """Base of the errors of a store; `path` is the node that the error is about."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(StoreError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(StoreError):
    """A node to create exists."""


class BadVersion(StoreError):
    """The node has another version than the operation expects."""


class NotEmpty(StoreError):
    """A node to delete has children."""


class NoChildrenForEphemerals(StoreError):
    """A node that lives with a session cannot have children."""


class NotAllowed(StoreError):
    """The client may not read or write the node."""


class ConnectionLost(StoreError):
    """No reply: a write may or may not have happened, and the caller reads before it tries again."""


class SessionLost(StoreError):
    """The session is over and its ephemeral nodes are gone; nothing works until `renew`."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node at version 0; an ephemeral one lives as long as the session."""

    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Replaces a node's value if it has this version, which then is one more."""

    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children if it has this version (or ANY_VERSION)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Lets the multi fail unless the node has this version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Wake(Protocol):
    """A wake-up that a read arms: a `trio.Event`. Hashable by identity, and held weakly, so its waiter need not disarm
    it.

    The store sets it once, when the result of the read may be out of date: it changed, or the connection or the session
    was lost meanwhile. It may be set without a cause. The store then forgets it; a waiter that goes on reads again with
    a new one.
    """

    def set(self) -> None:
        """Wake the waiter."""
        ...


class MetadataStore(Protocol):
    """A client's session with a store. Any method may raise ConnectionLost or SessionLost."""

    @property
    def session(self) -> SessionStatistics | None:
        """Counters of the sessions with a store outside this process; None: the store is in this process."""
        ...

    async def get(self, path: str) -> Node:
        """The node. Raises NoNode."""
        ...

    async def exists(self, path: str, wake: Wake | None = None) -> bool:
        """Whether there is the node. `wake` waits for it to be created, changed or deleted."""
        ...

    async def children(self, path: str, wake: Wake | None = None) -> list[str]:
        """The names of the children, sorted. `wake` waits for a child to come or go. Raises NoNode."""
        ...

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """The names of the children of each path, sorted; none for a node that does not exist. No snapshot."""
        ...

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, None for each that does not exist. No snapshot: each value is as of its own read."""
        ...

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """The children with their values, sorted by name; no snapshot, as with `read_many`. Raises NoNode."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Do all of the operations in order, or none; then raise the error of the first impossible one."""
        ...

    async def sync(self) -> None:
        """Let later reads see every write that was done before this call."""
        ...

    async def renew(self) -> None:
        """Begins a new session after SessionLost. Raises SessionLost if it never can."""
        ...

    async def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. Idempotent."""
        ...


def parent_of(path: str) -> str:
    """The parent's path; the root is ''."""
    return path.rpartition("/")[0]


def size_bytes(operation: Operation) -> int:
    """The bytes that an operation counts against MULTI_SIZE_MAX_BYTES."""
    value = operation.value if isinstance(operation, Create | Put) else b""
    return len(operation.path) + len(value) + 32


def check_size(operations: Sequence[Operation]) -> None:
    """Raises ValueError for a multi that no store takes."""
    if len(operations) > MULTI_OPERATIONS_MAX or sum(map(size_bytes, operations)) > MULTI_SIZE_MAX_BYTES:
        raise ValueError(f"a multi of {len(operations)} operations is too large")
