"""kafka-topics of Apache Kafka, beyond making and removing a topic; a call takes about two seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compat_tests.clients.java.commands import topics

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_a_topic_is_described_by_its_id_as_by_its_name(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic, "--replica-assignment", "1,1")
    shown = topics(broker, "--describe", "--topic", topic)
    found = re.search(r"TopicId: (\S+)\s+PartitionCount: 2\s+ReplicationFactor: 1\s", shown)
    assert found, shown
    assert re.findall(r"Partition: (\d)\s+Leader: 1\s+Replicas: 1\s+Isr: 1\s", shown) == ["0", "1"]
    by_id = topics(broker, "--describe", "--topic-id", found.group(1))  # without eligible leaders, by Metadata
    assert by_id.replace("N/A", "") == shown


def test_missing_topics_are_refused_but_not_with_if_exists(broker: Broker, topic: str) -> None:
    for _ in range(2):
        topics(broker, "--create", "--topic", topic, "--if-not-exists")
    for action in ("--describe", "--delete"):
        absent = topics(broker, action, "--topic", f"no-{topic}", check=False)
        assert f"Topic 'no-{topic}' does not exist as expected" in absent
        topics(broker, action, "--topic", f"no-{topic}", "--if-exists")
    fewer = topics(broker, "--alter", "--topic", topic, "--partitions", "1", check=False)
    assert "InvalidPartitionsException" in fewer


def test_describe_options_select_partitions_in_trouble_and_topics_with_overrides(broker: Broker, topic: str) -> None:
    """No partition is in trouble while all brokers are up; with one replica, each is at its minimum ISR."""
    topics(broker, "--create", "--topic", topic, "--replication-factor", "1", "--config", "segment.ms=100000")
    for trouble in ("under-replicated", "unavailable", "under-min-isr"):
        assert topics(broker, "--describe", "--topic", topic, f"--{trouble}-partitions") == ""
    assert f"Topic: {topic}\tPartition: 0" in topics(broker, "--describe", "--topic", topic, "--at-min-isr-partitions")
    overridden = topics(broker, "--describe", "--topics-with-overrides", "--exclude-internal")
    assert "__consumer_offsets" not in overridden
    assert re.search(rf"Topic: {topic}\s.*Configs: .*segment.ms=100000", overridden)
