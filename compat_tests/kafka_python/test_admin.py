"""kafka-python's KafkaAdminClient on topics and configs, by AlterConfigs and by IncrementalAlterConfigs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

with warnings.catch_warnings():  # of how it reads its message definitions
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def create(admin: KafkaAdminClient, topic: str, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs=named)])


def described(admin: KafkaAdminClient, topic: str, config_filter: str = "modified") -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found: dict[str, Any] = admin.describe_configs([resource], config_filter=config_filter)["topic"][topic]
    return found


def values(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    return {key: one["value"] for key, one in described(admin, topic).items()}


def test_a_topic_is_described_with_what_was_set(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic, max_message_bytes="2000000")
    assert values(admin, topic) == {"max.message.bytes": "2000000"}
    everything = described(admin, topic, "all")
    assert len(everything) >= 33
    assert everything["segment.ms"]["config_type"] == "LONG"


@pytest.mark.parametrize("incremental", [False, True])
def test_configs_are_altered(admin: KafkaAdminClient, topic: str, incremental: bool) -> None:
    create(admin, topic, max_message_bytes="2000000")
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "100000"})
    assert admin.alter_configs([changed], incremental=incremental)["topic"][topic] == "OK"
    assert values(admin, topic) == {"max.message.bytes": "2000000", "segment.ms": "100000"}
    bad = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "soon"})
    assert "segment.ms" in admin.alter_configs([bad], incremental=incremental)["topic"][topic]
    assert values(admin, topic)["segment.ms"] == "100000"


def test_a_broker_describes_itself(admin: KafkaAdminClient) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, "1")
    found = admin.describe_configs([resource], config_filter="all")["broker"]["1"]
    assert found["node.id"]["value"] == "1"
    assert found["node.id"]["read_only"]


def test_more_partitions(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic)
    admin.create_partitions({topic: 3})
    (described_topic,) = admin.describe_topics([topic])
    assert len(described_topic["partitions"]) == 3


def test_what_has_configs(admin: KafkaAdminClient, topic: str) -> None:
    create(admin, topic)
    found = admin.list_config_resources(["TOPIC"])
    assert topic in found["topic"]
