"""`kafkawire groups` as a user types it, with real consumers in the group."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from compat_tests.clients.confluent.clients import TIMEOUT_S, create_topic, flush, new_consumer, producer, wait_until
from compat_tests.features.cli.commands import asked, document, kafkawire, refusal
from compat_tests.harness.target import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

RECORDS = 10
PROTOCOLS = ["classic", "consumer"] if TARGET == "kafka" else ["classic"]


def fill(broker: Broker, topic: str, partitions: int = 2) -> None:
    """Ten records for each partition, a second apart in their timestamps."""
    create_topic(broker, topic, partitions)
    client = producer(broker)
    for partition in range(partitions):
        for number in range(RECORDS):
            client.produce(topic, b"value", partition=partition, timestamp=1_700_000_000_000 + 1000 * number)
    flush(client)


@contextmanager
def member(broker: Broker, group: str, topic: str, **settings: object) -> Iterator[Consumer]:
    """A consumer that has read and committed everything."""
    consumer = new_consumer(
        broker, group_id=group, auto_offset_reset="earliest", enable_auto_offset_store=True, **settings
    )
    try:
        consumer.subscribe([topic])
        read = 0
        while read < 2 * RECORDS:
            batch = consumer.consume(2 * RECORDS - read, TIMEOUT_S)
            assert batch, "nothing came"
            read += len(batch)
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def state(broker: Broker, group: str) -> Any:
    (described,) = document(broker, "groups", "describe", group)
    return described["state"]


def offsets(broker: Broker, group: str) -> list[tuple[int, int, int]]:
    """Partition, committed offset and lag of each row."""
    (described,) = document(broker, "groups", "describe", group)
    return [(one["partition"], one["committed_offset"], one["lag"]) for one in described["partitions"]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member(broker: Broker, topic: str, protocol: str) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    with member(broker, group, topic, group_protocol=protocol, client_id="reader"):
        listed = {
            one["group"]: one for one in document(broker, "groups", "list", "--state", "stable", "--type", protocol)
        }
        assert listed[group] == {"group": group, "state": "Stable", "type": protocol, "protocol_type": "consumer"}
        (described,) = document(broker, "groups", "describe", group)
        assert (described["state"], described["assignor"]) == (
            "Stable",
            "range" if protocol == "classic" else "uniform",
        )
        rows = described["partitions"]
        assert [(one["topic"], one["partition"], one["committed_offset"], one["lag"]) for one in rows] == [
            (topic, 0, RECORDS, 0),
            (topic, 1, RECORDS, 0),
        ]
        assert {one["client_id"] for one in rows} == {"reader"}
        (of_members,) = document(broker, "groups", "describe", "--members", group)
        assert [one["assignment"] for one in of_members["members"]] == [{topic: [0, 1]}]
        assert "Stable" in refusal(broker, "groups", "reset", group, "--all-topics", "--to-earliest", "--execute")
        assert refusal(broker, "groups", "delete", group) == f"group {group}: the group is not empty"
        assert refusal(broker, "groups", "delete", group, "--topic", topic).endswith(
            "the group is subscribed to the topic"
        )
        assert offsets(broker, group) == [(0, RECORDS, 0), (1, RECORDS, 0)]


def test_a_static_member(broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    with member(broker, group, topic, group_instance_id="first", session_timeout_ms=6000):
        (described,) = document(broker, "groups", "describe", "--members", group)
        assert [one["instance_id"] for one in described["members"]] == ["first"]


def test_lag_grows_with_the_log(broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    with member(broker, group, topic):
        pass
    client = producer(broker)
    for _ in range(3):
        client.produce(topic, b"more", partition=1)
    flush(client)
    wait_until(lambda: state(broker, group) == "Empty", "the member is still there")
    (lag,) = document(broker, "groups", "lag", group)
    assert (lag["state"], lag["lag"], lag["topics"][0]["lag"]) == ("Empty", 3, 3)
    assert asked(broker, "groups", "lag", group, "--max", "3").returncode == 0
    assert refusal(broker, "groups", "lag", group, "--max", "2") == f"group {group} lags by 3, more than 2"
    assert group in asked(broker, "groups", "lag").stdout


def test_reset_and_delete(broker: Broker, topic: str, tmp_path: Path) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    with member(broker, group, topic):
        pass
    wait_until(lambda: state(broker, group) == "Empty", "the member is still there")
    saved = asked(broker, "groups", "reset", group, "--all-topics", "--to-current", "--export").stdout
    assert saved == f"{topic},0,{RECORDS}\n{topic},1,{RECORDS}\n"
    for goal, offset in (
        (["--to-earliest"], 0),
        (["--shift-by", "3"], 3),
        (["--to-offset", "99"], RECORDS),
        (["--to-datetime", "2023-11-14T22:13:24"], 4),
        (["--by-duration", "PT0S"], RECORDS),
        (["--to-offset", "1"], 1),
    ):
        assert asked(broker, "groups", "reset", group, "--topic", topic, *goal).returncode == 0
        document(broker, "groups", "reset", group, "--topic", topic, *goal, "--execute")
        assert offsets(broker, group) == [(0, offset, RECORDS - offset), (1, offset, RECORDS - offset)]
    file = tmp_path / "offsets.csv"
    file.write_text(saved.splitlines()[0])
    document(broker, "groups", "reset", group, "--from-file", str(file), "--execute")
    assert offsets(broker, group) == [(0, RECORDS, 0), (1, 1, RECORDS - 1)]

    document(broker, "groups", "delete", group, "--topic", f"{topic}:1")
    assert offsets(broker, group) == [(0, RECORDS, 0)]
    assert document(broker, "groups", "delete", group) == [{"group": group, "deleted": True, "error": None}]
    assert refusal(broker, "groups", "describe", group).startswith(f"group {group}: ")


def test_a_reset_makes_a_group(broker: Broker, topic: str) -> None:
    group = f"group-of-{topic}"
    fill(broker, topic)
    document(broker, "groups", "reset", group, "--topic", f"{topic}:1", "--to-offset", "7", "--execute")
    assert offsets(broker, group) == [(1, 7, 3)]


def test_groups_list_fails_with_one_line_if_the_connection_is_refused(tmp_path: Path) -> None:
    done = kafkawire("groups", "list", "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "Error: cannot connect to 127.0.0.1:1: Connection refused\n")
