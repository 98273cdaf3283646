"""The time at which a log that is not open is opened again."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import TopicIdPartition
from engine.errors import LogsContradict, StorageError
from kafkawire.adapters.unserved import FIRST_PAUSE_S, PAUSE_MAX_S, Unserved

ONE = TopicIdPartition(bytes(16), "t", 0)
ERROR = StorageError("no room")


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def pause_s(unserved: Unserved[str], clock: Clock) -> float:
    """The seconds until the log is opened again."""
    started_s = clock.now_s
    while not unserved.due():
        clock.now_s += 0.5
    return clock.now_s - started_s


def test_pauses_grow_up_to_a_minute() -> None:
    clock = Clock()
    unserved, pauses = Unserved[str](clock), []
    for _ in range(9):
        unserved.note(ONE, "follower", 3, ERROR)
        pauses.append(pause_s(unserved, clock))
    assert pauses == [FIRST_PAUSE_S, 2, 4, 8, 16, 32, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]


def test_a_log_closed_again_soon_waits_longer_than_a_log_that_stayed_open() -> None:
    clock = Clock()
    unserved = Unserved[str](clock)
    for stays_open_s, expected_s in ((0, 1), (PAUSE_MAX_S, 2), (10, 4), (3 * PAUSE_MAX_S, 1)):
        assert not unserved.served(ONE)
        clock.now_s += stays_open_s
        unserved.note(ONE, "follower", 3, ERROR)
        assert pause_s(unserved, clock) == expected_s
        assert unserved.served(ONE)


def test_a_log_that_contradicts_its_leaders_waits_for_another_epoch() -> None:
    clock = Clock()
    unserved = Unserved[str](clock)
    unserved.note(ONE, "follower", 3, LogsContradict("they part"))
    clock.now_s += 10 * PAUSE_MAX_S
    assert not unserved.due()
    unserved.assume(ONE, "follower", 3)
    assert not unserved.due()
    unserved.assume(ONE, "another leader's", 4)
    assert unserved.due() == {ONE: "another leader's"}


def test_a_reason_is_told_once() -> None:
    unserved = Unserved[str](Clock())
    assert unserved.note(ONE, "follower", 3, ERROR)
    assert not unserved.note(ONE, "follower", 3, ERROR)
    assert unserved.note(ONE, "follower", 3, StorageError("no descriptors"))
    assert unserved.reasons() == {ONE: "no descriptors"}


def test_a_partition_that_is_no_longer_hosted_is_forgotten() -> None:
    unserved = Unserved[str](Clock())
    unserved.note(ONE, "follower", 3, ERROR)
    unserved.forget(ONE)
    assert not unserved
    assert ONE not in unserved
