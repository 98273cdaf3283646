"""`kafkawire groups` against a cluster in memory: output, changes and exit code."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.cli.common.cluster_command import ask
from kafkawire.cli.groups.reports import report_offsets
from kafkawire.client.errors import ClientError
from kafkawire.client.tests.fake_cluster import FakeCluster, FakeGroup, FakeLog, FakeMember, encode_assignment
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kafkawire.client.connection import Address


@pytest.fixture
def fake() -> FakeCluster:
    """`billing` has two readers, and lags by 5 + 0, and by 7 in a partition without reader; `old` has no members."""
    cluster = FakeCluster()
    cluster.topics["orders"] = [FakeLog(0, 15), FakeLog(2, 20), FakeLog(0, 1)]
    cluster.topics["events"] = [FakeLog(3, 10, times={3: 1000, 5: 2000})]
    cluster.groups["billing"] = FakeGroup(
        "Stable",
        assignor="range",
        members=[
            FakeMember("m-1", encode_assignment({"orders": [0, 2]}), instance_id="static-1"),
            FakeMember("m-2", encode_assignment({"orders": [1]})),
            FakeMember("m-3"),
        ],
        offsets={("orders", 0): 10, ("orders", 1): 20, ("events", 0): 3},
    )
    cluster.groups["old"] = FakeGroup(offsets={("events", 0): 9})
    return cluster


def run(fake: FakeCluster, *arguments: str, server: str = "kafka-1:9092") -> Result:
    command = ["groups", *arguments, "--bootstrap-server", server]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def printed(result: Result) -> list[list[str]]:
    """The cells of the printed table; the run must succeed."""
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def document(fake: FakeCluster, *arguments: str) -> Any:
    result = run(fake, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result, code: int = 1) -> str:
    """The only line of standard error, which is no traceback."""
    assert result.exit_code == code
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert line == result.stderr.splitlines()[-1]
    return line.removeprefix("Error: ")


def test_list(fake: FakeCluster) -> None:
    assert printed(run(fake, "list")) == [
        ["GROUP", "STATE", "TYPE", "PROTOCOL-TYPE"],
        ["billing", "Stable", "classic", "consumer"],
        ["old", "Empty", "classic", "consumer"],
    ]
    assert document(fake, "list", "--state", "empty", "--type", "Classic") == [
        {"group": "old", "state": "Empty", "type": "classic", "protocol_type": "consumer"}
    ]


def test_describe_shows_each_partition_and_its_member(fake: FakeCluster) -> None:
    result = run(fake, "describe", "billing")
    assert printed(result)[1:] == [
        ["billing", "events", "0", "3", "3", "10", "7", "-", "-", "-"],
        ["billing", "orders", "0", "10", "0", "15", "5", "m-1", "/10.0.0.1", "client"],
        ["billing", "orders", "1", "20", "2", "20", "0", "m-2", "/10.0.0.1", "client"],
        ["billing", "orders", "2", "-", "0", "1", "-", "m-1", "/10.0.0.1", "client"],
        ["billing", "-", "-", "-", "-", "-", "-", "m-3", "/10.0.0.1", "client"],
    ]
    assert result.stderr == ""


def test_describe_as_a_document(fake: FakeCluster) -> None:
    (group,) = document(fake, "describe", "old")
    assert group == {
        "group": "old",
        "state": "Empty",
        "type": "classic",
        "protocol_type": "consumer",
        "assignor": None,
        "coordinator": "kafka-1:9092",
        "partitions": [
            {
                "topic": "events",
                "partition": 0,
                "committed_offset": 9,
                "leader_epoch": 3,
                "log_start_offset": 3,
                "log_end_offset": 10,
                "lag": 1,
                "consumer_id": None,
                "host": None,
                "client_id": None,
            }
        ],
    }


def test_describe_members(fake: FakeCluster) -> None:
    assert printed(run(fake, "describe", "billing", "--members"))[1:] == [
        ["billing", "range", "m-1", "static-1", "/10.0.0.1", "client", "2", "orders:0,2"],
        ["billing", "range", "m-2", "-", "/10.0.0.1", "client", "1", "orders:1"],
        ["billing", "range", "m-3", "-", "/10.0.0.1", "client", "0", "-"],
    ]
    (group,) = document(fake, "describe", "--members", "billing")
    assert group["members"][0]["assignment"] == {"orders": [0, 2]}


def test_describe_all_says_which_have_no_members(fake: FakeCluster) -> None:
    fake.groups["moving"] = FakeGroup("PreparingRebalance", members=[FakeMember("m-1")])
    fake.groups["shared"] = FakeGroup("Stable", group_type="share")
    result = run(fake, "describe", "--all")
    assert {row[0] for row in printed(result)[1:]} == {"billing", "old", "moving"}
    assert result.stderr.splitlines() == ["group moving is rebalancing", "group old has no active members"]


def test_members_of_another_protocol_have_no_partitions(fake: FakeCluster) -> None:
    fake.groups["workers"] = FakeGroup("Stable", "connect", members=[FakeMember("w-1", b"\0\1anything")])
    assert printed(run(fake, "describe", "workers"))[1][:2] == ["workers", "-"]
    (group,) = document(fake, "describe", "workers", "--members")
    assert (group["members"][0]["partition_count"], group["members"][0]["assignment"]) == (None, None)


def test_a_group_that_there_is_not_is_an_error_and_the_others_are_shown(fake: FakeCluster) -> None:
    result = run(fake, "describe", "nobody", "old")
    assert refused(result) == "group nobody: Group nobody not found."
    assert "events" in result.stdout


def test_a_deleted_topic_has_no_end(fake: FakeCluster) -> None:
    fake.groups["old"].offsets["gone", 0] = 5
    result = run(fake, "describe", "old")
    assert printed(result)[2] == ["old", "gone", "0", "5", "-", "-", "-", "-", "-", "-"]
    assert "gone-0: there is no such topic or partition" in result.stderr


def test_lag_is_shown_the_greatest_first(fake: FakeCluster) -> None:
    assert printed(run(fake, "lag")) == [
        ["GROUP", "TOPIC", "PARTITIONS", "UNKNOWN", "LAG"],
        ["billing", "*", "4", "1", "12"],
        ["billing", "events", "1", "0", "7"],
        ["billing", "orders", "3", "1", "5"],
        ["old", "*", "1", "0", "1"],
        ["old", "events", "1", "0", "1"],
    ]
    assert document(fake, "lag", "old") == [
        {
            "group": "old",
            "state": "Empty",
            "lag": 1,
            "partitions": 1,
            "unknown_partitions": 0,
            "topics": [{"topic": "events", "lag": 1, "partitions": 1, "unknown_partitions": 0}],
        }
    ]


def test_lag_may_be_unknown_or_below_zero(fake: FakeCluster) -> None:
    fake.groups["new"] = FakeGroup("Stable", members=[FakeMember("m-1", encode_assignment({"orders": [0]}))])
    fake.groups["ahead"] = FakeGroup(offsets={("orders", 0): 99, ("orders", 1): 19})
    fake.groups["idle"] = FakeGroup()
    rows = [row for row in printed(run(fake, "lag", "new", "ahead", "idle")) if row[1] == "*"]
    assert rows == [["ahead", "*", "2", "0", "1"], ["idle", "*", "0", "0", "0"], ["new", "*", "1", "1", "-"]]
    assert printed(run(fake, "describe", "ahead"))[1][6] == "-84"


@pytest.mark.parametrize(("lag_max", "code"), [("11", 1), ("12", 0)])
def test_lag_beyond_a_limit_is_an_error(fake: FakeCluster, lag_max: str, code: int) -> None:
    result = run(fake, "lag", "--max", lag_max)
    assert result.exit_code == code
    assert ("Error: group billing lags by 12, more than 11" in result.stderr.splitlines()) == (code == 1)


def test_reset_without_execute_shows_the_new_offsets_and_commits_nothing(fake: FakeCluster) -> None:
    result = run(fake, "reset", "old", "--topic", "orders", "--topic", "events:0", "--to-earliest")
    assert printed(result) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        ["old", "events", "0", "9", "3"],
        ["old", "orders", "0", "-", "0"],
        ["old", "orders", "1", "-", "2"],
        ["old", "orders", "2", "-", "0"],
    ]
    assert "--execute" in result.stderr
    assert fake.requests_of(OffsetCommitRequest) == []


@pytest.mark.parametrize(
    ("goal", "offset"),
    [
        (["--to-latest"], 10),
        (["--to-current"], 9),
        (["--to-offset", "4"], 4),
        (["--to-offset", "400"], 10),
        (["--shift-by", "-2"], 7),
        (["--to-datetime", "1970-01-01T00:00:01.001"], 5),
        (["--by-duration", "PT1S"], 10),
    ],
)
def test_reset_with_execute_commits_the_new_offsets(fake: FakeCluster, goal: list[str], offset: int) -> None:
    done = document(fake, "reset", "old", "--all-topics", *goal, "--execute")
    assert (done["group"], done["executed"], done["partitions"][0]["new_offset"]) == ("old", True, offset)
    assert fake.groups["old"].offsets == {("events", 0): offset}


def test_reset_applies_offsets_from_an_exported_file(fake: FakeCluster, tmp_path: Path) -> None:
    exported = run(fake, "reset", "old", "--topic", "events", "--to-earliest", "--export").stdout
    assert exported == "events,0,3\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    assert run(fake, "reset", "old", "--from-file", str(file), "--execute").exit_code == 0
    assert fake.groups["old"].offsets == {("events", 0): 3}


def test_reset_makes_a_group_that_there_is_not(fake: FakeCluster) -> None:
    assert run(fake, "reset", "new", "--topic", "events", "--to-latest", "--execute").exit_code == 0
    assert fake.groups["new"].offsets == {("events", 0): 10}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["billing", "--all-topics", "--to-latest"],
            "offsets can only be reset if the group billing is inactive, but the current state is Stable",
        ),
        (["new", "--all-topics", "--to-latest"], "group new has no offsets to reset"),
        (["old", "--topic", "gone", "--to-latest"], "gone: there is no such topic or partition"),
        (["old", "--topic", "events:9", "--to-latest"], "events-9: there is no such topic or partition"),
        (["old", "--topic", "orders:0", "--shift-by", "1"], "orders-0 cannot be shifted: nothing is committed"),
    ],
)
def test_reset_is_refused(fake: FakeCluster, arguments: list[str], line: str) -> None:
    assert refused(run(fake, "reset", *arguments, "--execute")) == line
    assert fake.requests_of(OffsetCommitRequest) == []


def test_reset_is_refused_by_the_broker(fake: FakeCluster) -> None:
    fake.refuse(OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID)
    result = run(fake, "reset", "old", "--all-topics", "--to-latest", "--execute")
    assert refused(result) == "group old: the group has active members"
    fake.refuse(OffsetFetchRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    result = run(fake, "reset", "old", "--all-topics", "--to-latest")
    assert refused(result) == "group old: not authorized for the group"
    fake.refuse(FindCoordinatorRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert refused(run(fake, "reset", "old", "--all-topics", "--to-latest")) == "group old: not yet"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--all", "billing"],
        ["list", "--state", "Happy"],
        ["lag", "--max", "-1"],
        ["reset", "old", "--to-latest"],
        ["reset", "old", "--all-topics"],
        ["reset", "old", "--all-topics", "--topic", "events", "--to-latest"],
        ["reset", "old", "--all-topics", "--to-latest", "--to-offset", "0"],
        ["reset", "old", "--all-topics", "--to-datetime", "yesterday"],
        ["reset", "old", "--all-topics", "--by-duration", "7 days"],
        ["reset", "old", "--topic", "events:x", "--to-latest"],
        ["delete"],
        ["delete", "a", "b", "--topic", "events"],
        ["list", "--timeout", "0"],
    ],
)
def test_a_command_that_is_not_clear(fake: FakeCluster, arguments: list[str]) -> None:
    refused(run(fake, *arguments), code=2)
    assert fake.requests == []


@pytest.mark.parametrize("content", [b"events,0\n", b"\xff\xfe"])
def test_a_file_that_cannot_be_read(fake: FakeCluster, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    assert refused(run(fake, "reset", "old", "--from-file", str(file))).startswith(str(file))


def test_delete_groups(fake: FakeCluster) -> None:
    result = run(fake, "delete", "old", "billing", "nobody")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "Error: group billing: the group is not empty",
        "Error: group nobody: the group does not exist",
    ]
    assert ["old", "deleted"] in [line.split() for line in result.stdout.splitlines()]
    assert list(fake.groups) == ["billing"]


def test_delete_offsets(fake: FakeCluster) -> None:
    fake.groups["billing"].subscribed = {"orders"}
    result = run(fake, "delete", "billing", "--topic", "orders:0", "--topic", "events")
    assert refused(result) == "group billing: orders-0: the group is subscribed to the topic"
    assert fake.groups["billing"].offsets == {("orders", 0): 10, ("orders", 1): 20}
    assert document(fake, "delete", "old", "--topic", "events") == [
        {"topic": "events", "partition": 0, "deleted": True, "error": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["old", "--topic", "orders"], "group old has no offsets of orders"),
        (["nobody", "--topic", "orders:0"], "group nobody: the group does not exist"),
    ],
)
def test_no_offsets_to_delete(fake: FakeCluster, arguments: list[str], line: str) -> None:
    assert refused(run(fake, "delete", *arguments)) == line


def test_errors_of_the_connection(fake: FakeCluster) -> None:
    fake.unreachable.update(fake.bootstrap)
    assert refused(run(fake, "list")) == "cannot connect to kafka-1:9092: Connection refused"
    assert refused(run(fake, "list", server="kafka-1:x")) == "not host:port: kafka-1:x"


async def test_a_timeout_names_the_group_that_was_waited_for(fake: FakeCluster) -> None:
    fake.refuse(FindCoordinatorRequest, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100)
    work = partial(report_offsets, group_ids=["old"])
    with pytest.raises(ClientError, match=r"^not done after 7.5 s, waiting for old: not yet$"):
        await ask(work, "kafka-1", 7.5, fake.connect)
    assert trio.current_time() == 7.5


def test_an_empty_table_has_its_columns(fake: FakeCluster) -> None:
    fake.groups.clear()
    assert printed(run(fake, "list")) == [["GROUP", "STATE", "TYPE", "PROTOCOL-TYPE"]]


def test_names_cannot_take_over_a_terminal(fake: FakeCluster) -> None:
    fake.groups["a\nfake line\x1b[2J"] = FakeGroup(offsets={("gone", 0): 1})
    listed = run(fake, "list").stdout.splitlines()
    assert listed[1].startswith(r"a\nfake line\x1b[2J  Empty")
    assert r"Error: group \x07: Group \x07 not found." in run(fake, "lag", "\a").stderr.splitlines()


def test_time_outs_are_numbers(fake: FakeCluster) -> None:
    assert "'nan' is not a number of seconds" in refused(run(fake, "list", "--timeout", "nan"), 2)
    assert "0.0 is not in the range" in refused(run(fake, "list", "--timeout", "0"), 2)


def test_interrupted_while_connecting() -> None:
    async def connect(address: Address) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise BaseExceptionGroup("of trio", [KeyboardInterrupt()])

    result = CliRunner().invoke(main, ["groups", "list"], obj=connect, catch_exceptions=False)
    assert (result.exit_code, result.stderr.strip()) == (1, "Aborted!")
