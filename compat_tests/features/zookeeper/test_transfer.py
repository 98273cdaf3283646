"""A single broker becomes the first one of a cluster: its metadata go to a real ensemble, its log dirs stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.features.cli.commands import document, kafkawire
from compat_tests.harness.broker import BrokerFailedError
from compat_tests.harness.cluster import broker_of
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker
    from compat_tests.harness.zookeeper import ZooKeeperEnsemble

TIMEOUT_S = 30
PARTITIONS = 3
RECORDS = 100
CREDENTIALS = "kafkawire:secret"


def fill(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic("orders", PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])["orders"].result(TIMEOUT_S)
    produce(broker)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(RECORDS, TIMEOUT_S)) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def produce(broker: Broker) -> None:
    """Write to every partition: a group has no lag where it has committed nothing."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("orders", str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_moved_broker_keeps_its_topics_and_groups(ensemble: ZooKeeperEnsemble, chroot: str, tmp_path: Path) -> None:
    connect, file = ensemble.connect + chroot, str(tmp_path / "export")
    credentials = tmp_path / "credentials"
    credentials.write_text(CREDENTIALS)
    place = ("--zookeeper", connect, "--credentials", str(credentials))
    alone = Kafkawire(tmp_path / "1", {"broker.id": "1"})
    with alone:
        fill(alone)
        before = document(alone, "topics", "describe", "orders")
        running = kafkawire("metadata", "export", file, "--data-dir", str(alone.data_dir))
        assert "in use by another broker" in running.stderr
    exported = kafkawire("metadata", "export", file, "--data-dir", str(alone.data_dir), "--set-aside")
    assert exported.returncode == 0, exported.stderr
    with pytest.raises(BrokerFailedError, match="the log dirs belong to the cluster"), alone:
        pass  # it does not go on by mistake
    imported = kafkawire("metadata", "import", file, *place)
    assert (imported.returncode, imported.stdout) == (0, exported.stdout), imported.stderr
    again = kafkawire("metadata", "import", file, *place)
    assert (again.returncode, "has a cluster" in again.stderr) == (1, True)
    with broker_of(tmp_path / "1", connect, 1, {"zookeeper.credentials.file": str(credentials)}) as broker:
        after = document(broker, "topics", "describe", "orders")
        assert [one["topic_id"] for one in after] == [one["topic_id"] for one in before]
        produce(broker)
        [group] = document(broker, "groups", "lag", "g")
        assert group["lag"] == RECORDS
        unclear = kafkawire("metadata", "export", str(tmp_path / "x"), *place)
        assert "stop the brokers first" in unclear.stderr
    back = kafkawire("metadata", "export", str(tmp_path / "back"), *place)
    assert (back.returncode, back.stdout) == (0, exported.stdout), back.stderr
