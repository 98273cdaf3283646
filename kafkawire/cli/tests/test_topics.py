"""`kafkawire topics` against a cluster in memory: output, changes and exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.client.tests.fake_admin import TOPIC, FakeAdmin
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.messages.create_topics import CreateTopicsRequest
from kafkawire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkawire.requests.errors import ErrorCode


@pytest.fixture
def fake() -> FakeAdmin:
    """`orders` has two partitions; the second one has no leader."""
    cluster = FakeAdmin(2)
    cluster.topics["orders"] = [FakeLog(leader=2), FakeLog(leader=-1)]
    return cluster


def run(fake: FakeAdmin, *arguments: str) -> Result:
    command = ["topics", *arguments, "--bootstrap-server", "kafka-2:9092"]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def printed(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def document(fake: FakeAdmin, *arguments: str) -> Any:
    result = run(fake, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result, code: int = 1) -> str:
    assert result.exit_code == code
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def test_list(fake: FakeAdmin) -> None:
    fake.topics["events"] = [FakeLog()]
    assert printed(run(fake, "list")) == [
        ["TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"],
        ["events", "1", "1", "no"],
        ["orders", "2", "1", "no"],
    ]
    assert [one["topic"] for one in document(fake, "list")] == ["events", "orders"]


def test_describe(fake: FakeAdmin) -> None:
    fake.eligible["orders", 1] = [2, 1]
    assert printed(run(fake, "describe", "orders"))[1:] == [
        ["orders", "0", "2", "-1", "2", "2", "-", "-"],
        ["orders", "1", "-", "-1", "-1", "-1", "2,1", "-"],
    ]
    (topic,) = document(fake, "describe", "--all")
    assert topic["partitions"][0] == {
        "partition": 0,
        "leader": 2,
        "leader_epoch": -1,
        "replicas": [2],
        "in_sync": [2],
        "eligible": [],
        "offline": [],
    }
    assert topic["partitions"][1]["eligible"] == [2, 1]


def test_how_far_replicas_are_behind_each_broker_says_for_itself(fake: FakeAdmin) -> None:
    for broker_id, lag in ((1, 7), (2, 0)):
        row = DescribeLogDirsPartition(partition_index=0, offset_lag=lag)
        moving = DescribeLogDirsPartition(partition_index=0, offset_lag=99, is_future_key=True)
        topic = DescribeLogDirsTopic(name="orders", partitions=[row, moving])
        fake.log_dirs[broker_id] = [DescribeLogDirsResult(log_dir="/data", topics=[topic])]
    assert [row[-1] for row in printed(run(fake, "describe", "orders", "--lag"))] == ["LAGS", "1:7,2:0", "-"]
    (described,) = document(fake, "describe", "orders", "--lag")
    assert [one["lags"] for one in described["partitions"]] == [{"1": 7, "2": 0}, {}]


def test_describe_of_a_missing_topic_is_an_error_and_the_others_are_shown(fake: FakeAdmin) -> None:
    result = run(fake, "describe", "orders", "gone")
    assert refused(result) == "topic gone: there is no such topic or partition"
    assert "orders" in result.stdout


def test_create(fake: FakeAdmin) -> None:
    result = run(fake, "create", "new", "--partitions", "3", "--set", "retention.ms=5")
    assert printed(result) == [["TOPIC", "RESULT"], ["new", "created"]]
    assert len(fake.topics["new"]) == 3
    assert fake.configs[TOPIC, "new"] == {"retention.ms": "5"}
    assert document(fake, "create", "plain") == [{"topic": "plain", "created": True, "error": None}]
    request = fake.requests_of(CreateTopicsRequest)[-1]
    assert [(one.num_partitions, one.replication_factor) for one in request.topics] == [(-1, -1)]


def test_a_dry_run_changes_nothing(fake: FakeAdmin) -> None:
    result = run(fake, "create", "new", "--dry-run")
    assert printed(result)[1] == ["new", "can", "be", "created"]
    assert "--dry-run" in result.stderr
    assert document(fake, "alter", "orders", "--partitions", "5", "--dry-run")[0]["altered"] is False
    assert len(fake.topics["orders"]) == 2
    assert "new" not in fake.topics


def test_a_topic_that_exists(fake: FakeAdmin) -> None:
    assert refused(run(fake, "create", "orders")) == "topic orders: there is a topic of this name"
    assert run(fake, "create", "orders", "--if-not-exists").exit_code == 0


def test_the_controller_is_waited_for(fake: FakeAdmin) -> None:
    fake.refuse(CreateTopicsRequest, ErrorCode.NOT_CONTROLLER)
    assert run(fake, "create", "new").exit_code == 0
    assert len(fake.requests_of(CreateTopicsRequest)) == 2


def test_alter(fake: FakeAdmin) -> None:
    assert run(fake, "alter", "orders", "--partitions", "5").exit_code == 0
    assert len(fake.topics["orders"]) == 5
    result = run(fake, "alter", "orders", "gone", "--partitions", "5")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: topic gone: there is no such topic or partition",
        "Error: topic orders: Topic already has 5 partition(s).",
    ]


@pytest.mark.parametrize("versions", [(1, 5), (1, 6)])
def test_delete(fake: FakeAdmin, versions: tuple[int, int]) -> None:
    fake.versions[20] = versions
    assert printed(run(fake, "delete", "orders"))[1] == ["orders", "deleted"]
    assert fake.topics == {}
    assert refused(run(fake, "delete", "orders")) == "topic orders: there is no such topic or partition"
    assert run(fake, "delete", "orders", "--if-exists").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--all", "orders"],
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--set", "retention.ms"],
        ["alter", "t"],
        ["delete"],
    ],
)
def test_a_command_that_is_not_clear(fake: FakeAdmin, arguments: list[str]) -> None:
    refused(run(fake, *arguments), code=2)
    assert fake.requests == []
