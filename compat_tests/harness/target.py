"""Chooses the broker under test by KAFKAWIRE_COMPAT_TARGET: kafkawire, kafka (Apache Kafka) or cluster (three brokers).

A test that holds with both says something about Kafka; a test that only holds with kafkawire may be a misreading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import ApacheKafka
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_kafka_jars, need_zookeeper_jars

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TARGET = os.environ.get("KAFKAWIRE_COMPAT_TARGET", "kafkawire")


def target_broker(directory: Path, overrides: Mapping[str, str] | None = None) -> Broker:
    """The broker under test, not yet started."""
    if TARGET == "kafka":
        need_kafka_jars()
        return ApacheKafka(directory, overrides)
    if TARGET == "cluster":
        need_zookeeper_jars()
        return KafkawireCluster(directory, overrides)
    assert TARGET == "kafkawire", f"KAFKAWIRE_COMPAT_TARGET is {TARGET!r}, not kafkawire, kafka or cluster"
    return Kafkawire(directory, overrides)
