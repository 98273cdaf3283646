"""The writes of the controller."""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import CLUSTER_DEFAULT, BrokerInfo, BrokerState, ClusterImage, Extent, PartitionState, TopicInfo
from coordinator.controller.elections import NO_LOG
from coordinator.controller.reconcile import has_leaderships_to_hand_over, min_isr, to_fence, to_prefer, to_reconcile
from coordinator.metadata.nodes import decode_member, decode_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Operation, Put
from coordinator.testing.images import with_broker_configs, with_members, with_topics

ID = bytes(range(16))
MEMBERS = {number: BrokerInfo(number, (), incarnation=bytes([number]) * 16, version=number) for number in (1, 2, 3)}


def state(*replicas: int, isr: tuple[int, ...] = (), leader: int | None = None) -> PartitionState:
    leader = replicas[0] if leader is None else leader
    incarnation = MEMBERS[leader].incarnation
    return PartitionState(
        leader, 4, isr or replicas, replicas, extents=(Extent(0, replicas),), incarnation=incarnation, version=7
    )


def image_of(*states: PartitionState, **configs: str) -> ClusterImage:
    image = with_members(ClusterImage(0, "cluster"), MEMBERS, 1)
    return with_topics(image, [TopicInfo("a", ID, states, {key.replace("_", "."): configs[key] for key in configs})])


def without(image: ClusterImage, *broker_ids: int) -> ClusterImage:
    """The image after these brokers are fenced."""
    fenced = {number: replace(MEMBERS[number], state=BrokerState.FENCED) for number in broker_ids}
    return with_members(image, {**image.members, **fenced}, 1)


def written(operations: list[Operation]) -> dict[int, PartitionState]:
    """The written states by partition, in the order of the operations."""
    found = {}
    for put in operations:
        assert isinstance(put, Put)
        assert put.version == 7
        found[paths.partition_of(put.path)[1]] = decode_partition(put.path, put.version + 1, put.value)
    return found


def test_a_broker_that_is_gone_is_fenced_once() -> None:
    image = image_of()
    assert to_fence(image, {1, 2, 3}) == []
    [put] = to_fence(image, {1, 2})
    assert isinstance(put, Put)
    assert (put.path, put.version) == (paths.member(3), 3)
    assert decode_member(put.path, 4, put.value).state is BrokerState.FENCED
    assert to_fence(without(image, 3), {1, 2}) == []


def test_partitions_without_a_leader_come_first() -> None:
    image = without(image_of(state(1, 2), state(2, 1), state(1, 3), state(2, 3)), 2)
    found = written(to_reconcile(image))
    assert list(found) == [1, 3, 0]
    assert {number: (one.leader, one.isr) for number, one in found.items()} == {
        1: (1, (1,)),
        3: (3, (3,)),
        0: (1, (1,)),
    }


def test_a_reconciled_partition_is_examined_again_when_its_state_or_the_brokers_change() -> None:
    image = image_of(state(1, 2))
    assert to_reconcile(image) == to_reconcile(image, image) == []
    assert to_reconcile(without(image, 1), image) != []
    moved = with_topics(image, [replace(image.topics["a"], partitions=(replace(state(1, 2), incarnation=bytes(16)),))])
    assert to_reconcile(moved, image) != []
    assert to_reconcile(moved, moved) == []


def test_a_sole_leader_without_its_log_is_elected_only_once() -> None:
    """The leader's log dir has failed, and is to be given up: a log can be made only when that is back, or gone."""
    alone = replace(state(1), suspect_replicas=((1, *NO_LOG),))
    image = image_of(alone, unclean_leader_election_enable="true")
    [elected] = written(to_reconcile(image)).values()
    assert elected.leader_epoch == elected.unclean_since == alone.leader_epoch
    elected = replace(elected, version=alone.version)
    assert to_reconcile(image_of(elected, unclean_leader_election_enable="true")) == []


def test_min_insync_replicas_is_that_of_the_topic_or_of_the_cluster() -> None:
    image = image_of(state(1, 2))
    assert min_isr(image, image.topics["a"]) == 1
    image = with_broker_configs(image, {CLUSTER_DEFAULT: {"min.insync.replicas": "2"}})
    assert min_isr(image, image.topics["a"]) == 2
    assert written(to_reconcile(without(image, 2)))[0].elr == (2,)
    own = image_of(state(1, 2), min_insync_replicas="1")
    assert min_isr(own, own.topics["a"]) == 1


def test_an_unclean_leader_is_for_topics_that_allow_it() -> None:
    states = state(1, 2, isr=(1,))
    assert written(to_reconcile(without(image_of(states), 1)))[0].leader == -1
    allowed = image_of(states, unclean_leader_election_enable="true")
    found = written(to_reconcile(without(allowed, 1)))[0]
    assert (found.leader, found.isr, found.unclean_since) == (2, (2,), 5)


def test_the_first_replica_is_preferred() -> None:
    found = written(to_prefer(image_of(state(1, 2), state(1, 2, leader=2))))
    assert {number: one.leader for number, one in found.items()} == {1: 1}


def test_a_leaving_broker_waits_while_another_replica_can_take_its_leadership() -> None:
    assert has_leaderships_to_hand_over(image_of(state(1, 2)), 1)
    assert not has_leaderships_to_hand_over(image_of(state(1, 2)), 2)
    assert not has_leaderships_to_hand_over(image_of(state(1, 2, isr=(1,))), 1)
    assert not has_leaderships_to_hand_over(without(image_of(state(1, 2)), 2), 1)
