"""The broker that a client asks."""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import PartitionState
from kafkawire.tests.cluster_simulation.clients import newest

OLDER = PartitionState(leader=1, leader_epoch=6, isr=(1, 2), replicas=(1, 2, 3))
NEWER = replace(OLDER, leader=2, leader_epoch=7)


def test_client_does_not_go_back_to_an_older_leader() -> None:
    """A deposed leader that does not know its successor yet would tell a producer that sequences are missing
    (KIP-320)."""
    assert newest(NEWER, OLDER) == NEWER
    assert newest(OLDER, NEWER) == NEWER


def test_client_without_new_metadata_keeps_its_known_leader() -> None:
    assert newest(NEWER, None) == NEWER
    assert newest(None, OLDER) == OLDER
    assert newest(None, None) is None


def test_client_takes_a_newer_epoch_without_a_leader() -> None:
    """The loss of a leader begins an epoch without a leader."""
    assert newest(OLDER, replace(NEWER, leader=-1)) == replace(NEWER, leader=-1)
