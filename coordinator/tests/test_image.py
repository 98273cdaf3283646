"""The image as the sum of changes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from coordinator.api import (
    TRANSACTION_VERSION,
    BrokerEndpoint,
    BrokerInfo,
    BrokerState,
    ClusterImage,
    Extent,
    PartitionState,
    TopicInfo,
)
from coordinator.errors import CannotStart
from coordinator.metadata.changes import change_of
from coordinator.metadata.image import empty, folded
from coordinator.metadata.nodes import (
    LoggedNode,
    encode_broker_configs,
    encode_controller_epoch,
    encode_features,
    encode_member,
    encode_partition,
    encode_topic,
)
from coordinator.metadata.unlogged_nodes import encode_topic_partitions
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Check, Create, Delete, Operation, Put
from coordinator.metadata_store.tree import NodeTree
from coordinator.testing.images import with_topics

A, B = b"a" * 16, b"b" * 16
ME = BrokerInfo(1, (BrokerEndpoint("A", "host", 1), BrokerEndpoint("B", "host", 2)), incarnation=b"m" * 16)
STATE = PartitionState(1, 0, (1,), (1,), extents=(Extent(0, (1,)),), incarnation=ME.incarnation)
FIRST = empty("cluster")


def after(image: ClusterImage, *operations: Operation) -> ClusterImage:
    change = change_of(operations, 1, bytes(16))
    return folded(image, image.version + 1, change.nodes, change.deleted)


def state_of(topic_id: bytes, number: int, state: PartitionState = STATE) -> Create:
    return Create(paths.partition(topic_id, number), encode_partition(state))


def topic_of(name: str, topic_id: bytes, count: int, version: int | None = None, **configs: str) -> Create | Put:
    value = encode_topic(TopicInfo(name, topic_id, (STATE,) * count, configs))
    return Create(paths.topic(name), value) if version is None else Put(paths.topic(name), value, version)


def test_the_first_image_has_nothing_and_every_change_makes_another_one() -> None:
    image = after(FIRST, state_of(A, 0), topic_of("a", A, 1, retention_ms="1"))
    assert (FIRST.version, FIRST.topics, FIRST.features) == (0, {}, {TRANSACTION_VERSION: 2})
    assert image.version == 1
    assert image.topics == {"a": TopicInfo("a", A, (STATE,), {"retention_ms": "1"})}
    assert image.topics_by_id == {A: image.topics["a"]}


def test_nodes_outside_the_image_are_in_no_change() -> None:
    parent = Create(paths.partitions(A), encode_topic_partitions("a"))
    change = change_of([Check(paths.member(1), 3), parent, Create(paths.broker(1), b"", ephemeral=True)], 1, bytes(16))
    assert (change.nodes, change.deleted) == ((), ())


def test_states_are_kept_aside_until_their_topic_comes() -> None:
    first = after(FIRST, state_of(A, 0), state_of(A, 1))
    second = after(first, Put(paths.partition(A, 1), encode_partition(replace(STATE, leader_epoch=4)), 0))
    third = after(second, state_of(A, 2), topic_of("a", A, 3))
    assert (first.topics, list(first.aside[A]), third.aside) == ({}, [0, 1], {})
    assert [(one.leader_epoch, one.version) for one in third.topics["a"].partitions] == [(0, 0), (4, 1), (0, 0)]


def test_a_topic_grows_when_its_own_node_says_so() -> None:
    image = after(FIRST, state_of(A, 0), topic_of("a", A, 1))
    ahead = after(image, state_of(A, 1), state_of(A, 2))
    assert (len(ahead.topics["a"].partitions), list(ahead.aside[A])) == (1, [1, 2])
    grown = after(ahead, topic_of("a", A, 2, version=0))
    assert (len(grown.topics["a"].partitions), list(grown.aside[A]), grown.topics["a"].version) == (2, [2], 1)
    assert after(grown, Delete(paths.partition(A, 2))).aside == {}


def test_a_changed_state_is_in_its_topic_by_name_and_by_id() -> None:
    image = after(FIRST, state_of(A, 0), state_of(A, 1), topic_of("a", A, 2))
    moved = after(image, Put(paths.partition(A, 1), encode_partition(replace(STATE, leader=2)), 0))
    assert [one.leader for one in moved.topics["a"].partitions] == [1, 2]
    assert moved.topics_by_id[A] is moved.topics["a"]
    assert [one.leader for one in image.topics["a"].partitions] == [1, 1]


def test_a_deleted_topic_leaves_its_states_aside_until_they_are_deleted_too() -> None:
    image = after(FIRST, state_of(A, 0), state_of(A, 1), topic_of("a", A, 2))
    gone = after(image, Delete(paths.topic("a"), 0), Delete(paths.partition(A, 0)))
    assert (gone.topics, gone.topics_by_id, list(gone.aside[A])) == ({}, {}, [1])
    assert after(gone, Delete(paths.partition(A, 1)), Delete(paths.partitions(A))).aside == {}


def test_a_topic_created_again_under_its_name_has_another_id() -> None:
    image = after(FIRST, state_of(A, 0), topic_of("a", A, 1))
    image = after(image, Delete(paths.topic("a"), 0), Delete(paths.partition(A, 0)))
    image = after(image, state_of(B, 0), topic_of("a", B, 1))
    assert (image.topics["a"].topic_id, list(image.topics_by_id)) == (B, [B])


def test_a_topic_without_states_is_damage() -> None:
    with pytest.raises(CannotStart, match="/topics/a is damaged: states of its partitions are missing"):
        after(FIRST, state_of(A, 0), topic_of("a", A, 2))


def test_brokers_are_the_members_that_are_up() -> None:
    image = after(FIRST, *(Create(paths.member(one), encode_member(replace(ME, broker_id=one))) for one in (2, 1)))
    assert [list(image.members), list(image.brokers)] == [[1, 2], [1, 2]]
    for state, is_up in zip(BrokerState, (False, True, True, False, False), strict=True):
        known = replace(image.members[2], state=state)
        moved = after(image, Put(paths.member(2), encode_member(known), 0))
        known_as = moved.former if state is BrokerState.UNREGISTERED else moved.members
        assert (2 in moved.brokers, known_as[2].version) == (is_up, 1)
        assert (2 in moved.members) == (state is not BrokerState.UNREGISTERED)


def test_nodes_that_there_is_one_of() -> None:
    image = after(FIRST, Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(1, 7)))
    image = after(image, Create(paths.BROKER_CONFIGS, encode_broker_configs({"1": {"k": "v"}})))
    image = after(image, Create(paths.FEATURES, encode_features({TRANSACTION_VERSION: 1})))
    image = after(image, Put(paths.FEATURES, encode_features({TRANSACTION_VERSION: 2}), 0))
    assert (image.controller_id, image.controller_epoch) == (1, 7)
    assert (image.broker_configs, image.features, image.features_epoch) == (
        {"1": {"k": "v"}},
        {TRANSACTION_VERSION: 2},
        2,
    )
    assert {path: single.version for path, single in image.singles.items()} == {
        paths.CONTROLLER_EPOCH: 0,
        paths.BROKER_CONFIGS: 0,
        paths.FEATURES: 1,
    }


def test_lookups() -> None:
    image = with_topics(FIRST, [TopicInfo("a", A, (STATE,))])
    assert image.partition("a", 0) == STATE
    assert image.partition("a", 1) is image.partition("a", -1) is image.partition("b", 0) is None
    assert ME.endpoint("B") == BrokerEndpoint("B", "host", 2)
    assert ME.endpoint("C") is None
    assert TopicInfo("__consumer_offsets", A, ()).internal
    assert not TopicInfo("a", A, ()).internal


class Tree:
    """The content of a store after random changes, which need not make sense to a broker."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tree = NodeTree()
        self.topics: dict[str, tuple[bytes, int]] = {}  # id and partition count
        parents = [Create(path, b"") for path in (paths.MEMBERS, paths.TOPICS, paths.PARTITIONS)]
        self.tree.apply(self.tree.stage(parents, 0))

    def change(self) -> list[Operation]:
        steps = [self._create, self._grow, self._delete, self._move, self._register, self._feature]
        while not (operations := self.random.choice(steps)()):
            pass
        self.tree.apply(self.tree.stage(operations, 0))
        return operations

    def _create(self) -> list[Operation]:
        name, topic_id, count = f"t{self.random.randrange(4)}", self.random.randbytes(16), self.random.randrange(1, 4)
        if name in self.topics:
            return []
        self.topics[name] = topic_id, count
        parent = Create(paths.partitions(topic_id), encode_topic_partitions(name))
        return [parent, *(state_of(topic_id, number) for number in range(count)), topic_of(name, topic_id, count)]

    def _grow(self) -> list[Operation]:
        if not self.topics:
            return []
        name, (topic_id, count) = self.random.choice(list(self.topics.items()))
        self.topics[name] = topic_id, count + 1
        version = self.tree.get(paths.topic(name)).version
        return [state_of(topic_id, count), topic_of(name, topic_id, count + 1, version)]

    def _delete(self) -> list[Operation]:
        if not self.topics:
            return []
        name = self.random.choice(list(self.topics))
        topic_id, count = self.topics.pop(name)
        left = [Delete(paths.partition(topic_id, number)) for number in range(self.random.randrange(count + 1))]
        return [Delete(paths.topic(name)), *left]

    def _move(self) -> list[Operation]:
        if not self.topics:
            return []
        topic_id, count = self.random.choice(list(self.topics.values()))
        path = paths.partition(topic_id, self.random.randrange(count))
        state = replace(STATE, leader_epoch=self.random.randrange(99))
        return [Put(path, encode_partition(state), self.tree.get(path).version)]

    def _register(self) -> list[Operation]:
        return [self._write(paths.member(self.random.randrange(3)), encode_member(ME))]

    def _feature(self) -> list[Operation]:
        return [self._write(paths.FEATURES, encode_features({TRANSACTION_VERSION: self.random.randrange(3)}))]

    def _write(self, path: str, value: bytes) -> Operation:
        found = self.tree.find(path)
        return Create(path, value) if found is None else Put(path, value, found.version)

    def loaded(self, number: int) -> ClusterImage:
        """The image of a broker that reads all nodes at once."""
        below = [
            paths.MEMBERS,
            paths.TOPICS,
            *(f"{paths.PARTITIONS}/{one}" for one in self.tree.children(paths.PARTITIONS)),
        ]
        found = [f"{parent}/{name}" for parent in below for name in self.tree.children(parent)]
        nodes = [(path, self.tree.find(path)) for path in [*found, paths.FEATURES]]
        return folded(FIRST, number, [LoggedNode(path, one.version, one.value) for path, one in nodes if one])


@pytest.mark.parametrize("seed", range(50))
def test_to_follow_is_the_same_as_to_load(seed: int) -> None:
    tree, image = Tree(Random(seed)), FIRST
    for _ in range(60):
        image = after(image, *tree.change())
        assert image == tree.loaded(image.version)
