"""Apache Kafka and kafkawire with a remote tier in a directory each, and the segments in it."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import QUICK_JVM, ApacheKafka
from compat_tests.harness.broker import Broker
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import KAFKA_TIER_JARS, need_kafka_tier_jars
from compat_tests.harness.target import TARGET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Both brokers do within a second what takes minutes or hours by default.
QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "250",
    "log.retention.check.interval.ms": "250",
    "log.initial.task.delay.ms": "250",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# And as little as may be stays on disks.
IN_TIER = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
SEGMENT_OBJECTS = "*-*-*-*"  # of a partition, in a store that is a directory
_THEIRS = {
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "100",
}


class Tiered(Broker):
    """A broker whose store a test can read."""

    @abc.abstractmethod
    def copied(self, topic: str, topic_id: bytes) -> list[int]:
        """The first offsets of the segments that the tier has of partition 0."""


class TieredKafka(ApacheKafka, Tiered):
    """Apache Kafka with LocalTieredStorage as its store."""

    classpath = f"{KAFKA_TIER_JARS}/*"

    def __init__(
        self, directory: Path, overrides: Mapping[str, str] | None = None, *, jvm: Sequence[str] = QUICK_JVM
    ) -> None:
        told = {**QUICK, **_THEIRS, "rsm.config.dir": str(directory / "tier"), **(overrides or {})}
        super().__init__(directory, told, jvm=jvm)

    def copied(self, topic: str, topic_id: bytes) -> list[int]:
        found = (self.directory / "tier").glob(f"kafka-tiered-storage/{topic}-0-*/*.log")
        return sorted(int(each.name.partition("-")[0]) for each in found)


class TieredKafkawire(Kafkawire, Tiered):
    """kafkawire with a directory as its store."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, {**QUICK, "tier.store": f"file://{directory}/tier", **(overrides or {})})

    def copied(self, topic: str, topic_id: bytes) -> list[int]:
        found = (self.directory / "tier").glob(f"*/{topic_id.hex()}/0/{SEGMENT_OBJECTS}")
        return sorted(int(each.name.partition("-")[0]) for each in found)


def tiered_target(directory: Path) -> Broker:
    """The broker under test with a tier, not yet started."""
    if TARGET == "kafka":
        need_kafka_tier_jars()
        return TieredKafka(directory)
    return TieredKafkawire(directory)
