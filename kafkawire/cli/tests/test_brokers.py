"""`kafkawire brokers`: output and exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.cli.brokers import reports
from kafkawire.cli.common.cluster_command import ask
from kafkawire.client.tests.fake_admin import BROKER, FakeAdmin
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import FIRST_PORT, open_cluster

if TYPE_CHECKING:
    from kafkawire.client.connection import Address


@pytest.fixture
def fake() -> FakeAdmin:
    """Broker 2 leads two of three partitions; broker 3 is fenced."""
    cluster = FakeAdmin(3)
    cluster.topics["orders"] = [FakeLog(leader=2), FakeLog(leader=2), FakeLog(leader=1)]
    cluster.fenced = {3}
    rows = [
        DescribeLogDirsPartition(partition_index=0, partition_size=1_000),
        DescribeLogDirsPartition(partition_index=1, partition_size=500),
        DescribeLogDirsPartition(partition_index=1, partition_size=7, is_future_key=True),
    ]
    topic = DescribeLogDirsTopic(name="orders", partitions=rows)
    cluster.log_dirs[2] = [
        DescribeLogDirsResult(log_dir="/b", topics=[], error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        DescribeLogDirsResult(log_dir="/a", topics=[topic], total_bytes=9_000, usable_bytes=4_000),
    ]
    return cluster


def run(fake: FakeAdmin, *arguments: str) -> Result:
    command = ["brokers", *arguments, "--bootstrap-server", "kafka-2:9092"]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def document(fake: FakeAdmin, *arguments: str) -> Any:
    result = run(fake, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list(fake: FakeAdmin) -> None:
    result = run(fake, "list")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "STATE", "LEADS", "REPLICAS"],
        ["1", "kafka-1:9092", "rack-1", "yes", "up", "1", "1"],
        ["2", "kafka-2:9092", "rack-2", "no", "up", "2", "2"],
        ["3", "kafka-3:9092", "rack-3", "no", "fenced", "0", "0"],
    ]
    assert document(fake, "list")[2] == {
        "broker": 3,
        "host": "kafka-3",
        "port": 9092,
        "rack": "rack-3",
        "controller": False,
        "fenced": True,
        "leads": 0,
        "replicas": 0,
    }


def test_describe_shows_log_dirs_and_dynamic_configs(fake: FakeAdmin) -> None:
    fake.configs[BROKER, "2"] = {"log.retention.ms": "5"}
    result = run(fake, "describe", "2")
    assert result.exit_code == 0
    assert [line.split(maxsplit=1)[1] for line in result.stdout.splitlines()[5:]] == [
        "leads                    2",
        "replicas                 2",
        "log dir /a               1,500 bytes in 2 partitions, 4,000 of 9,000 free",
        "log dir /b               offline",
        "config log.retention.ms  5 (broker)",
    ]
    (described,) = document(fake, "describe", "2")
    assert described["log_dirs"] == [
        {
            "log_dir": "/a",
            "partitions": 2,
            "bytes": 1_500,
            "total_bytes": 9_000,
            "usable_bytes": 4_000,
            "error": None,
        },
        {
            "log_dir": "/b",
            "partitions": 0,
            "bytes": 0,
            "total_bytes": None,
            "usable_bytes": None,
            "error": "offline",
        },
    ]
    assert described["configs"] == [{"key": "log.retention.ms", "value": "5", "source": "broker"}]


def test_describe_does_not_ask_a_fenced_broker(fake: FakeAdmin) -> None:
    fake.unreachable.add(fake.addresses[3])
    assert [one["broker"] for one in document(fake, "describe", "--all")] == [1, 2, 3]


def test_describe_prints_an_error_for_an_unreachable_broker_and_shows_the_others(fake: FakeAdmin) -> None:
    fake.unreachable.add(fake.addresses[1])
    result = run(fake, "describe", "1", "2", "7")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: there is no broker 7",
        "Error: broker 1: cannot connect to kafka-1:9092: Connection refused",
    ]
    assert "/a" in result.stdout
    fake.unreachable.clear()
    fake.refuse(DescribeLogDirsRequest, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert run(fake, "describe", "2").stderr == "Error: broker 2: not authorized for the cluster\n"


def test_unregister_removes_a_gone_broker_and_refuses_a_broker_that_is_up(fake: FakeAdmin) -> None:
    result = run(fake, "unregister", "3", "2", "7")
    assert result.exit_code == 1
    assert [line.split(maxsplit=1) for line in result.stdout.splitlines()[1:]] == [
        ["2", "it is up: stop it first"],
        ["3", "unregistered"],
        ["7", "BROKER_ID_NOT_REGISTERED"],
    ]
    assert [one["broker"] for one in document(fake, "list")] == [1, 2]


@pytest.mark.parametrize("versions", [(0, 0), (0, 1)])
def test_brokers_that_do_not_tell_of_fenced_ones(fake: FakeAdmin, versions: tuple[int, int]) -> None:
    fake.versions[DescribeClusterRequest.API_KEY] = versions
    assert [one["fenced"] for one in document(fake, "list")] == [False, False]


def test_a_cluster_that_is_not_described(fake: FakeAdmin) -> None:
    fake.refuse(DescribeClusterRequest, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    assert run(fake, "list").stderr == "Error: the cluster: UNSUPPORTED_ENDPOINT_TYPE\n"


@pytest.mark.parametrize("arguments", [(), ("1", "--all")])
def test_brokers_have_to_be_named(fake: FakeAdmin, arguments: tuple[str, ...]) -> None:
    assert run(fake, "describe", *arguments).exit_code == 2


async def test_a_broker_that_died_is_shown_as_fenced_by_our_own_cluster() -> None:
    async with open_cluster() as (cluster, _):
        connect_memory = cluster.deps_of(1).start_deps().connect

        async def connect(address: Address) -> trio.abc.Stream:
            return await connect_memory(*address)

        async def fenced() -> list[tuple[int, bool]]:
            report = await ask(reports.report_list, f"memory:{FIRST_PORT + 1}", 30.0, connect)
            document: Any = report.document
            return [(one["broker"], one["fenced"]) for one in document]

        with trio.fail_after(120):
            while await fenced() != [(1, False), (2, False), (3, False)]:  # noqa: ASYNC110 - of another broker
                await trio.sleep(0.1)
            cluster.kill(3)
            while await fenced() != [(1, False), (2, False), (3, True)]:  # noqa: ASYNC110
                await trio.sleep(0.1)
        plain: Any = await cluster.connect(1).call(DescribeClusterRequest(), 2)
        assert [one.broker_id for one in plain.brokers] == [1, 2]
