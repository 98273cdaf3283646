"""Kafka's config keys in kafkawire and in Apache Kafka: type, default, dynamic update, synonyms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from compat_tests.clients.confluent.clients import TIMEOUT_S, create_topic
from compat_tests.differential.normalise import OWN_TOPIC_KEYS
from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.requirements import need_kafka_jars
from kafkawire.client.cluster import Cluster
from kafkawire.client.configs import BROKER, TOPIC, Resource, describe_configs
from kafkawire.client.connection import parse_bootstrap
from kafkawire.config.broker_config import BROKER_KEYS, load
from kafkawire.config.effective import EffectiveConfigs
from kafkawire.config.entries import ConfigEntry
from kafkawire.config.topic_config import TOPIC_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compat_tests.harness.broker import Broker
    from kafkawire.messages.describe_configs import DescribeConfigsResourceResult

OUR_BROKER_KEYS = {
    "connections.max.unauthenticated",
    "controller.recovery.wait.ms",
    "disk.max.used.ratio",
    "disk.reject.ratio",
    "follower.replication.throttled.rate",  # Kafka shows it once it is set
    "http.allowed.hosts",
    "http.listeners",
    "inter.broker.secret.file",
    "io.workers",
    "journal.slot.bytes",
    "leader.replication.throttled.rate",
    "log.cleanup.window",
    "log.dir.stray.retention.ms",
    "log.flush.policy",
    "log.index.keys",
    "offsets.view.flush.interval.ms",
    "offsets.view.mode",
    "producer.id.expiration.check.interval.ms",  # Kafka has it and does not show it
    "scrub.bytes.per.second",
    "scrub.interval.ms",
    "ssl.reload.interval.ms",
    "tier.cache.dir",
    "tier.cache.size.bytes",
    "tier.copiers",
    "tier.s3.access.key",
    "tier.s3.endpoint",
    "tier.s3.region",
    "tier.s3.secret.key",
    "tier.store",
    "zookeeper.connect",  # Kafka had the ZooKeeper keys once, except the credentials
    "zookeeper.connection.timeout.ms",
    "zookeeper.credentials.file",
    "zookeeper.session.timeout.ms",
}

# Different defaults: a first run needs no file, a bound is better than none, or a feature is not built yet.
OTHER_DEFAULTS = {
    "group.coordinator.rebalance.protocols": "classic",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "data",
    "node.id": "1",
    "queued.max.request.bytes": "536870912",
}

Said = tuple[str | None, int, bool, bool]  # default, type, sensitive, read-only


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    need_kafka_jars()
    with ApacheKafka(tmp_path_factory.mktemp("kafka")) as running:
        create_topic(running, "t")
        yield running


async def ask(broker: Broker, resource: Resource) -> list[DescribeConfigsResourceResult]:
    with trio.fail_after(TIMEOUT_S):
        async with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
            return await describe_configs(cluster, resource)


def theirs(found: Sequence[DescribeConfigsResourceResult]) -> dict[str, Said]:
    return {one.name: (default_of(one), one.config_type, one.is_sensitive, one.read_only) for one in found}


def default_of(one: DescribeConfigsResourceResult) -> str | None:
    """The default of a key, also if the test's broker was given another value; None without one."""
    defaults = [synonym.value for synonym in one.synonyms if synonym.source == 5]
    return one.value if one.config_source == 5 else defaults[0] if defaults else None


def ours(found: Sequence[ConfigEntry]) -> dict[str, Said]:
    return {one.name: (one.value, one.type, one.is_sensitive, one.is_read_only) for one in found}


def test_topic_keys(kafka: Broker) -> None:
    said = theirs(trio.run(partial(ask, kafka, Resource(TOPIC, "t"))))
    assert said.keys() == TOPIC_KEYS.keys() - set(OWN_TOPIC_KEYS)
    mine = ours(EffectiveConfigs(load({})[0]).topic("t", {}))
    assert {name: mine[name] for name in said} == said


def test_synonyms_of_topic_keys(kafka: Broker) -> None:
    found = trio.run(partial(ask, kafka, Resource(TOPIC, "t")))
    said = {one.name: [(s.name, s.value) for s in one.synonyms if s.source == 5] for one in found}
    mine = {
        one.name: [(name, value) for name, value, _ in one.synonyms]
        for one in EffectiveConfigs(load({})[0]).topic("t", {})
    }
    assert {name: mine[name] for name in said} == said


def test_broker_keys(kafka: Broker) -> None:
    said = theirs(trio.run(partial(ask, kafka, Resource(BROKER, "1"))))
    assert BROKER_KEYS.keys() - said.keys() == OUR_BROKER_KEYS
    mine = ours(EffectiveConfigs(load({})[0]).broker())
    different = {name: (mine[name], said[name]) for name in mine.keys() & said.keys() if mine[name] != said[name]}
    assert {name: mine[name][0] for name in different} == OTHER_DEFAULTS
    assert all(left[1:] == right[1:] for left, right in different.values())
