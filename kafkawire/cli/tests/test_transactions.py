"""`kafkawire transactions` against a cluster in memory: output, changes and exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.cli.transactions.reports import report_describe
from kafkawire.client.cluster import Cluster
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.client.tests.fake_transactions import NOW_MS, FakeProducer, FakeTransaction, FakeTransactions
from kafkawire.messages.describe_producers import DescribeProducersRequest
from kafkawire.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkawire.requests.errors import ErrorCode

STARTED, SHOWN = NOW_MS - 60_000, "2023-11-14T22:13:20.000+00:00"
OPEN = {
    "topic": "orders",
    "partition": 1,
    "producer_id": 1000,
    "producer_epoch": 2,
    "coordinator_epoch": None,
    "start_offset": 5,
    "last_timestamp_ms": STARTED,
}


@pytest.fixture
def fake() -> FakeTransactions:
    """`billing` runs in three partitions, `idle` is over; in `orders:1` producer 1001 has nothing open."""
    cluster = FakeTransactions()
    cluster.topics["orders"] = [FakeLog(), FakeLog()]
    cluster.transactions["idle"] = FakeTransaction("CompleteAbort", 1001)
    cluster.transactions["billing"] = FakeTransaction(partitions={"orders": [1, 0], "events": [2]})
    cluster.producers["orders", 1] = [
        FakeProducer(1000, 5, last_timestamp=STARTED), FakeProducer(1001), FakeProducer(1002, 9, last_timestamp=-1),
    ]  # fmt: skip
    return cluster


def run(fake: FakeTransactions, *arguments: str) -> Result:
    command = ["transactions", *arguments, "--bootstrap-server", "kafka-1:9092"]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def printed(result: Result) -> list[list[str]]:
    """The cells of the printed table; the run must succeed."""
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def document(fake: FakeTransactions, *arguments: str) -> Any:
    result = run(fake, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result, code: int = 1) -> str:
    """The only line of standard error, which is no traceback."""
    assert result.exit_code == code
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert line == result.stderr.splitlines()[-1]
    return line.removeprefix("Error: ")


def test_list(fake: FakeTransactions) -> None:
    assert printed(run(fake, "list")) == [
        ["TRANSACTIONAL-ID", "STATE", "PRODUCER-ID"],
        ["billing", "Ongoing", "1000"],
        ["idle", "CompleteAbort", "1001"],
    ]
    assert document(fake, "list", "--state", "completeabort", "--state", "CompleteCommit") == [
        {"transactional_id": "idle", "state": "CompleteAbort", "producer_id": 1001}
    ]
    assert document(fake, "list", "--longer-than-ms", "60000") == []
    assert len(document(fake, "list", "--longer-than-ms", "59999", "--pattern", "b.*")) == 1
    assert refused(run(fake, "list", "--pattern", "(")).endswith("the pattern is not valid")


async def test_describe(fake: FakeTransactions) -> None:
    async with Cluster(fake.bootstrap, fake.connect) as cluster:
        report = await report_describe(cluster, ["idle", "billing"], NOW_MS)
        ahead = await report_describe(cluster, ["billing"], STARTED - 1)
    assert report.rows == [
        ["billing", "Ongoing", 1000, 2, 60_000, SHOWN, 60_000, "events:2;orders:0,1"],
        ["idle", "CompleteAbort", 1001, 2, 60_000, SHOWN, None, None],
    ]
    assert ahead.rows[0][6] == 0


def test_describe_as_a_document(fake: FakeTransactions) -> None:
    (found,) = document(fake, "describe", "billing")
    assert found.pop("running_ms") > 60_000
    assert found == {
        "transactional_id": "billing",
        "state": "Ongoing",
        "producer_id": 1000,
        "producer_epoch": 2,
        "timeout_ms": 60_000,
        "started_ms": STARTED,
        "coordinator": "kafka-1:9092",
        "partitions": [
            {"topic": "events", "partition": 2},
            {"topic": "orders", "partition": 0},
            {"topic": "orders", "partition": 1},
        ],
    }


def test_before_its_first_transaction_an_id_has_no_start(fake: FakeTransactions) -> None:
    fake.transactions["new"] = FakeTransaction("Empty", started_ms=-1)
    assert printed(run(fake, "describe", "new"))[1] == ["new", "Empty", "1000", "2", "60000", "-", "-", "-"]


def test_an_id_that_there_is_not_is_an_error_and_the_others_are_shown(fake: FakeTransactions) -> None:
    result = run(fake, "describe", "nobody", "idle")
    assert refused(result) == "transactional id nobody: the transactional id does not exist"
    assert "CompleteAbort" in result.stdout


@pytest.mark.parametrize("which", [("--producer-id", "1000"), ("--start-offset", "5")])
def test_abort(fake: FakeTransactions, which: tuple[str, str]) -> None:
    assert printed(run(fake, "abort", "orders:1", *which)) == [
        ["TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "START-OFFSET", "LAST-TIMESTAMP", "RESULT"],
        ["orders", "1", "1000", "2", "5", SHOWN, "aborted"],
    ]
    assert [one.start_offset for one in fake.producers["orders", 1]] == [-1, -1, 9]
    assert refused(run(fake, "abort", "orders:1", *which)).startswith("orders-1 has no open transaction ")


def test_abort_as_a_document(fake: FakeTransactions) -> None:
    done = document(fake, "abort", "orders:1", "--producer-id", "1000")
    assert done == [{**OPEN, "aborted": True, "error": None}]


def test_abort_of_an_ambiguous_partition_lists_open_transactions_and_aborts_none(fake: FakeTransactions) -> None:
    result = run(fake, "abort", "orders:1")
    assert printed(result)[1:] == [
        ["orders", "1", "1000", "2", "5", SHOWN, "open"],
        ["orders", "1", "1002", "2", "9", "-", "open"],
    ]
    assert result.stderr == "nothing was changed: --producer-id or --start-offset says which to abort\n"
    assert document(fake, "abort", "orders:1")[0] == {**OPEN, "aborted": False, "error": None}
    assert run(fake, "abort", "orders:0").stderr == "orders-0 has no open transaction\n"
    assert fake.requests_of(WriteTxnMarkersRequest) == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["orders:1", "--producer-id", "1001"], "orders-1 has no open transaction of producer 1001"),
        (["orders:1", "--start-offset", "6"], "orders-1 has no open transaction from offset 6 on"),
        (["orders:0", "--producer-id", "1000"], "orders-0 has no open transaction of producer 1000"),
        (["orders:9", "--producer-id", "1000"], "orders-9: there is no such topic or partition"),
        (["gone:0"], "gone-0: there is no such topic or partition"),
    ],
)
def test_nothing_to_abort(fake: FakeTransactions, arguments: list[str], line: str) -> None:
    assert refused(run(fake, "abort", *arguments)) == line
    assert fake.requests_of(WriteTxnMarkersRequest) == []


def test_abort_is_refused_by_the_broker(fake: FakeTransactions) -> None:
    fake.refuse(WriteTxnMarkersRequest, ErrorCode.INVALID_PRODUCER_EPOCH)
    result = run(fake, "abort", "orders:1", "--producer-id", "1000")
    assert refused(result) == "orders-1: the producer has a newer epoch"
    assert "the producer has a newer epoch" in result.stdout
    fake.refuse(DescribeProducersRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    result = run(fake, "abort", "orders:1", "--producer-id", "1000")
    assert refused(result) == "orders-1: not authorized for the topic"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["list", "--state", "Happy"],
        ["list", "--longer-than-ms", "-1"],
        ["abort"],
        ["abort", "orders", "--producer-id", "1"],
        ["abort", "orders:0,1", "--producer-id", "1"],
        ["abort", "orders:0", "--producer-id", "-1"],
        ["abort", "orders:0", "--producer-id", "1", "--start-offset", "0"],
    ],
)
def test_a_command_that_is_not_clear(fake: FakeTransactions, arguments: list[str]) -> None:
    refused(run(fake, *arguments), code=2)
    assert fake.requests == []
