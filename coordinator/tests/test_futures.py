"""An answer lives no longer than its requester."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from weakref import ref

import pytest

from coordinator.errors import GroupError, UnknownMember
from coordinator.futures import SettableFuture, after_all, settled
from coordinator.groups.api import Claim, OffsetToCommit
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.shards.table import Effects, Moment

NOW = Moment(0, 0, lambda: "id")
STRANGER = Claim("stranger", None, 7)
OFFSETS = [OffsetToCommit("t", 0, 5, -1, "")]


class WatchedAnswer(SettableFuture[object]):
    """An answer whose end can be watched."""

    __slots__ = ("__weakref__",)


Table = GroupTable[WatchedAnswer]


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_settled_once_with_one_callback() -> None:
    answer = SettableFuture[int]()
    called: list[object] = []
    answer.call_when_settled(lambda: called.append(answer.outcome))
    answer.settle(1)
    answer.settle(2)
    assert (answer.result(), called) == (1, [1])


def test_each_raised_copy_of_an_error_has_its_cause() -> None:
    refusal = UnknownMember("m")
    refusal.__cause__ = cause = KeyError("m")
    answer = settled(refusal)
    for _ in range(2):
        with pytest.raises(UnknownMember) as caught:
            answer.result()
        assert caught.value is not refusal
        assert caught.value.__cause__ is cause


def test_all_are_settled_with_the_first_error_of_theirs() -> None:
    first, second = SettableFuture[object](), SettableFuture[object]()
    joint = after_all([first, settled(None), second], "all")
    second.settle(UnknownMember("m"))
    assert not joint.is_settled
    first.settle(None)
    with pytest.raises(UnknownMember):
        joint.result()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "ask",
    [
        lambda table, future: table.heartbeat(NOW, "g", STRANGER, future),
        lambda table, future: table.heartbeat(NOW, "no group", STRANGER, future),
        lambda table, future: table.offsets.commit(NOW, "g", STRANGER, OFFSETS, -1, future),
        lambda table, future: table.sync(NOW, "g", STRANGER, (None, None), {}, future),
        lambda table, future: table.leave(NOW, "g", [STRANGER], future),
    ],
)
def test_a_refusal_keeps_no_reference_to_its_requester(
    ask: Callable[[Table, WatchedAnswer], Effects[WatchedAnswer]],
) -> None:
    """A raised error leads to the frames it came through, and they to it, if any of them keeps it."""
    table = Table(GroupSettings(), OffsetSettings())
    table.offsets.commit(NOW, "g", Claim(""), OFFSETS, -1, WatchedAnswer())
    future = WatchedAnswer()
    gone = ref(future)
    for one, outcome in ask(table, future).answers:
        one.settle(outcome)
    for _ in range(2):
        with suppress(GroupError):
            future.result()
    del future, one, outcome
    assert gone() is None
