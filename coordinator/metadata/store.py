"""What the control plane asks of a metadata store: ZooKeeper's model, no more than an ensemble can keep.

A tree of small nodes with versions; all writes are atomic `multi`s (a single change is a multi of one); reads may be
stale until `sync`; nodes can live with a session; one subscription per broker, never one per topic. Values are bytes
here: what they mean is said by `coordinator.cluster.nodes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANY_VERSION = -1
MULTI_OPERATIONS_MAX = 1_024  # a batch of 1,000 partitions and what goes with it
MULTI_SIZE_MAX_BYTES = 512 * 1024  # ZooKeeper's jute.maxbuffer is 1 MiB


class StoreError(Exception):
    """Base of what a store answers; `path` is the node it is about."""

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


class EventKind(Enum):
    """What a watch reports."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    MISSED = "missed"  # events were lost (reconnect, slow reader): sync and read again; the path is empty


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something happened to a node below a watched path; its value is to be read."""

    kind: EventKind
    path: str


class Watch(Protocol):
    """A subscription to whole subtrees: every change once, in the order of the writes, or a MISSED in its place."""

    async def receive(self) -> NodeEvent:
        """The next event. Raises SessionLost, once all events before the loss are read."""
        ...

    def close(self) -> None:
        """Ends the subscription."""
        ...


class MetadataStore(Protocol):
    """One client's session with a store. Any method may raise ConnectionLost or SessionLost."""

    async def get(self, path: str) -> Node:
        """Raises NoNode."""
        ...

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted. Raises NoNode."""
        ...

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """The children with their values, sorted by name; not a snapshot: each is as of when it was read."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """All of the operations in order, or none: then raises what the first impossible one met."""
        ...

    async def sync(self) -> None:
        """After it, reads see everything that anyone had written before it was called."""
        ...

    async def watch(self, paths: Sequence[str]) -> Watch:
        """One subscription to the subtrees of these paths, the paths themselves included."""
        ...

    async def renew(self) -> None:
        """Begins a new session after SessionLost; watches are to be made anew. Raises SessionLost if it never can."""
        ...

    async def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. Idempotent."""
        ...


def parent_of(path: str) -> str:
    """The parent's path; the root is ''."""
    return path.rpartition("/")[0]


def size_bytes(operation: Operation) -> int:
    """What an operation counts against MULTI_SIZE_MAX_BYTES."""
    value = operation.value if isinstance(operation, Create | Put) else b""
    return len(operation.path) + len(value) + 32
