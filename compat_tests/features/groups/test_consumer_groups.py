"""kafka-consumer-groups of Apache Kafka on a group with and without members, and other readers of its offsets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.features.groups.members import Member
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compat_tests.features.groups.test_membership import NewParty
    from compat_tests.harness.broker import Broker
    from compat_tests.harness.host import Host

RECORDS = 10
FIRST_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"

Row = dict[str, str]


@pytest.fixture
def tool(java: Callable[[], Host]) -> Callable[..., str]:
    """Run one of Kafka's tools in the JVM of the Java members, and return its output."""

    def run(class_name: str, *arguments: str) -> str:
        tools = Member(java(), "tools", [], is_process=False)
        done: dict[str, Any] = tools.ask("tool", **{"class": class_name, "arguments": arguments})
        output: str = done["output"]
        return output

    return run


@pytest.fixture
def groups(broker: Broker, tool: Callable[..., str]) -> Callable[..., str]:
    """kafka-consumer-groups with the arguments given."""
    return lambda *arguments: tool(CONSUMER_GROUPS, "--bootstrap-server", broker.bootstrap, *arguments)


def table(text: str) -> list[Row]:
    """The rows under the first line of column names; the id in brackets behind a coordinator is left out."""
    lines = [re.sub(r" \(\w+\)", "", line) for line in text.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if line.startswith("GROUP") and "  " in line), None)
    assert start is not None, text
    names = lines[start].split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines[start + 1 :]]


def fill(broker: Broker, topic: str) -> None:
    """Ten records in each of two partitions, a second apart."""
    create_topic(broker, topic, 2)
    client = producer(broker)
    for partition in range(2):
        for number in range(RECORDS):
            client.produce(topic, b"value", partition=partition, timestamp=FIRST_MS + 1000 * number)
    flush(client)


def read_all(member: Member) -> None:
    """Waits until both partitions are read and committed to their ends."""

    def is_done() -> bool:
        ends = {(row[1], row[2]) for event in member.events_of("committed") for row in event["offsets"]}
        return {(0, RECORDS), (1, RECORDS)} <= ends

    member.wait(is_done, "not all is committed")


def offsets(groups: Callable[..., str], group: str) -> list[tuple[int, str, str]]:
    rows = table(groups("--describe", "--group", group, "--offsets"))
    return sorted((int(row["PARTITION"]), row["CURRENT-OFFSET"], row["LAG"]) for row in rows)


