"""Apache Kafka's tools that move replicas, elect leaders and unregister brokers, on several brokers and on one."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from compat_tests.clients.confluent.clients import (
    Admin,
    create_topic,
    describe,
    flush,
    producer,
    read,
    wait_until,
    wait_until_known,
)
from compat_tests.clients.java.commands import tool
from compat_tests.harness.target import TARGET, target_broker
from compat_tests.harness.whereabouts import ask, leaders

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker

REASSIGN = "reassign.ReassignPartitionsCommand"
SEVERAL = pytest.mark.skipif(TARGET != "cluster", reason="it takes several brokers")
NONE = ("", str(2**63 - 1))
IDLE = "No partition reassignments found."


def create(broker: Broker, topic: str, *replicas: int) -> None:
    """Create a topic with one partition that has these replicas."""
    Admin(broker).create(NewTopic(topic, 1, replica_assignment=[[*replicas]]))
    wait_until_known(broker, topic)


def write(broker: Broker, topic: str, first: int, count: int = 20) -> None:
    """Write numbers with acks=all, each once, even if they are sent again when the leader changes."""
    client = producer(broker, acks="all", enable_idempotence=True)
    for number in range(first, first + count):
        client.produce(topic, b"%d" % number)
    flush(client)


def numbers(broker: Broker, topic: str, count: int) -> list[int]:
    return [int(message.value() or b"") for message in read(broker, topic, 0, count)]


def replicas(broker: Broker, topic: str) -> tuple[list[int], list[int]]:
    """All replicas, and those in sync."""
    [partition] = Admin(broker).describe(topic).partitions
    return [one.id for one in partition.replicas], sorted(one.id for one in partition.isr)


def reassign(broker: Broker, directory: Path, topic: str, to: list[int], *arguments: str, check: bool = True) -> str:
    plan = directory / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": to}]}))
    return tool(broker, REASSIGN, "--reassignment-json-file", str(plan), *arguments, check=check)


def elect(broker: Broker, topic: str, kind: str) -> str:
    return tool(broker, "LeaderElectionCommand", "--election-type", kind, "--topic", topic, "--partition", "0")


def order(broker: Broker, topic: str, to: list[int]) -> None:
    """Reassign a partition as the tool would, which needs all brokers to be up."""
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": to}]}]
    fields = {"topics": rows, "timeout": 10_000, "allow_replication_factor_change": True}
    told = ask(broker.port, "alter_partition_reassignments", 1, fields)
    assert told["responses"][0]["partitions"][0]["error_code"] == 0


def test_tools_find_no_reassignment_no_election_and_no_broker_to_unregister(broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    assert IDLE in tool(broker, REASSIGN, "--list")
    assert f"Valid replica already elected for partitions {topic}-0" in elect(broker, topic, "preferred")
    told = tool(broker, "ClusterTool", "unregister", "--id", "77", check=False)
    assert "is not currently registered" in told or "not registered" in told


@SEVERAL
def test_replicas_move_while_records_come_and_go(broker: Broker, topic: str, tmp_path: Path) -> None:
    create(broker, topic, 1, 2)
    write(broker, topic, 0)
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposed = tool(broker, REASSIGN, "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3", "--generate")
    assert f'"topic":"{topic}","partition":0,"replicas":[1,2]' in proposed
    assert "Successfully started partition reassignment" in reassign(broker, tmp_path, topic, [3, 2], "--execute")
    write(broker, topic, 20)
    wait_until(lambda: replicas(broker, topic) == ([3, 2], [2, 3]), "the replicas do not move")
    assert f"Reassignment of partition {topic}-0 is completed." in reassign(broker, tmp_path, topic, [3, 2], "--verify")
    write(broker, topic, 40)
    assert broker.leader_id(topic) == 3
    assert numbers(broker, topic, 60) == [*range(60)]
    assert IDLE in tool(broker, REASSIGN, "--list")


def limits(broker: Broker, topic: str) -> set[str]:
    """The names of the throttles that are set for the topic and the brokers."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConfigResource(ResourceType.TOPIC, topic), *(ConfigResource(ResourceType.BROKER, one) for one in "123")]
    entries = [entry for one in asked for entry in describe(client, one).values()]
    return {one.name for one in entries if "replication.throttled" in one.name and one.value not in NONE}


