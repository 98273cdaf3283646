"""The tree of nodes in memory, which the embedded store and the fake share.

Pure, in two steps, because a store makes a multi durable between them: `stage` returns the effects of a multi, or
raises, and changes nothing; `apply` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from coordinator.metadata_store.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    check_size,
    parent_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_SESSION = 0


class EffectKind(Enum):
    """Kind of change of a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Effect:
    """A step of a staged multi: the node as it will be, or None when it is deleted."""

    kind: EffectKind
    path: str
    node: Node | None
    session_id: int = NO_SESSION  # the session an ephemeral node lives with


@dataclass(slots=True)
class _Entry:
    node: Node
    session_id: int = NO_SESSION
    children: set[str] = field(default_factory=set)


class NodeTree:
    """The nodes by path. The root exists, is called '' and cannot be changed."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"": _Entry(Node(b"", 0))}

    def get(self, path: str) -> Node:
        """The node of this path. Raises NoNode."""
        return self._entry(path).node

    def find(self, path: str) -> Node | None:
        """The node, if there is one."""
        entry = self._entries.get(path)
        return entry.node if entry else None

    def children(self, path: str) -> list[str]:
        """The children's names, sorted. Raises NoNode."""
        return sorted(self._entry(path).children)

    def stage(self, operations: Sequence[Operation], session_id: int) -> list[Effect]:
        """Return the effects of the multi, step by step; raise the error of its first impossible operation."""
        check_size(operations)
        staging = _Staging(self._entries)
        return [effect for operation in operations if (effect := staging.step(operation, session_id))]

    def stage_end_of_session(self, session_id: int) -> list[Effect]:
        """The deletion of the session's ephemeral nodes."""
        return [
            Effect(EffectKind.DELETED, path, None, session_id)
            for path, entry in self._entries.items()
            if entry.session_id == session_id != NO_SESSION
        ]

    def apply(self, effects: Sequence[Effect]) -> None:
        """Changes the tree."""
        for effect in effects:
            parent, name = parent_of(effect.path), effect.path.rpartition("/")[2]
            if effect.node is None:
                del self._entries[effect.path]
                self._entries[parent].children.discard(name)
            elif (entry := self._entries.get(effect.path)) is not None:
                entry.node = effect.node
            else:
                self._entries[effect.path] = _Entry(effect.node, effect.session_id)
                self._entries[parent].children.add(name)

    def _entry(self, path: str) -> _Entry:
        try:
            return self._entries[path]
        except KeyError:
            raise NoNode(path) from None


class _Staging:
    """The tree as it looks to the later operations of a multi, without touching the tree."""

    def __init__(self, entries: dict[str, _Entry]) -> None:
        self._entries = entries
        self._staged: dict[str, Effect] = {}
        self._children_added: dict[str, int] = {}

    def step(self, operation: Operation, session_id: int) -> Effect | None:
        """Check one operation against the nodes as staged so far; None if the operation changes nothing."""
        path = operation.path
        if isinstance(operation, Create):
            effect = self._create(operation, session_id if operation.ephemeral else NO_SESSION)
        else:
            node = self._node(path)
            if node is None:
                raise NoNode(path)
            if operation.version not in (node.version, ANY_VERSION):
                raise BadVersion(path)
            if isinstance(operation, Check):
                return None
            if isinstance(operation, Delete):
                effect = self._delete(path)
            else:
                changed = Node(operation.value, node.version + 1)
                effect = Effect(EffectKind.CHANGED, path, changed, self._session(path))
        self._staged[path] = effect
        return effect

    def _create(self, operation: Create, session_id: int) -> Effect:
        path, parent = operation.path, parent_of(operation.path)
        if self._node(path) is not None:
            raise NodeExists(path)
        if self._node(parent) is None:
            raise NoNode(parent)
        if self._session(parent) != NO_SESSION:
            raise NoChildrenForEphemerals(parent)
        self._children_added[parent] = self._children_added.get(parent, 0) + 1
        return Effect(EffectKind.CREATED, path, Node(operation.value, 0), session_id)

    def _delete(self, path: str) -> Effect:
        entry = self._entries.get(path)
        if (len(entry.children) if entry else 0) + self._children_added.get(path, 0) > 0:
            raise NotEmpty(path)
        parent = parent_of(path)
        self._children_added[parent] = self._children_added.get(parent, 0) - 1
        return Effect(EffectKind.DELETED, path, None, self._session(path))

    def _node(self, path: str) -> Node | None:
        if (effect := self._staged.get(path)) is not None:
            return effect.node
        entry = self._entries.get(path)
        return entry.node if entry else None

    def _session(self, path: str) -> int:
        if (effect := self._staged.get(path)) is not None:
            return effect.session_id
        entry = self._entries.get(path)
        return entry.session_id if entry else NO_SESSION
