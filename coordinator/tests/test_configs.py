"""Alterations of configs, with Kafka's texts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.api import CLUSTER_DEFAULT, ClusterImage, ConfigChange, ConfigOperation, SingleNode, TopicInfo
from coordinator.errors import CoordinatorError, InvalidConfig, InvalidTopicName, InvalidTopicRequest, UnknownTopic
from coordinator.metadata.nodes import decode_broker_configs, decode_topic
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Put, check_size
from coordinator.requests import configs
from coordinator.testing.fakes import FakeValidator
from coordinator.testing.images import with_broker_configs, with_topics

ID = bytes(range(16))
SET, DELETE, APPEND, SUBTRACT = ConfigOperation
LIST = "cleanup.policy"


def change(operation: ConfigOperation, key: str, value: str = "") -> ConfigChange:
    return ConfigChange(operation, key, value)


def image_of(**set_configs: str) -> ClusterImage:
    topic = TopicInfo("a", ID, (), {key.replace("_", "."): value for key, value in set_configs.items()})
    return with_topics(ClusterImage(0, "cluster"), [topic])


def decide(image: ClusterImage, *changes: ConfigChange, name: str = "a", replaces: bool = False) -> dict[str, str]:
    return dict(configs.decide_topic_configs(image, name, changes, FakeValidator(), replaces=replaces).configs)


def test_keys_are_set_and_deleted_and_others_stay() -> None:
    image = image_of(kept_ms="1", changed_ms="2", gone_ms="3")
    changes = [change(SET, "changed.ms", "4"), change(DELETE, "gone.ms"), change(SET, "new.ms", "5")]
    assert decide(image, *changes) == {"kept.ms": "1", "changed.ms": "4", "new.ms": "5"}
    assert decide(image, change(DELETE, "never.set")) == image.topics["a"].configs


def test_replacing_leaves_nothing_that_is_not_named() -> None:
    image = image_of(kept_ms="1", changed_ms="2")
    assert decide(image, change(SET, "changed.ms", "4"), replaces=True) == {"changed.ms": "4"}
    assert decide(image, replaces=True) == {}


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        (None, SUBTRACT, "delete", ""),
        ("compact", APPEND, "delete,compact,delete", "compact,delete"),
        ("", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact,delete", SUBTRACT, "compact,delete", ""),
        ("compact", SUBTRACT, "unknown", "compact"),
        ("compact", APPEND, "delete,", "compact,delete"),
    ],
)
def test_lists_grow_and_shrink(before: str | None, operation: ConfigOperation, value: str, after: str) -> None:
    image = image_of() if before is None else image_of(cleanup_policy=before)
    assert decide(image, change(operation, LIST, value)) == {LIST: after}


def test_changes_of_one_request_build_on_each_other() -> None:
    assert decide(image_of(), change(SET, LIST, "compact"), change(APPEND, LIST, "delete")) == {LIST: "compact,delete"}


@pytest.mark.parametrize(
    ("error", "text", "name", "one"),
    [
        (
            InvalidConfig,
            "Can't APPEND to key retention.ms because its type is not LIST.",
            "a",
            change(APPEND, "retention.ms", "1"),
        ),
        (
            InvalidConfig,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
            "a",
            change(SUBTRACT, "retention.ms", "1"),
        ),
        (InvalidConfig, "Unknown topic config name: unknown.key", "a", change(SET, "unknown.key", "1")),
        (InvalidConfig, "Unknown topic config name: unknown.key", "nowhere", change(SET, "unknown.key", "1")),
        (UnknownTopic, "The topic 'nowhere' does not exist.", "nowhere", change(SET, "retention.ms", "1")),
        (InvalidTopicRequest, "Default topic resources are not allowed.", "", change(SET, "retention.ms", "1")),
        (InvalidTopicName, "Topic name is invalid: '.' or '..' is not allowed", "..", change(SET, "retention.ms", "1")),
        (
            InvalidConfig,
            "All configs together must not be longer than 65536 bytes.",
            "a",
            change(SET, "k", "v" * 65536),
        ),
    ],
)
def test_invalid_changes_are_refused(error: type[CoordinatorError], text: str, name: str, one: ConfigChange) -> None:
    with pytest.raises(error) as raised:
        decide(image_of(), one, name=name)
    assert str(raised.value) == text


def test_a_topic_alteration_is_a_single_put_at_the_version_it_was_decided_on() -> None:
    image = image_of(kept_ms="1")
    topic = configs.decide_topic_configs(image, "a", [change(SET, "new.ms", "5")], FakeValidator(), replaces=False)
    plan = configs.topic_alteration(replace(image.topics["a"], version=7), topic)
    [put] = plan.operations
    assert isinstance(put, Put)
    assert (put.path, put.version) == (paths.topic("a"), 7)
    assert decode_topic(put.path, put.value).configs == {"kept.ms": "1", "new.ms": "5"}
    assert plan.topic == replace(topic, version=8)


def test_an_alteration_that_changes_nothing_writes_nothing() -> None:
    image = with_broker_configs(image_of(kept_ms="1"), {"1": {"a.key": "1"}})
    assert configs.topic_alteration(image.topics["a"], image.topics["a"]).operations == ()
    assert configs.broker_alteration(image, {"1": {"a.key": "1"}}).operations == ()


def test_brokers_have_configs_of_their_own_and_a_default_of_all() -> None:
    image = with_broker_configs(image_of(), {"1": {"own.key": "1"}})

    def alter(broker: str, *changes: ConfigChange, replaces: bool = False) -> object:
        return configs.decide_broker_configs(image, broker, changes, FakeValidator(), replaces=replaces)

    assert alter("1", change(SET, "b.key", "2")) == {"1": {"own.key": "1", "b.key": "2"}}
    assert alter("1", change(SET, "b.key", "2"), replaces=True) == {"1": {"b.key": "2"}}
    assert alter("1", change(DELETE, "own.key")) == {}
    assert alter(CLUSTER_DEFAULT, change(SET, "b.key", "2")) == {"": {"b.key": "2"}, "1": {"own.key": "1"}}
    with pytest.raises(InvalidConfig, match="own"):
        alter(CLUSTER_DEFAULT, change(SET, "own.key", "2"))
    with pytest.raises(InvalidConfig, match="unknown"):
        alter("1", change(SET, "unknown.key", "2"))


def test_the_node_of_all_brokers_is_created_and_then_replaced() -> None:
    wanted = {"": {"b.key": "2"}}
    with_node = replace(image_of(), singles={paths.BROKER_CONFIGS: SingleNode(4, b'{"later":1}')})
    for image, kind in ((image_of(), Create), (with_node, Put)):
        [write] = configs.broker_alteration(image, wanted).operations
        assert isinstance(write, Create | Put)
        assert type(write) is kind
        assert decode_broker_configs(write.path, write.value) == wanted
        assert (getattr(write, "version", None), b"later" in write.value) in ((None, False), (4, True))
    large = {str(number): {"k": "v" * 48_000} for number in range(5)}
    [write] = configs.broker_alteration(image_of(), large).operations
    assert isinstance(write, Create)
    check_size([write, Create(paths.change(1), write.value)])  # a change repeats the write
    many = {str(number): {"k": "v" * 60_000} for number in range(5)}
    with pytest.raises(InvalidConfig, match="of all brokers together"):
        configs.broker_alteration(image_of(), many)
