"""The broker that a client asks."""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import PartitionState
from kafkawire.tests.cluster_simulation.clients import newest

OLDER = PartitionState(leader=1, leader_epoch=6, isr=(1, 2), replicas=(1, 2, 3))
NEWER = replace(OLDER, leader=2, leader_epoch=7)


def test_a_client_does_not_go_back_to_an_older_leader_whoever_tells_of_it() -> None:
    """A deposed leader that does not know its successor yet would tell a producer that sequences are missing
    (KIP-320)."""
    assert newest(NEWER, OLDER) == NEWER
    assert newest(OLDER, NEWER) == NEWER


def test_a_client_that_is_told_nothing_stays_with_what_it_knows() -> None:
    assert newest(NEWER, None) == NEWER
    assert newest(None, OLDER) == OLDER
    assert newest(None, None) is None


def test_who_leads_no_more_in_the_epoch_that_a_client_knows_is_not_asked() -> None:
    """The loss of a leader begins an epoch without a leader."""
    assert newest(OLDER, replace(NEWER, leader=-1)) == replace(NEWER, leader=-1)
