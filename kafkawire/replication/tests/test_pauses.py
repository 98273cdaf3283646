"""A leader that refuses is asked again soon, and then less and less often."""

from __future__ import annotations

from engine.api import TopicIdPartition
from kafkawire.replication.pauses import FIRST_MS, Pauses

PARTITION = TopicIdPartition(b"t" * 16, "t", 0)


def test_a_leader_that_refuses_is_asked_again_soon_and_then_less_and_less_often() -> None:
    pauses = Pauses(FIRST_MS * 5)
    assert [pauses.next_ms(PARTITION, 3) for _ in range(5)] == [FIRST_MS * times for times in (1, 2, 4, 5, 5)]


def test_pause_in_a_new_leader_epoch_is_short_again() -> None:
    pauses = Pauses(1_000)
    for _ in range(3):
        pauses.next_ms(PARTITION, 3)
    assert pauses.next_ms(PARTITION, 4) == FIRST_MS


def test_each_partition_has_its_own_pause_until_it_is_forgotten() -> None:
    pauses = Pauses(1_000)
    assert [pauses.next_ms(PARTITION, 3), pauses.next_ms(PARTITION._replace(partition=1), 3)] == [FIRST_MS, FIRST_MS]
    pauses.forget(PARTITION)
    assert pauses.next_ms(PARTITION, 3) == FIRST_MS


def test_no_pause_is_longer_than_was_asked_for() -> None:
    assert Pauses(3).next_ms(PARTITION, 0) == 3