def test_describe_a_group_at_work(broker: Broker, topic: str, party: NewParty, groups: Callable[..., str]) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    member = party("java").start(client_id="reader", group_instance_id="first")
    read_all(member)
    assert group in groups("--list").split()
    listed = {row["GROUP"]: row for row in table(groups("--list", "--state"))}
    assert listed[group]["STATE"] == "Stable"
    assert group in groups("--list", "--state", "Stable")
    assert group not in groups("--list", "--state", "Empty").split()
    listed = {row["GROUP"]: row for row in table(groups("--list", "--type", "classic"))}
    assert listed[group]["TYPE"].lower() == "classic"
    rows = table(groups("--describe", "--group", group))
    found = {(row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows}
    assert found == {(topic, str(partition), "10", "10", "0") for partition in range(2)}
    assert {row["CLIENT-ID"] for row in rows} == {"reader"}
    assert all(row["CONSUMER-ID"].startswith("first-") for row in rows)
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    [row] = table(groups("--describe", "--group", group, "--members", "--verbose"))
    assert (row["GROUP-INSTANCE-ID"], row["CLIENT-ID"], row["#PARTITIONS"]) == ("first", "reader", "2")
    assert f"{topic}:0,1" in groups("--describe", "--group", group, "--members", "--verbose")
    [row] = table(groups("--describe", "--group", group, "--state"))
    assert (row["STATE"], row["#MEMBERS"]) == ("Stable", "1")
    assert row["COORDINATOR"] in {one.bootstrap for one in broker.brokers.values()}
    assert row["ASSIGNMENT-STRATEGY"] == "range"
    refused = groups("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
    assert "Stable" in refused
    assert "GroupNotEmptyException" in groups("--delete", "--group", group)
    refused = groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused or "subscribed" in refused
    assert offsets(groups, group) == [(0, "10", "0"), (1, "10", "0")]


def test_reset_offsets_and_delete(
    broker: Broker, topic: str, party: NewParty, groups: Callable[..., str], tmp_path: Path
) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    member = party("java").start()
    read_all(member)
    member.close()
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    for goal, offset in (
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--shift-by", "-3"], 7),
        (["--to-current"], 7),
        (["--to-offset", "4"], 4),
        (["--to-datetime", "2023-11-14T22:13:25.000"], 5),
        (["--by-duration", "P1D"], 10),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-1"], 9),
    ):
        before = offsets(groups, group)
        planned = table(groups(*reset, *goal, "--dry-run"))
        assert {row["NEW-OFFSET"] for row in planned} == {str(offset)}, goal
        assert offsets(groups, group) == before
        groups(*reset, *goal, "--execute")
        assert offsets(groups, group) == [(p, str(offset), str(RECORDS - offset)) for p in range(2)], goal
    saved = groups(*reset, "--to-current", "--export", "--dry-run")
    assert {f'"{topic}",{p},9' for p in range(2)} == set(saved.split())
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{topic}",0,2\n"{topic}",1,3\n')
    groups("--reset-offsets", "--group", group, "--from-file", str(file), "--execute")
    assert offsets(groups, group) == [(0, "2", "8"), (1, "3", "7")]
    groups(*reset[:-1], f"{topic}:1", "--to-earliest", "--execute")
    assert offsets(groups, group) == [(0, "2", "8"), (1, "0", "10")]
    assert "Successful" in groups("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert offsets(groups, group)[0] == (0, "2", "8")
    assert len(offsets(groups, group)) == 1
    assert "Empty" in groups("--describe", "--group", group, "--state")
    assert "was successful" in groups("--delete", "--group", group)
    assert group not in groups("--list").split()
    assert "GroupIdNotFoundException" in groups("--delete", "--group", group)


def test_the_topic_of_offsets_is_kafkas_own_format(
    broker: Broker, topic: str, party: NewParty, tool: Callable[..., str]
) -> None:
    """The console consumer's formatters and kafka-dump-log can read every record of a group."""
    group = f"group-of-{topic}"
    fill(broker, topic)
    member = party("java").start(client_id="reader")
    read_all(member)
    member.ask("commit", partitions=[(topic, 0)], offset=7, metadata="noted")
    member.close()
    segments = [path for path in broker.data_dir.rglob("*.log") if "__consumer_offsets-" in str(path)]
    files = ",".join(str(path) for path in segments if path.stat().st_size)
    dumped = tool(DUMP_LOG, "--offsets-decoder", "--print-data-log", "--files", files)
    assert "isvalid: false" not in dumped
    assert "Found bytes that are not valid" not in dumped
    offsets = [line for line in dumped.splitlines() if f'"group":"{group}","topic":"{topic}","partition":0' in line]
    assert '"offset":7,' in offsets[-1]
    assert '"metadata":"noted"' in offsets[-1]
    metadata = [line for line in dumped.splitlines() if '"type":"2"' in line and f'"group":"{group}"' in line]
    assert '"protocol":"range"' in "".join(metadata)
    assert '"clientId":"reader"' in "".join(metadata)
    for formatter, expected in (
        ("OffsetsMessageFormatter", [group, "noted"]),
        ("GroupMetadataMessageFormatter", [group, "reader"]),
    ):
        shown = java_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets", "--from-beginning"),
            *("--formatter", f"{FORMATTERS}.{formatter}", "--timeout-ms", "10000"),
        )
        assert all(word in shown for word in expected)


def test_the_console_consumer_resumes_at_the_committed_offsets_of_its_group(
    broker: Broker, topic: str, groups: Callable[..., str]
) -> None:
    fill(broker, topic)
    group = f"group-of-{topic}"
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group, "--from-beginning"]
    for count in (13, 7):
        shown = java_tool(CONSOLE_CONSUMER, *arguments, "--max-messages", str(count), "--timeout-ms", "20000")
        assert shown.split() == ["value"] * count
    assert offsets(groups, group) == [(0, "10", "0"), (1, "10", "0")]
