"""Role changes of the partitions that a broker hosts, from one image to the next."""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import NO_LEADER, BrokerEndpoint, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.controller.elections import NO_LOG
from coordinator.membership.role_changes import host_changes
from coordinator.testing.images import with_partitions, with_topics

ME = BrokerInfo(1, (BrokerEndpoint("A", "host", 1), BrokerEndpoint("B", "host", 2)), incarnation=b"m" * 16)
MINE = PartitionState(1, 0, (1,), (1,), incarnation=ME.incarnation)
THEIRS = PartitionState(2, 0, (2, 1), (2, 1), incarnation=b"t" * 16)
EMPTY = ClusterImage(0, "cluster")


def topic(name: str, *states: PartitionState, generation: int = 0) -> TopicInfo:
    return TopicInfo(name, name.encode().ljust(15) + bytes([generation]), states)


def names(old: ClusterImage, new: ClusterImage) -> tuple[list[tuple[str, int]], ...]:
    """The partitions that are led, followed and dropped; all topics that are gone were deleted."""
    changes = host_changes(old, new, ME, old.topics_by_id.keys())
    assert changes.vanished == []
    return tuple([(one.topic, one.partition) for one in some] for some in changes[:3])


def test_d3_a_topic_that_no_change_has_deleted_is_not_dropped() -> None:
    old = with_topics(EMPTY, [topic("a", MINE, THEIRS), topic("b", MINE)])
    changes = host_changes(old, EMPTY, ME, {old.topics["b"].topic_id})
    assert [(one.topic, one.partition) for one in changes.vanished] == [("a", 0), ("a", 1)]
    assert [(one.topic, one.partition) for one in changes.dropped] == [("b", 0)]
    assert changes
    assert host_changes(old, EMPTY, ME, ())


def test_a_topic_created_again_under_its_name_is_another_topic() -> None:
    old, new = topic("a", MINE), topic("a", MINE, generation=1)
    image = with_topics(with_topics(EMPTY, [old]), [new], [old])
    assert names(with_topics(EMPTY, [old]), image) == ([("a", 0)], [], [("a", 0)])


def test_only_partitions_led_in_an_epoch_of_this_process_are_led_and_other_replicas_follow() -> None:
    earlier, elsewhere = replace(MINE, incarnation=b"e" * 16), replace(THEIRS, isr=(2,), replicas=(2,))
    image = with_topics(EMPTY, [topic("a", MINE, THEIRS, earlier, MINE, elsewhere)])
    assert names(EMPTY, image) == ([("a", 0), ("a", 3)], [("a", 1), ("a", 2)], [])


def test_a_partition_follows_after_a_lost_leadership_and_leads_after_an_election() -> None:
    first = topic("a", replace(MINE, replicas=(1, 2)), THEIRS)
    image = with_topics(EMPTY, [first])
    lost = replace(MINE, leader=2, leader_epoch=1, incarnation=b"t" * 16, replicas=(1, 2))
    won = replace(THEIRS, leader=1, leader_epoch=1, incarnation=ME.incarnation)
    changed = with_topics(image, [with_partitions(first, {0: lost, 1: won})])
    assert names(image, changed) == ([("a", 1)], [("a", 0)], [])
    unled = with_partitions(first, {0: replace(MINE, leader=-1, leader_epoch=1, replicas=(1, 2))})
    assert names(image, with_topics(image, [unled])) == ([], [("a", 0)], [])


def test_a_change_of_the_isr_changes_no_role() -> None:
    first = topic("a", replace(MINE, replicas=(1, 2)), THEIRS)
    image = with_topics(EMPTY, [first])
    states = {0: replace(MINE, isr=(1, 2), replicas=(1, 2)), 1: replace(THEIRS, isr=(2,))}
    assert names(image, with_topics(image, [with_partitions(first, states)])) == ([], [], [])


def test_a_removed_replica_is_dropped_and_an_added_replica_follows() -> None:
    first = topic("a", replace(THEIRS, isr=(2,), replicas=(2,)), THEIRS)
    image = with_topics(EMPTY, [first])
    changed = with_partitions(first, {0: THEIRS, 1: replace(THEIRS, isr=(2,), replicas=(2,))})
    assert names(image, with_topics(image, [changed])) == ([], [("a", 0)], [("a", 1)])


def test_a_partition_is_opened_again_when_its_epoch_or_configs_change() -> None:
    first = topic("a", MINE, MINE)
    image = with_topics(EMPTY, [first])
    assert names(image, with_topics(image, [replace(first)])) == ([], [], [])
    raised = with_partitions(first, {1: replace(MINE, leader_epoch=1)})
    assert names(image, with_topics(image, [raised])) == ([("a", 1)], [], [])
    configured = replace(first, configs={"retention.ms": "1"})
    assert names(image, with_topics(image, [configured])) == ([("a", 0), ("a", 1)], [], [])


def test_a_lost_log_is_created_again_only_if_another_broker_leads() -> None:
    """Nor before a controller has seen that an earlier registration of this broker, the leader, leads no more."""
    lost = replace(MINE, suspect_replicas=((1, *NO_LOG),))
    unled, earlier = replace(lost, leader=NO_LEADER), replace(lost, incarnation=b"e" * 16)
    another = replace(THEIRS, isr=(2,), suspect_replicas=((1, *NO_LOG),))
    image = with_topics(EMPTY, [topic("a", unled, earlier, another)])
    assert names(EMPTY, image) == ([], [("a", 2)], [])


def test_all_replicas_here_of_a_deleted_topic_are_dropped() -> None:
    elsewhere = PartitionState(2, 0, (2,), (2,))
    image = with_topics(EMPTY, [topic("a", MINE, THEIRS, elsewhere), topic("b", MINE)])
    assert names(image, with_topics(image, removed=[topic("a")])) == ([], [], [("a", 0), ("a", 1)])