@SEVERAL
def test_replicas_move_no_faster_than_the_tool_is_told(broker: Broker, topic: str, tmp_path: Path) -> None:
    create(broker, topic, 1, 2)
    client = producer(broker, acks="all")
    for number in range(40):
        client.produce(topic, b"%d" % number, headers=[("pad", os.urandom(100_000))])
    flush(client)
    begun_s = time.monotonic()
    told = reassign(broker, tmp_path, topic, [3, 2], "--execute", "--throttle", "500000")
    assert "The inter-broker throttle limit was set to 500000 B/s" in told
    assert {one.rpartition(".")[2] for one in limits(broker, topic)} == {"rate", "replicas"}
    wait_until(lambda: replicas(broker, topic) == ([3, 2], [2, 3]), "the replicas do not move", 60)
    assert time.monotonic() - begun_s > 4, "four megabytes, and at most one of them at once"
    assert numbers(broker, topic, 40) == [*range(40)]
    told = reassign(broker, tmp_path, topic, [3, 2], "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in told
    assert not limits(broker, topic)


def held(broker: Broker, topic: str) -> dict[int, tuple[int, int]]:
    """The size and lag of partition 0 by broker, as DescribeLogDirs reports it."""
    *_, shown = tool(broker, "LogDirsCommand", "--describe", "--topic-list", topic).splitlines()
    return {
        one["broker"]: (partition["size"], partition["offsetLag"])
        for one in json.loads(shown)["brokers"]
        for log_dir in one["logDirs"]
        for partition in log_dir["partitions"]
    }


@SEVERAL
def test_three_replicas_change_their_order_and_their_number(broker: Broker, topic: str, tmp_path: Path) -> None:
    create(broker, topic, 1, 2, 3)
    write(broker, topic, 0)
    reassign(broker, tmp_path, topic, [3, 1, 2], "--execute")
    wait_until(lambda: replicas(broker, topic) == ([3, 1, 2], [1, 2, 3]), "their order does not change")
    told = elect(broker, topic, "preferred")  # unless a controller has come to it by itself
    assert "Successfully completed leader election (PREFERRED)" in told or "Valid replica already elected" in told
    wait_until(lambda: broker.leader_id(topic) == 3, "the first of them does not lead")
    write(broker, topic, 20)
    [size_bytes] = {size_bytes for size_bytes, _ in held(broker, topic).values()}

    reassign(broker, tmp_path, topic, [2, 3], "--execute")
    wait_until(lambda: replicas(broker, topic) == ([2, 3], [2, 3]), "one too many is left")
    write(broker, topic, 40)
    reassign(broker, tmp_path, topic, [2, 1, 3], "--execute")
    wait_until(lambda: replicas(broker, topic) == ([2, 1, 3], [1, 2, 3]), "there are not as many again")
    assert f"Reassignment of partition {topic}-0 is completed." in reassign(
        broker, tmp_path, topic, [2, 1, 3], "--verify"
    )
    now = held(broker, topic)
    assert now.keys() == {1, 2, 3}
    assert all(size > size_bytes for size, _ in now.values())
    assert {lag for _, lag in now.values()} == {0}
    assert numbers(broker, topic, 60) == [*range(60)]


@SEVERAL
def test_tools_cancel_elect_reassign_and_unregister_after_brokers_died(tmp_path: Path) -> None:
    with target_broker(tmp_path) as broker:
        one = broker.brokers[1]  # it lives on
        create(broker, "kept", 1, 2)
        create(broker, "fragile", 2, 3)
        write(one, "kept", 0)
        write(one, "fragile", 0)
        broker.brokers[3].kill()
        wait_until(lambda: replicas(one, "fragile") == ([2, 3], [2]), "3 is still in sync")
        write(one, "fragile", 20, 5)

        order(one, "kept", [1, 3])
        assert "kept-0: replicas: 1,3,2. adding: 3. removing: 2." in tool(one, REASSIGN, "--list")
        # Without it the tool resets throttles, and waits for the broker that is gone.
        cancelled = reassign(one, tmp_path, "kept", [1, 3], "--cancel", "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: kept-0" in cancelled
        assert replicas(one, "kept") == ([1, 2], [1, 2])

        broker.brokers[2].kill()
        wait_until(lambda: leaders(one.port, "fragile") == {0: -1}, "a broker that is dead leads")
        broker.brokers[3].start()
        assert "Successfully completed leader election (UNCLEAN)" in elect(one, "fragile", "unclean")
        assert numbers(one, "fragile", 20) == [*range(20)]
        broker.brokers[2].start()
        wait_until(lambda: replicas(one, "fragile") == ([2, 3], [2, 3]), "2 is not in sync again")
        assert "Successfully completed leader election (PREFERRED)" in elect(one, "fragile", "preferred")
        write(one, "fragile", 20)
        assert numbers(one, "fragile", 40) == [*range(40)]

        reassign(one, tmp_path, "fragile", [2, 1], "--execute")
        wait_until(lambda: replicas(one, "fragile") == ([2, 1], [1, 2]), "the replicas do not move")
        broker.brokers[3].stop()
        assert "Broker 3 is no longer registered." in tool(one, "ClusterTool", "unregister", "--id", "3")
        wait_until(lambda: sorted(node.id for node in Admin(one).cluster().nodes) == [1, 2], "3 is told of")
        assert numbers(one, "fragile", 40) == [*range(40)]
