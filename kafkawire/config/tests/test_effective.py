"""Configs in effect: values, sources, descriptions, and checks of changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coordinator.errors import InvalidConfig, InvalidTopicRequest
from engine.log_config import CompressionType, FlushPolicy, LogConfig
from kafkawire.config.broker_config import BROKER_KEYS, load
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.config.entries import ConfigEntry, ConfigSource
from kafkawire.config.keys import Update
from kafkawire.config.topic_config import LOG_KEYS, TOPIC_KEYS

# kafka-configs --describe --all on a topic of Apache Kafka 4.4.0
KAFKA_TOPIC_KEYS = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}
OURS = {"flush.policy", "index.keys"}
HOUR_MS = 3_600_000

TOPIC, BROKER, ALL, STATIC, DEFAULT = list(ConfigSource)[:5]


def configs(
    static: Mapping[str, str] | None = None, dynamic: Mapping[str, Mapping[str, str]] | None = None
) -> EffectiveConfigs:
    """Effective configs of broker 1."""
    found = EffectiveConfigs(load(static or {})[0])
    found.change(dynamic or {})
    return found


def of_topic(of: EffectiveConfigs, key: str, **topic: str) -> ConfigEntry:
    (entry,) = [
        one for one in of.topic("t", {name.replace("_", "."): v for name, v in topic.items()}) if one.name == key
    ]
    return entry


def of_broker(of: EffectiveConfigs, key: str) -> ConfigEntry:
    (entry,) = [one for one in of.broker() if one.name == key]
    return entry


def test_topics_have_all_keys_of_kafka_and_ours() -> None:
    assert len(KAFKA_TOPIC_KEYS) == 37
    assert TOPIC_KEYS.keys() == KAFKA_TOPIC_KEYS | OURS
    assert [one.name for one in configs().topic("t", {})] == sorted(TOPIC_KEYS)


def test_without_configs_the_log_goes_by_the_engines_defaults() -> None:
    assert configs().log_config("t", {}) == configs().log_defaults == LogConfig()


def test_config_sources_take_precedence_from_topic_down_to_default() -> None:
    key, expected = "segment.bytes", [1, 2, 3, 4, 5]
    mib = 1024 * 1024
    static = {"log.segment.bytes": str(2 * mib)}
    of_all = {"": {"log.segment.bytes": str(3 * mib)}}
    own = {**of_all, "1": {"log.segment.bytes": str(4 * mib)}, "2": {"log.segment.bytes": str(9 * mib)}}
    found = [
        configs().log_config("t", {}),
        configs(static).log_config("t", {}),
        configs(static, of_all).log_config("t", {}),
        configs(static, own).log_config("t", {}),
        configs(static, own).log_config("t", {key: str(5 * mib)}),
    ]
    assert [one.segment_size_bytes // mib for one in found] == [1024, *expected[1:]]
    entry = of_topic(configs(static, own), key, segment_bytes=str(5 * mib))
    assert (entry.value, entry.source) == (str(5 * mib), TOPIC)
    assert [(name, int(value or 0) // mib, source) for name, value, source in entry.synonyms] == [
        (key, 5, TOPIC),
        ("log.segment.bytes", 4, BROKER),
        ("log.segment.bytes", 3, ALL),
        ("log.segment.bytes", 2, STATIC),
        ("log.segment.bytes", 1024, DEFAULT),
    ]


def test_removing_a_dynamic_config_restores_the_default() -> None:
    found = configs({}, {"": {"message.max.bytes": "1"}})
    found.change({})
    assert found.log_defaults == LogConfig()
    assert found.cluster_default() == []


@pytest.mark.parametrize(
    ("static", "dynamic", "expected_ms"),
    [
        ({}, {}, 168 * HOUR_MS),
        ({"log.roll.hours": "2"}, {}, 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, {}, 5),
        ({"log.roll.hours": "2"}, {"log.roll.ms": "7"}, 7),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, {"log.roll.ms": "7"}, 7),
    ],
)
def test_of_two_units_the_finer_goes_before(static: dict[str, str], dynamic: dict[str, str], expected_ms: int) -> None:
    found = configs(static, {"1": dynamic})
    assert found.log_config("t", {}).segment_age_ms == expected_ms
    assert of_topic(found, "segment.ms").value == str(expected_ms)


def test_synonyms_are_told_as_kafka_tells_them() -> None:
    """A key that is not set itself has no synonyms, even if the same setting in another unit is set."""
    unset = of_topic(configs({"log.roll.hours": "2"}), "segment.ms")
    assert (unset.source, unset.synonyms) == (DEFAULT, ())
    assert of_broker(configs(), "log.roll.ms").value is None
    assert of_topic(configs({"log.roll.ms": "5"}), "segment.ms").synonyms == (
        ("log.roll.ms", "5", STATIC),
        ("log.roll.hours", "168", DEFAULT),
    )
    assert of_topic(configs(), "remote.storage.enable").synonyms == ()
    assert of_broker(configs(), "num.partitions").synonyms == (("num.partitions", "1", DEFAULT),)


def test_a_broker_describes_all_its_keys_with_values_and_sources() -> None:
    found = configs({"log.dirs": " /b , /a", "auto.create.topics.enable": "FALSE"})
    assert [one.name for one in found.broker()] == sorted(BROKER_KEYS)
    dirs = of_broker(found, "log.dirs")
    assert (dirs.value, dirs.source, dirs.is_read_only, dirs.type) == ("/b,/a", STATIC, True, 7)
    assert dirs.documentation == BROKER_KEYS["log.dirs"].documentation
    assert of_broker(found, "auto.create.topics.enable").value == "false"
    assert not of_broker(found, "message.max.bytes").is_read_only


def test_an_older_key_name_is_described_under_the_newer_name() -> None:
    entry = of_broker(EffectiveConfigs(load({"broker.id": "7"})[0]), "node.id")
    assert (entry.value, entry.source) == ("7", STATIC)


def test_the_default_of_all_brokers_tells_only_itself() -> None:
    found = configs({"max.connections": "10"}, {"": {"max.connections": "5"}, "1": {"max.connections": "3"}})
    (entry,) = found.cluster_default()
    assert (entry.name, entry.value, entry.source) == ("max.connections", "5", ALL)
    assert entry.synonyms == (("max.connections", "5", ALL),)
    assert of_broker(found, "max.connections").value == "3"
    assert found.config.max_connections == 3


def test_internal_topics_are_always_synced_and_keep_the_codec_of_the_producer() -> None:
    found = configs({"log.flush.policy": "async", "compression.type": "gzip"})
    theirs, others = found.log_config("__consumer_offsets", {"compression.type": "lz4"}), found.log_config("t", {})
    assert (theirs.flush_policy, theirs.compression_type) == (FlushPolicy.SYNC, CompressionType.PRODUCER)
    assert (others.flush_policy, others.compression_type) == (FlushPolicy.ASYNC, CompressionType.GZIP)
    shown = {one.name: one.value for one in found.topic("__consumer_offsets", {})}
    assert (shown["flush.policy"], shown["compression.type"]) == ("sync", "producer")
    assert of_topic(found, "flush.policy").value == "async"
    assert of_topic(found, "compression.type").value == "gzip"


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("no.such.key", "1", "Unknown topic config name: no.such.key"),
        ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: must be between 1048576"),
        ("segment.ms", "soon", "Invalid value soon for configuration segment.ms: must be a whole number"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker"),
        ("index.interval.bytes", "1", "index.interval.bytes=1 is not supported yet, only index.interval.bytes=4096"),
        ("compression.type", "none", "Invalid value none for configuration compression.type: must be one of uncompr"),
        ("compression.gzip.level", "0", "must be between 1 and 9, or -1"),
        ("compression.gzip.level", "10", "must be between 1 and 9, or -1"),
        ("compression.lz4.level", "0", "must be between 1 and 17"),
        ("compression.zstd.level", "23", "must be between -131072 and 22"),
    ],
)
def test_an_invalid_topic_config_is_refused(key: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        configs().validate("t", {key: value})


@pytest.mark.parametrize("key", TOPIC_KEYS)
def test_a_topic_accepts_its_own_effective_values(key: str) -> None:
    found = configs()
    entry = of_topic(found, key)
    assert entry.value is not None
    found.validate("t", {key: entry.value})
    given = found.topic("t", {key: entry.value})
    assert {one.name: one.value for one in given} == {one.name: one.value for one in found.topic("t", {})}


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("log.dirs", "/x", r"Cannot update these configs dynamically: \[log.dirs\]"),
        ("message.max.bytes", "-1", "message.max.bytes=-1: must be between 0"),
        ("max.connections", "many", "max.connections=many: must be a whole number"),
    ],
)
def test_an_invalid_dynamic_broker_config_is_refused_as_in_kafka(key: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidTopicRequest, match=complaint):
        configs().validate_broker({key: value}, is_default=False)


def test_a_per_broker_key_is_refused_as_a_cluster_default() -> None:
    with pytest.raises(
        InvalidTopicRequest, match=r"at default cluster level, broker id must be specified: \[listeners"
    ):
        configs().validate_broker({"listeners": "PLAINTEXT://:1"}, is_default=True)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("no.such.key", "1", "Unknown broker config name: no.such.key"),
        ("num.io.threads", "1", "num.io.threads has no effect here"),
        ("listeners", "PLAINTEXT://:1", "listeners cannot be changed while the broker runs yet"),
        ("log.index.interval.bytes", "1", "log.index.interval.bytes=1: not supported yet, only .*=4096"),
    ],
)
def test_an_unsupported_dynamic_broker_config_is_refused(key: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        configs().validate_broker({key: value}, is_default=False)


def test_unsupported_stored_configs_of_a_newer_version_are_ignored() -> None:
    found = configs({}, {"1": {"no.such.key": "1", "message.max.bytes": "77"}, "": {"log.dirs": "/x"}})
    assert found.log_defaults.max_message_size_bytes == 77
    assert found.cluster_default() == []


def test_an_invalid_stored_config_of_an_older_version_is_ignored() -> None:
    found = configs({}, {"": {"log.cleaner.io.max.bytes.per.second": "Infinity"}})
    assert found.cluster_default() == []
    assert of_broker(found, "log.cleaner.io.max.bytes.per.second").value == "1.7976931348623157E308"


def test_keys_that_can_be_changed_at_run_time_are_kafkas() -> None:
    """Kafka's set of such keys: the first of several units (DynamicLogConfig). Of kafkawire's: defaults of topics."""
    changeable = {name for name, key in BROKER_KEYS.items() if key.update is Update.CLUSTER_WIDE}
    assert changeable - LOG_KEYS.keys() == {
        "config.providers",
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.manager.copy.max.bytes.per.second",
        "transaction.partition.verification.enable",
    }
    assert {"log.roll.ms", "log.retention.ms", "log.flush.interval.ms"} < changeable
    assert not {"log.roll.hours", "log.retention.minutes", "log.retention.hours"} & changeable


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "delete"),
        ("leader.replication.throttled.replicas", ""),
        ("log.cleanup.policy", "delete"),
        ("advertised.listeners", ""),
        ("segment.bytes", None),
        ("num.partitions", None),
        ("no.such.key", None),
    ],
)
def test_a_list_key_has_a_base_value_and_other_keys_have_none(key: str, value: str | None) -> None:
    assert configs().list_value(key) == value


def test_unclean_elections_are_for_all_or_for_a_topic_and_for_no_broker_alone() -> None:
    key, of = "unclean.leader.election.enable", configs()
    of.validate_broker({key: "true"}, is_default=True)
    of.change({"": {key: "true"}})
    assert of_topic(of, key).value == "true"
    with pytest.raises(InvalidTopicRequest, match="of all brokers at run time"):
        of.validate_broker({key: "true"}, is_default=False)


@pytest.mark.parametrize("value", ["*", "0:1", "0:1,1:1", " 0:1 , 12:7 ", "0:1,0:1", "00:01", ""])
def test_replicas_are_named_by_partition_and_broker(value: str) -> None:
    configs().validate("t", {"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize("value", ["none", "0", "a:b", "0:1:2", "*,0:1", "-1:2", "0:", ":1", "9999999999:1", "٣:1"])
def test_an_invalid_list_of_throttled_replicas_is_refused_as_in_kafka(value: str) -> None:
    with pytest.raises(InvalidConfig, match=r"must be \* or a list of replicas"):
        configs().validate("t", {"follower.replication.throttled.replicas": value})
