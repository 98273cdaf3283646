"""Which leaders before are known not to answer any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.api import BrokerInfo, BrokerState, ClusterImage, PartitionState
from coordinator.cluster.image import empty
from coordinator.testing_image import with_members
from engine.api import TopicPartition
from kafkawire.adapters.succession import Succession

ORDERS = TopicPartition(bytes(16), "orders", 0)
OLD, NEW = b"o" * 16, b"n" * 16
FOLLOWED = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), replicas=(1, 2), incarnation=OLD)
LED = replace(FOLLOWED, leader=2, leader_epoch=5, incarnation=NEW)
SERVING, LEAVING, FENCED = BrokerState.SERVING, BrokerState.LEAVING, BrokerState.FENCED


def image(state: BrokerState, incarnation: bytes = OLD) -> ClusterImage:
    return with_members(empty("cluster"), {1: BrokerInfo(1, (), state=state, incarnation=incarnation)}, 1)


def following(state: BrokerState = SERVING) -> Succession:
    succession = Succession()
    succession.note(ORDERS, FOLLOWED, image(state))
    return succession


def test_one_that_was_followed_as_it_served_and_says_that_it_leaves_is_not_waited_for() -> None:
    assert following().has_left(ORDERS, LED, image(LEAVING))


@pytest.mark.parametrize("now", [image(SERVING), image(FENCED), image(LEAVING, NEW), empty("cluster")])
def test_one_that_does_not_say_so_in_that_life_is_waited_for(now: ClusterImage) -> None:
    assert not following().has_left(ORDERS, LED, now)


def test_one_that_was_given_the_epoch_when_it_left_already_is_waited_for() -> None:
    """It may not have outwaited whoever led before it."""
    assert not following(LEAVING).has_left(ORDERS, LED, image(LEAVING))


@pytest.mark.parametrize("epoch", [4, 6, 7])
def test_so_is_one_if_there_was_another_epoch_in_between(epoch: int) -> None:
    assert not following().has_left(ORDERS, replace(LED, leader_epoch=epoch), image(LEAVING))


def test_what_is_not_hosted_is_not_known() -> None:
    succession = following()
    succession.forget(ORDERS)
    succession.forget(ORDERS)
    assert not succession.has_left(ORDERS, LED, image(LEAVING))
