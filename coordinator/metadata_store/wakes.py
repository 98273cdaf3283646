"""The wake-ups that readers have armed, shared by the back ends.

A wake-up waits for a *key*: a node's path, or, for the node's children, the path with a slash behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from coordinator.metadata_store.store import parent_of
from coordinator.metadata_store.tree import EffectKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.metadata_store.store import Wake
    from coordinator.metadata_store.tree import Effect


class Wakes:
    """Armed wake-ups by key. A wake-up is forgotten when it is set, or when its waiter has dropped it, as after a
    timeout."""

    def __init__(self) -> None:
        self._armed: WeakKeyDictionary[Wake, set[str]] = WeakKeyDictionary()

    def arm(self, key: str, wake: Wake | None) -> None:
        """Arm a wake-up on this key. It may be armed on several keys."""
        if wake is not None:
            self._armed.setdefault(wake, set()).add(key)

    def wake(self, touched: set[str]) -> None:
        """Set all wake-ups that are armed on one of these keys."""
        for wake in [wake for wake, keys in self._armed.items() if not touched.isdisjoint(keys)]:
            del self._armed[wake]
            wake.set()

    def wake_all(self) -> None:
        """Set every wake-up, because the event is not known."""
        armed, self._armed = self._armed, WeakKeyDictionary()
        for wake in list(armed):
            wake.set()


def children_of(path: str) -> str:
    """The key of a node's children."""
    return f"{path}/"


def touched_by(effects: Iterable[Effect]) -> set[str]:
    """The keys whose waiters a write concerns."""
    touched: set[str] = set()
    for effect in effects:
        touched.add(effect.path)
        if effect.kind is not EffectKind.CHANGED:
            touched |= {children_of(effect.path), children_of(parent_of(effect.path))}
    return touched
