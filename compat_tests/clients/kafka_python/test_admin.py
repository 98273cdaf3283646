"""kafka-python's KafkaAdminClient on topics, configs, offsets, groups and the cluster."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

with warnings.catch_warnings():  # of how it reads its message definitions
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import OffsetAndMetadata, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic, OffsetSpec
    from kafka.errors import NoError, RetriableError

from compat_tests.clients.confluent.clients import flush, producer, wait_until, wait_until_known
from compat_tests.harness.target import TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def sooner_or_later(is_so: Callable[[], bool], complaint: str) -> None:
    """Repeat a check: the client does not ask again if a coordinator is loading or has moved."""

    def is_told() -> bool:
        try:
            return is_so()
        except RetriableError:
            return False

    wait_until(is_told, complaint)


def create(broker: Broker, admin: KafkaAdminClient, topic: str, **configs: str) -> None:
    """Create a topic and wait until each broker knows it: the reply comes earlier."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs=named)])
    wait_until_known(broker, topic)


def described(admin: KafkaAdminClient, topic: str, config_filter: str = "modified") -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found: dict[str, Any] = admin.describe_configs([resource], config_filter=config_filter)["topic"][topic]
    return found


def values(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    return {key: one["value"] for key, one in described(admin, topic).items()}


def test_a_topic_is_described_with_its_configs(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic, max_message_bytes="2000000")
    assert values(admin, topic) == {"max.message.bytes": "2000000"}
    everything = described(admin, topic, "all")
    assert len(everything) >= 33
    assert everything["segment.ms"]["config_type"] == "LONG"


@pytest.mark.parametrize("incremental", [False, True])
def test_configs_are_altered(broker: Broker, admin: KafkaAdminClient, topic: str, incremental: bool) -> None:
    create(broker, admin, topic, max_message_bytes="2000000")
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "100000"})
    assert admin.alter_configs([changed], incremental=incremental)["topic"][topic] == "OK"
    altered = {"max.message.bytes": "2000000", "segment.ms": "100000"}
    wait_until(lambda: values(admin, topic) == altered, "the configs are not altered")
    bad = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "soon"})
    assert "segment.ms" in admin.alter_configs([bad], incremental=incremental)["topic"][topic]
    wait_until(lambda: values(admin, topic) == altered, "the configs are not as they were")  # by whichever broker


def test_a_broker_describes_itself(admin: KafkaAdminClient) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, "1")
    found = admin.describe_configs([resource], config_filter="all")["broker"]["1"]
    assert found["node.id"]["value"] == "1"
    assert found["node.id"]["read_only"]


def test_more_partitions(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic)
    admin.create_partitions({topic: 3})
    wait_until_known(broker, topic, 3)
    (described_topic,) = admin.describe_topics([topic])
    assert len(described_topic["partitions"]) == 3


def test_topics_are_listed_as_config_resources(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic)
    found = admin.list_config_resources(["TOPIC"])
    assert topic in found["topic"]


def test_a_topic_is_created_listed_described_and_deleted(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic)
    assert topic in admin.list_topics()
    (one,) = admin.describe_topic_partitions([topic])["topics"]
    leader = broker.leader_id(topic)
    (row,) = one["partitions"]
    assert (row["partition_index"], row["leader_id"], row["isr_nodes"]) == (0, leader, [leader])
    admin.delete_topics([one["topic_id"]])
    wait_until(lambda: topic not in admin.list_topics(), f"{topic} is still listed")


def test_offsets_records_and_log_dirs(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic)
    client = producer(broker)
    for after_ms in (0, 2000, 1000):
        client.produce(topic, b"value", timestamp=FIRST_MS + after_ms)
        flush(client)
    partition = TopicPartition(topic, 0)
    assert admin.delete_records({partition: 1})[partition]["low_watermark"] == 1
    for asked, offset in (
        (OffsetSpec.EARLIEST, 1),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 1),
        (FIRST_MS + 1500, 1),
        (FIRST_MS + 3000, -1),
    ):
        assert admin.list_partition_offsets({partition: asked})[partition].offset == offset
    found = {one["broker"]: one["log_dirs"] for one in admin.describe_log_dirs({topic: [0]})}
    assert found.keys() == broker.brokers.keys()
    assert [number for number, (one,) in found.items() if one["topics"]] == [broker.leader_id(topic)]
    (log_dir,) = found[broker.leader_id(topic)]
    assert (log_dir["error_code"], log_dir["log_dir"]) == (0, str(broker.leader_of(topic).data_dir))
    ((row,),) = [one["partitions"] for one in log_dir["topics"]]
    assert (row["partition_index"], row["offset_lag"], row["is_future_key"]) == (0, 0, False)
    assert row["partition_size"] > 0


def test_a_group_is_created_by_an_offset_and_deleted(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    create(broker, admin, topic)
    group, partition = f"group-of-{topic}", TopicPartition(topic, 0)

    def is_set() -> bool:
        return admin.alter_group_offsets(group, {partition: OffsetAndMetadata(5, "noted", -1)})[partition] is NoError

    def listed() -> list[str]:
        return [one["group_state"] for one in admin.list_groups() if one["group_id"] == group]

    def described() -> tuple[str, list[object]]:
        found = admin.describe_groups([group])[group]
        return found["group_state"], found["members"]

    def committed() -> list[tuple[int, str]]:
        return [(one.offset, one.metadata) for one in admin.list_group_offsets({group: None})[group].values()]

    sooner_or_later(is_set, "the group's offset is not set")
    sooner_or_later(lambda: listed() == ["Empty"], "the group is not listed")
    sooner_or_later(lambda: described() == ("Empty", []), "the group is not described")
    sooner_or_later(lambda: committed() == [(5, "noted")], "the offset is not told")
    sooner_or_later(lambda: admin.delete_group_offsets(group, [partition])[partition] is NoError, "it is not deleted")
    sooner_or_later(lambda: committed() == [], "the offset is still told")
    sooner_or_later(lambda: bool(admin.delete_groups([group])) and listed() == [], "the group is still listed")


def test_the_cluster(broker: Broker, admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    ports = {one["broker_id"]: one["port"] for one in cluster["brokers"]}
    assert ports == {number: one.port for number, one in broker.brokers.items()}
    assert cluster["controller_id"] in ports
    features = admin.describe_features()
    assert (features.keys() == {"transaction.version"}) == (TARGET != "kafka")
    for feature in features.values():
        low, high = feature["supported"]
        assert 0 <= low <= high
