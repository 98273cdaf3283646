"""A waiter for a node or for children is woken once, and nothing is left of a waiter that went away."""

from __future__ import annotations

import trio

from coordinator.metadata_store.store import Create, Put
from coordinator.metadata_store.tree import NodeTree
from coordinator.metadata_store.wakes import Wakes, children_of, touched_by


def touched(*operations: Create | Put) -> set[str]:
    tree = NodeTree()
    tree.apply(tree.stage([Create("/a", b"")], 0))
    return touched_by(tree.stage(operations, 0))


def test_a_change_touches_its_node_and_a_new_node_its_parents_children_too() -> None:
    assert touched(Put("/a", b"", 0)) == {"/a"}
    assert touched(Create("/a/b", b"")) == {"/a/b", children_of("/a/b"), children_of("/a")}
    assert children_of("") in touched(Create("/b", b""))


def test_a_waiter_is_woken_by_the_first_of_its_paths_and_then_forgotten() -> None:
    wakes, wake, other = Wakes(), trio.Event(), trio.Event()
    wakes.arm("/a", wake)
    wakes.arm("/b", wake)
    wakes.arm("/c", other)
    wakes.arm("/c", None)
    wakes.wake({"/b", "/d"})
    assert (wake.is_set(), other.is_set()) == (True, False)
    assert list(wakes._armed) == [other]
    wakes.wake_all()
    assert other.is_set()
    assert not wakes._armed


def test_a_waiter_that_is_gone_leaves_nothing_behind() -> None:
    wakes = Wakes()
    for _ in range(10):
        wakes.arm("/a", trio.Event())
    assert not wakes._armed
