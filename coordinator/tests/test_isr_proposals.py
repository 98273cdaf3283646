"""Changes that a leader's proposal of an ISR may make, and others that it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.api import BrokerInfo, BrokerState, ClusterImage, Extent, PartitionState, TopicInfo
from coordinator.controller.isr_proposals import IsrChange, changed_by, to_write
from coordinator.metadata.nodes import decode_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Put

TOPIC = bytes(15) + b"t"
LIFE = b"l" * 16
STATE = PartitionState(1, 5, (1, 2), (1, 2, 3), extents=(Extent(0, (1, 2, 3)),), incarnation=LIFE, version=7)
ME = BrokerInfo(1, (), incarnation=LIFE, epoch=10)
MEMBERS = {1: ME, 2: BrokerInfo(2, (), epoch=20), 3: BrokerInfo(3, (), epoch=30)}


def change(*in_sync: int, epoch: int = 5, **added: int) -> IsrChange:
    return IsrChange(TOPIC, 0, epoch, frozenset(in_sync), {int(name[1:]): life for name, life in added.items()})


def changed(wanted: IsrChange, state: PartitionState = STATE, min_isr: int = 1) -> PartitionState:
    return changed_by(state, MEMBERS, wanted, ME, min_isr)


def test_a_caught_up_replica_enters_the_isr_and_a_late_replica_leaves() -> None:
    assert changed(change(1, 2, 3, _3=30)).isr == (1, 2, 3)
    assert changed(change(1)).isr == (1,)
    assert changed(change(1, 3, _3=30)).isr == (1, 3)


def test_a_shrunk_isr_keeps_the_leader_epoch_and_fills_the_elr() -> None:
    found = changed(change(1), min_isr=2)
    assert (found.leader_epoch, found.isr, found.elr) == (5, (1,), (2,))


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (replace(STATE, leader_epoch=6), change(1)),
        (replace(STATE, leader=2), change(1)),
        (replace(STATE, incarnation=bytes(16)), change(1)),
        (STATE, change(1, 2, 3, _3=29)),
        (STATE, change(1, 2, 3)),
        (STATE, change(2)),
        (STATE, change(1, 2, 4, _4=40)),
        (replace(STATE, offline=(3,)), change(1, 2, 3, _3=30)),
    ],
)
def test_a_proposal_of_a_former_leader_or_with_an_ineligible_replica_changes_nothing(
    state: PartitionState, wanted: IsrChange
) -> None:
    assert changed(wanted, state) is state


@pytest.mark.parametrize("state", [one for one in BrokerState if one is not BrokerState.SERVING])
def test_only_a_serving_replica_enters_the_isr(state: BrokerState) -> None:
    members = {**MEMBERS, 3: replace(MEMBERS[3], state=state)}
    assert changed_by(STATE, members, change(1, 2, 3, _3=30), ME, 1) is STATE


def test_a_proposal_is_written_at_the_version_it_was_decided_on() -> None:
    topic = TopicInfo("t", TOPIC, (STATE,), {"min.insync.replicas": "2"})
    image = ClusterImage(3, "c", members=MEMBERS, topics={"t": topic}, topics_by_id={TOPIC: topic})
    gone = replace(change(1), topic_id=bytes(16)), replace(change(1), partition=1), change(1, epoch=4)
    [put] = to_write(image, [change(1), *gone], ME)
    assert isinstance(put, Put)
    assert (put.path, put.version) == (paths.partition(TOPIC, 0), 7)
    written = decode_partition(put.path, 8, put.value)
    assert (written.isr, written.elr) == ((1,), (2,))
