"""ZooKeeper is restored from a snapshot under running brokers; an operator accepts that, and the brokers go on."""

from __future__ import annotations

import json
import shutil
import struct
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from compat_tests.features.cli.commands import kafkawire
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.wire import WireConnection
from compat_tests.harness.zookeeper import zookeeper_ensemble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

TIMEOUT_S: Final = 30
SESSION_MS: Final = 3_000
RECORDS: Final = 50
INIT_PRODUCER_ID: Final = 22
CHROOT: Final = "/rollback"
SETTINGS: Final = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
SIZE: Final = 2


def create(admin: AdminClient, topic: str, partitions: int) -> bool:
    with suppress(KafkaException):
        admin.create_topics([NewTopic(topic, partitions, SIZE)])[topic].result(TIMEOUT_S)
    return topic in admin.list_topics(timeout=TIMEOUT_S).topics


def produce(brokers: Broker, topic: str, values: range) -> None:
    failed: list[object] = []
    settings = {"bootstrap.servers": brokers.bootstrap, "acks": "all", "enable.idempotence": True}
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, str(value), callback=lambda error, _: failed.append(error) if error else None)
    assert (producer.flush(TIMEOUT_S), failed) == (0, [])


def consumed(brokers: Broker, topic: str, count: int, partitions: int = 3) -> list[int]:
    """The values of a topic, read without a group: its coordinator may need metadata that are away."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found = sorted(int(one.value() or b"") for one in consumer.consume(count, TIMEOUT_S))
    consumer.close()
    return found


def new_producer_id(broker: Broker) -> int:
    with WireConnection(broker.port) as connection:
        connection.send_frame(struct.pack(">hhihhi", INIT_PRODUCER_ID, 0, 1, -1, -1, 60_000))
        reply = connection.receive_frame()
    assert reply is not None
    _, _, error, producer_id, _ = struct.unpack(">iihqh", reply)
    assert error == 0
    return int(producer_id)


@contextmanager
def nodes(address: str) -> Iterator[Callable[[str], Any]]:
    """A function that reads a node, or the names below a path that ends with a slash."""
    client = KazooClient(address + CHROOT)
    client.start(TIMEOUT_S)
    try:
        yield lambda path: json.loads(client.get(path)[0]) if not path.endswith("/") else client.get_children(path[:-1])
    finally:
        client.stop()
        client.close()


def greatest(address: str, topic: str) -> dict[str, int]:
    """The greatest values of the counters in the metadata."""
    with nodes(address) as read:
        topic_id = read(f"/topics/{topic}")["topic_id"]
        states = [read(f"/partitions/{topic_id}/{number}") for number in read(f"/partitions/{topic_id}/")]
        members = [read(f"/members/{name}") for name in read("/members/")]
        return {
            "leader": max(one["leader_epoch"] for one in states),
            "broker": max(one["epoch"] for one in members),
            "controller": read("/controller-epoch")["epoch"],
            "change": max(map(int, read("/changes/"))),
        }


def until(is_so: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_brokers_go_on_after_a_rollback_that_was_accepted(tmp_path: Path) -> None:
    with zookeeper_ensemble(tmp_path / "zookeeper", size=1) as ensemble:
        connect, data = ensemble.connect + CHROOT, tmp_path / "zookeeper" / "1" / "data"
        brokers = KafkawireCluster(tmp_path / "brokers", SETTINGS, connect, SIZE)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        with brokers:
            assert create(admin, "named", 3)
            produce(brokers, "named", range(RECORDS))
            ensemble.kill()
            shutil.copytree(data, tmp_path / "snapshot")
            ensemble.start()

            until(lambda: create(admin, "unnamed", 1))  # once the brokers are connected again
            brokers.brokers[2].kill()
            brokers.brokers[2].start()
            produce(brokers, "named", range(RECORDS, 2 * RECORDS))
            produce(brokers, "unnamed", range(RECORDS))
            used_id = max(new_producer_id(one) for one in brokers.brokers.values())
            used = greatest(ensemble.connect, "named")

            ensemble.kill()
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "snapshot", data)
            ensemble.start()
            assert greatest(ensemble.connect, "named")["change"] < used["change"]
            assert consumed(brokers, "unnamed", RECORDS, 1) == [*range(RECORDS)]  # served by their leaders

            log_dirs = [part for one in brokers.brokers.values() for part in ("--log-dir", str(one.data_dir))]
            command = ("metadata", "accept-rollback", "--zookeeper", connect, *log_dirs)
            dry = kafkawire(*command)
            assert dry.returncode == 0, dry.stderr
            assert "nothing was changed: --yes does it" in dry.stderr
            brokers.kill()
        refused = kafkawire("metadata", "accept-rollback", "--zookeeper", connect, "--yes")
        assert refused.returncode == 1, refused.stderr

        def is_done() -> bool:
            """Try to accept the rollback. Returns whether it succeeded: sessions in the snapshot must have ended."""
            done = kafkawire(*command, "--yes", "-o", "json")
            assert done.returncode == 0 or "stop the brokers first" in done.stderr, done.stderr
            return done.returncode == 0

        until(is_done)
        for one in brokers.brokers.values():
            assert (one.data_dir / "unnamed-0" / "partition.metadata").exists()
        with brokers:
            assert consumed(brokers, "named", 2 * RECORDS) == [*range(2 * RECORDS)]
            produce(brokers, "named", range(2 * RECORDS, 3 * RECORDS))
            now = greatest(ensemble.connect, "named")
            assert all(now[name] > used[name] + 2**19 for name in used), (used, now)
            assert min(new_producer_id(one) for one in brokers.brokers.values()) > used_id
            assert consumed(brokers, "named", 3 * RECORDS) == [*range(3 * RECORDS)]
            for one in brokers.brokers.values():
                assert [*one.data_dir.glob("*-stray/partition.metadata")], "it is kept as a stray"
