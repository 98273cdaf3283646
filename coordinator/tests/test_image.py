"""One image to the next, and what a step means for the partitions a broker hosts."""

from __future__ import annotations

from dataclasses import replace

from coordinator.api import BrokerEndpoint, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from coordinator.cluster.image import host_changes, with_members, with_partitions, with_topics

ME = BrokerInfo(1, (BrokerEndpoint("A", "host", 1), BrokerEndpoint("B", "host", 2)), incarnation=b"m" * 16)
MINE = PartitionState(1, 0, (1,), (1,), incarnation=ME.incarnation)
THEIRS = PartitionState(2, 0, (2, 1), (2, 1), incarnation=b"t" * 16)
EMPTY = ClusterImage(0, "cluster")


def topic(name: str, *states: PartitionState, generation: int = 0) -> TopicInfo:
    return TopicInfo(name, name.encode().ljust(15) + bytes([generation]), states)


def names(old: ClusterImage, new: ClusterImage) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    opened, deleted = host_changes(old, new, ME)
    return (
        [(partition.topic, partition.partition) for partition in opened],
        [(partition.topic, partition.partition) for partition in deleted],
    )


def test_an_image_is_never_changed_and_versions_rise() -> None:
    first = with_topics(EMPTY, [topic("a", MINE)])
    second = with_topics(first, [topic("b", MINE)], [topic("a", MINE)])
    third = with_members(second, {1: ME}, 1)
    assert [list(image.topics) for image in (EMPTY, first, second, third)] == [[], ["a"], ["b"], ["b"]]
    assert [image.version for image in (EMPTY, first, second, third)] == [0, 1, 2, 3]


def test_a_topic_made_again_under_its_name_replaces_the_old_id() -> None:
    old, new = topic("a", MINE), topic("a", MINE, generation=1)
    image = with_topics(with_topics(EMPTY, [old]), [new], [old])
    assert (dict(image.topics), dict(image.topics_by_id)) == ({"a": new}, {new.topic_id: new})
    late = with_topics(image, removed=[old])
    assert late.topics == {"a": new}
    assert names(with_topics(EMPTY, [old]), image) == ([("a", 0)], [("a", 0)])


def test_lookups() -> None:
    image = with_topics(EMPTY, [topic("a", MINE)])
    assert image.partition("a", 0) == MINE
    assert image.partition("a", 1) is image.partition("a", -1) is image.partition("b", 0) is None
    assert ME.endpoint("B") == BrokerEndpoint("B", "host", 2)
    assert ME.endpoint("C") is None
    assert topic("__consumer_offsets").internal
    assert not topic("a").internal


def test_only_partitions_led_in_an_epoch_of_this_process_are_opened() -> None:
    earlier = replace(MINE, incarnation=b"e" * 16)
    assert names(EMPTY, with_topics(EMPTY, [topic("a", MINE, THEIRS, earlier, MINE)])) == ([("a", 0), ("a", 3)], [])


def test_a_partition_is_opened_again_when_its_epoch_or_configs_change() -> None:
    first = topic("a", MINE, MINE)
    image = with_topics(EMPTY, [first])
    assert names(image, with_topics(image, [replace(first)])) == ([], [])
    raised = with_partitions(first, {1: replace(MINE, leader_epoch=1)})
    assert names(image, with_topics(image, [raised])) == ([("a", 1)], [])
    configured = replace(first, configs={"retention.ms": "1"})
    assert names(image, with_topics(image, [configured])) == ([("a", 0), ("a", 1)], [])


def test_all_replicas_here_of_a_deleted_topic_are_dropped() -> None:
    elsewhere = PartitionState(2, 0, (2,), (2,))
    image = with_topics(EMPTY, [topic("a", MINE, THEIRS, elsewhere), topic("b", MINE)])
    assert names(image, with_topics(image, removed=[topic("a")])) == ([], [("a", 0), ("a", 1)])
