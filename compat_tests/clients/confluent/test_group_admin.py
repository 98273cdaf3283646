"""confluent-kafka's AdminClient on groups: setting an offset creates a group, which can be described and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.clients.confluent.clients import TIMEOUT_S, create_topic

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def offsets(admin: AdminClient, group: str) -> list[tuple[str, int, int]]:
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return [(one.topic, one.partition, one.offset) for one in found.result(TIMEOUT_S).topic_partitions]


def test_an_altered_offset_creates_a_group_that_is_described_and_deleted(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    group = f"group-of-{topic}"
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])
    (done,) = admin.alter_consumer_group_offsets([asked]).values()
    done.result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert listed.errors == []
    assert [one.state for one in listed.valid if one.group_id == group] == [ConsumerGroupState.EMPTY]
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    assert described.coordinator.id in broker.brokers
    assert offsets(admin, group) == [(topic, 0, 5)]
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert offsets(admin, group) == []
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
