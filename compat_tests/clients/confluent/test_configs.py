"""confluent-kafka's AdminClient on configs: keys are read as they were set, and setting them again changes nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from compat_tests.clients.confluent.clients import alter, create_topic, describe, wait_until

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})


def resource(topic: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, topic)


def set_keys(admin: AdminClient, topic: str) -> dict[str, str]:
    """The keys that were set for the topic itself: a tool with a state file reads them back."""
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: one.value for key, one in describe(admin, resource(topic)).items() if one.source == source}


def test_a_plan_that_is_applied_twice_changes_nothing(broker: Broker, admin: AdminClient, topic: str) -> None:
    """Read, compare, write the differences, read again, as infrastructure tools do: the second plan is empty."""
    create_topic(broker, topic)
    plan = {"max.message.bytes": "2000000", "segment.ms": "100000", "preallocate": "true", "cleanup.policy": "delete"}
    for expected in (plan, {}, {}):
        missing = {key: value for key, value in plan.items() if set_keys(admin, topic).get(key) != value}
        assert missing == expected
        if missing:
            alter(admin, resource(topic), {key: (AlterConfigOpType.SET, value) for key, value in missing.items()})
            wait_until(lambda: set_keys(admin, topic) == plan, "not every key is set")
    del plan["segment.ms"]
    alter(admin, resource(topic), {"segment.ms": (AlterConfigOpType.DELETE, None)})
    wait_until(lambda: set_keys(admin, topic) == plan, "a key is still set")


def test_writing_back_all_that_was_read_changes_no_value(broker: Broker, admin: AdminClient, topic: str) -> None:
    """Writing back each value of a topic's config, and then deleting all keys, leaves the values as they were."""
    create_topic(broker, topic, config={"max.message.bytes": "2000000"})
    read = {key: one.value for key, one in describe(admin, resource(topic)).items() if not one.is_read_only}
    alter(admin, resource(topic), {key: (AlterConfigOpType.SET, value) for key, value in read.items()})
    wait_until(lambda: set_keys(admin, topic) == read, "not every key is set")
    assert {key: one.value for key, one in describe(admin, resource(topic)).items()} == read
    alter(admin, resource(topic), dict.fromkeys(read, (AlterConfigOpType.DELETE, None)))
    wait_until(lambda: set_keys(admin, topic) == {}, "some keys are still set")
    assert describe(admin, resource(topic))["max.message.bytes"].value == "1048588"


def is_policy(admin: AdminClient, topic: str, policy: str) -> bool:
    value: str = describe(admin, resource(topic))["cleanup.policy"].value
    return value == policy


def test_lists_grow_and_shrink(broker: Broker, admin: AdminClient, topic: str) -> None:
    create_topic(broker, topic)
    for operation, item, expected in (
        (AlterConfigOpType.APPEND, "compact", "delete,compact"),
        (AlterConfigOpType.APPEND, "compact", "delete,compact"),
        (AlterConfigOpType.SUBTRACT, "delete", "compact"),
    ):
        alter(admin, resource(topic), {"cleanup.policy": (operation, item)})
        wait_until(partial(is_policy, admin, topic, expected), f"the policy is not {expected}")
    with pytest.raises(KafkaException) as refused:
        alter(admin, resource(topic), {"segment.ms": (AlterConfigOpType.APPEND, "1")})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_configs_are_described_with_synonyms_and_read_only_keys(broker: Broker, admin: AdminClient, topic: str) -> None:
    create_topic(broker, topic)
    found = describe(admin, resource(topic))
    assert len(found) >= 33
    one = found["max.message.bytes"]
    assert (one.value, one.is_read_only, one.is_sensitive) == ("1048588", False, False)
    assert [(other.name, other.value) for other in one.synonyms.values()] == [("message.max.bytes", "1048588")]
    of_broker = describe(admin, ConfigResource(ResourceType.BROKER, "1"))
    assert of_broker["node.id"].is_read_only
    assert of_broker["log.roll.ms"].value is None


def test_a_topic_that_there_is_not(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        describe(admin, resource(topic))
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
