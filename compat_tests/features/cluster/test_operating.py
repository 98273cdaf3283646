"""Several brokers as docs/operating describes them: their setup, growth, a lost broker, and the loss of ZooKeeper."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections import Counter
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    Delivery,
    commit,
    create_topic,
    flush,
    new_consumer,
    producer,
    wait_until,
)
from compat_tests.features.cluster.versions import TODAY, Replaceable, cluster, member
from compat_tests.features.cluster.writer import numbers_in
from compat_tests.harness.broker import BrokerFailedError
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import run
from compat_tests.harness.zookeeper import ZooKeeperEnsemble, zookeeper_ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

PARTITIONS: Final = 6
RECORDS: Final = 60
OF_TWO: Final = {"zookeeper.session.timeout.ms": "8000", "offsets.topic.replication.factor": "2"}
IMPATIENT: Final = {"zookeeper.connection.timeout.ms": "1000"}
CREDENTIALS: Final = "zookeeper.credentials.file"
AWAY_S = 17.0  # longer than two ZooKeeper sessions
FENCED_WITHIN_S = 6.5  # its session lasts for longer, and the refusals of the controller are not seen


@pytest.fixture
def three(tmp_path: Path, connect: str) -> Iterator[list[Replaceable]]:
    with cluster(tmp_path, connect, TODAY, TODAY, TODAY) as brokers:
        yield brokers


def leaders(broker: Broker, topic: str) -> list[int]:
    """The leaders by partition in the metadata of this broker, once it knows the topic."""
    wait_until(lambda: topic in Admin(broker).topics(), f"{topic} is not listed")
    return [one.leader for _, one in sorted(Admin(broker).topics()[topic].partitions.items())]


def write(broker: Broker, topic: str, **settings: object) -> Delivery:
    """Write numbers to the partitions in turn."""
    delivery = Delivery()
    client = producer(broker, acks="all", **settings)
    for number in range(RECORDS):
        client.produce(topic, str(number), partition=number % PARTITIONS, on_delivery=delivery)
    flush(client)
    return delivery


def check_refused(broker: Replaceable, reason: str) -> None:
    """Check that a broker does not start, and that its last line names the reason."""
    with pytest.raises(BrokerFailedError, match="exited with 1"):
        broker.start()
    last = broker.log_tail().splitlines()[-1]
    assert (last[:7], reason in last) == ("Error: ", True), last


def test_a_fourth_broker_leads_new_partitions_only(three: list[Replaceable], connect: str, tmp_path: Path) -> None:
    one, two, _ = three
    create_topic(one, "old", PARTITIONS)
    before = leaders(one, "old")
    assert Counter(before) == {1: 2, 2: 2, 3: 2}
    with Replaceable(tmp_path / "4", connect, 4) as four:
        create_topic(one, "new", 8)
        assert Counter(leaders(four, "new")) == {1: 2, 2: 2, 3: 2, 4: 2}
        Admin(two).grow("old", PARTITIONS + 4)
        wait_until(lambda: len(leaders(four, "old")) == PARTITIONS + 4, "it does not grow")
        assert leaders(four, "old")[:PARTITIONS] == before
        assert sorted(leaders(four, "old")[PARTITIONS:]) == [1, 2, 3, 4]


def controller(broker: Replaceable) -> int:
    with urllib.request.urlopen(f"{broker.http_url}/health/cluster", timeout=TIMEOUT_S) as answer:
        found: int = json.load(answer)["controller"]
    return found


@pytest.mark.parametrize("is_controller", [False, True])
def test_unreplicated_partitions_wait_for_their_broker_and_others_accept_records(
    three: list[Replaceable], *, is_controller: bool
) -> None:
    in_control = controller(three[0])
    lost = next(one for one in three if (one.broker_id == in_control) is is_controller)
    here, there = (one for one in three if one is not lost)
    create_topic(here, "lost", PARTITIONS)
    assert write(here, "lost").errors == []
    its = [partition for partition, leader in enumerate(leaders(here, "lost")) if leader == lost.broker_id]
    lost.kill()
    killed_s = time.monotonic()
    others = (here, there)
    wait_until(lambda: not any(lost.broker_id in leaders(each, "lost") for each in others), "it is not fenced")
    assert is_controller or time.monotonic() - killed_s < FENCED_WITHIN_S
    assert [partition for partition, leader in enumerate(leaders(here, "lost")) if leader == -1] == its
    delivery = write(here, "lost", delivery_timeout_ms=10_000)
    assert {one.partition() for one in delivery.messages} == {*range(PARTITIONS)} - {*its}
    assert len(delivery.errors) == RECORDS // PARTITIONS * len(its)
    create_topic(there, "meanwhile", PARTITIONS)
    assert Counter(leaders(here, "meanwhile")) == {here.broker_id: 3, there.broker_id: 3}

    lost.start()
    wait_until(lambda: -1 not in leaders(here, "lost"), "it does not lead again")
    found = numbers_in(there, "lost", RECORDS + len(delivery.messages), PARTITIONS)
    assert [number for number in range(RECORDS) if not found[number]] == []
    assert lost.broker_id not in leaders(here, "meanwhile")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    """A ZooKeeper server for one test, which kills it."""
    with zookeeper_ensemble(tmp_path / "zookeeper", size=1) as running:
        yield running


def test_without_zookeeper_records_go_on_and_changes_wait(mortal: ZooKeeperEnsemble, tmp_path: Path) -> None:
    brokers = [
        Replaceable(tmp_path / "brokers" / str(broker_id), mortal.connect, broker_id, overrides=OF_TWO)
        for broker_id in (1, 2)
    ]
    with brokers[0] as one, brokers[1] as two:
        create_topic(one, "goes-on", PARTITIONS)
        group = new_consumer(two, group_id="goes-on")
        commit(group, TopicPartition("goes-on", 0, 1))
        epochs = [member(mortal.connect, broker.broker_id)["epoch"] for broker in brokers]
        mortal.kill()
        away_s = time.monotonic()
        assert write(one, "goes-on").errors == []
        assert numbers_in(two, "goes-on", RECORDS, PARTITIONS) == dict.fromkeys(range(RECORDS), 1)
        commit(group, TopicPartition("goes-on", 0, 2))
        group.close()
        with pytest.raises(KafkaException, match="the metadata store does not answer"):
            create_topic(one, "waits")
        third = Replaceable(tmp_path / "brokers" / "3", mortal.connect, 3, overrides=IMPATIENT)
        check_refused(third, f"no ZooKeeper server of {mortal.connect} answered within 1000 ms")
        time.sleep(max(0.0, away_s + AWAY_S - time.monotonic()))
        assert write(two, "goes-on").errors == []

        mortal.start()
        wait_until(lambda: can_create(one, "waits"), "nothing can be created")
        wait_until(lambda: "waits" in Admin(two).topics(), "the other one does not hear of it")
        assert write(two, "goes-on").errors == []
        # Their sessions went on.
        assert [member(mortal.connect, broker.broker_id)["epoch"] for broker in brokers] == epochs


def can_create(broker: Broker, topic: str) -> bool:
    try:
        create_topic(broker, topic)
    except KafkaException as error:  # one whose answer was lost may have been done
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True


def test_metadata_with_credentials_are_closed_to_other_clients_and_brokers(
    zookeeper: ZooKeeperEnsemble, connect: str, tmp_path: Path
) -> None:
    credentials, others = tmp_path / "credentials", tmp_path / "others"
    credentials.write_text("kafkawire:a password\n")
    others.write_text("kafkawire:another one\n")
    with Replaceable(tmp_path / "1", connect, 1, overrides={CREDENTIALS: str(credentials)}):
        client = KazooClient(zookeeper.connect, timeout=TIMEOUT_S)
        client.start()
        with pytest.raises(NoAuthError):
            client.get(f"{connect.partition('/')[2]}/members/1")
        client.stop()
        client.close()
        check_refused(Replaceable(tmp_path / "2", connect, 2), "without credentials")
        stranger = Replaceable(tmp_path / "3", connect, 3, overrides={CREDENTIALS: str(others)})
        check_refused(stranger, "with these credentials")


def test_log_dirs_of_another_cluster_are_refused(connect: str, tmp_path: Path) -> None:
    with Replaceable(tmp_path / "1", connect, 1), Replaceable(tmp_path / "2", f"{connect}-other", 2):
        """The log dirs of broker 1 are of the first cluster now."""
    check_refused(Replaceable(tmp_path / "1", f"{connect}-other", 1), "the log dirs belong to the cluster")


def test_over_log_dirs_of_a_cluster_a_broker_founds_no_other_one(
    zookeeper: ZooKeeperEnsemble, connect: str, tmp_path: Path
) -> None:
    with Replaceable(tmp_path / "1", connect, 1):
        """Its log dirs belong to that cluster now."""
    moved = Replaceable(tmp_path / "1", f"{connect}-empty", 1)
    moved.launch()
    try:
        wait_until(lambda: "this broker waits for that of its log dirs" in moved.log_tail(), "it does not wait")
        client = KazooClient(zookeeper.connect, timeout=TIMEOUT_S)
        client.start()
        assert client.exists(f"{connect.partition('/')[2]}-empty/cluster") is None
        client.stop()
        client.close()
    finally:
        moved.kill()


def documented() -> list[str]:
    """The code blocks of "Set up three brokers": the commands, and the properties."""
    text = (ROOT / "docs" / "operating" / "cluster.md").read_text(encoding="utf-8")
    steps = text.partition("\n## Set up three brokers\n")[2].partition("\n## ")[0]
    return [dedent(block) for block in re.findall(r"^ *```\w*\n(.*?)^ *```$", steps, re.MULTILINE | re.DOTALL)]


class Documented(Kafkawire):
    """A broker whose properties file is that of the document."""

    def command(self) -> list[str]:
        serve = super().command()[:2]
        return [*serve, str(self.directory / "server.properties"), "--set", f"http.listeners={self.http_url}"]


def test_brokers_are_set_up_as_the_document_says(connect: str, tmp_path: Path) -> None:
    typed, properties = documented()
    run(["sh", "-ec", typed.replace("/etc/kafkawire", str(tmp_path))])
    files = [tmp_path / "secret", tmp_path / "zookeeper"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    broker = Documented(tmp_path)
    here = {
        "zk1:2181,zk2:2181,zk3:2181/kafka": connect,
        "/etc/kafkawire": str(tmp_path),
        "/var/lib/kafkawire": str(broker.data_dir),
        "//:9092": f"//127.0.0.1:{broker.port}",
        "kafka1.example:9092": broker.bootstrap,
    }
    for written, meant in here.items():
        assert written in properties
        properties = properties.replace(written, meant)
    (tmp_path / "server.properties").write_text(properties)
    with broker:
        create_topic(broker, "set-up", PARTITIONS)
        assert write(broker, "set-up").errors == []
        assert leaders(broker, "set-up") == [1] * PARTITIONS
