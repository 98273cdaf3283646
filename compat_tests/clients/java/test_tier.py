"""Apache Kafka's tools on a topic in a remote tier, from its creation to its deletion."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.java.commands import tool, topics
from compat_tests.clients.java.test_configs import configs, described
from compat_tests.clients.java.test_tools import consume
from compat_tests.differential.side import Side
from compat_tests.features.tiering import scene
from compat_tests.features.tiering.brokers import tiered_target
from compat_tests.harness.batches import FIRST_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

BATCHES = range(10)  # three segments, and one batch in the active one
END, LOCAL_START = 20, 18


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with tiered_target(tmp_path_factory.mktemp("tiered")) as running:
        yield running


def create(broker: Broker, topic: str, *more: str) -> Side:
    """Create a topic with the tool, as the documentation of Kafka's tier does it."""
    given = (f"segment.bytes={scene.SEGMENT_BYTES}", "retention.ms=-1", "remote.storage.enable=true", *more)
    settings = [part for each in given for part in ("--config", each)]
    assert f"Created topic {topic}." in topics(broker, "--create", "--topic", topic, *settings)
    side = Side(broker)
    side.create_topic(topic)  # exists already; this waits until it can be used
    return side


@pytest.fixture(scope="module")
def filled(tiered: Broker) -> str:
    """Write segments, and wait until only the active one is in the log dir."""
    topic = "filled"
    side = create(tiered, topic, "local.retention.bytes=1")
    scene.fill(side, topic, BATCHES)
    scene.wait_until(side, topic, scene.EARLIEST_LOCAL, LOCAL_START)
    return topic


@pytest.mark.parametrize(
    ("time", "offset"),
    [
        ("earliest", 0),
        ("earliest-local", LOCAL_START),
        ("latest-tiered", LOCAL_START - 1),
        ("latest", END),
        (str(FIRST_MS + 3 * scene.BETWEEN_BATCHES_MS), 6),
    ],
)
def test_get_offsets(tiered: Broker, filled: str, time: str, offset: int) -> None:
    assert tool(tiered, "GetOffsetShell", "--topic", filled, "--time", time) == f"{filled}:0:{offset}\n"


def test_log_dirs_show_the_local_size(tiered: Broker, filled: str) -> None:
    *_, shown = tool(tiered, "LogDirsCommand", "--describe", "--topic-list", filled).splitlines()
    [partition] = json.loads(shown)["brokers"][0]["logDirs"][0]["partitions"]
    assert partition["size"] == scene.BATCH_BYTES


def test_the_console_consumer_crosses_tiers(tiered: Broker, filled: str) -> None:
    seen = consume(tiered, filled, "earliest", END, "--formatter-property", "print.value=false").splitlines()
    assert [line.split("\t")[1] for line in seen] == [f"Offset:{offset}" for offset in range(END)]


def test_configs_of_the_tier(tiered: Broker, topic: str) -> None:
    create(tiered, topic, "local.retention.ms=1000")
    of = ("--entity-type", "topics", "--entity-name", topic)
    assert "remote.storage.enable=true" in topics(tiered, "--describe", "--topic", topic)
    alter = ("--alter", *of, "--add-config")
    configs(tiered, *alter, "retention.ms=2000,local.retention.bytes=5")
    assert described(tiered, *of)["local.retention.bytes"][0] == "5"
    for refused, told in (
        ("local.retention.ms=2001", "Value must not be more than retention.ms property value: 2000"),
        ("cleanup.policy=compact", "Remote log storage only supports topics with cleanup.policy=delete"),
        ("remote.log.copy.disable=true", "must be set to the identical value"),
        ("remote.storage.enable=false", "It is invalid to disable remote storage without deleting remote data"),
    ):
        assert told in configs(tiered, *alter, refused, check=False)
    assert "It is invalid to disable" in configs(
        tiered, "--alter", *of, "--delete-config", "remote.storage.enable", check=False
    )


def test_records_are_deleted_in_the_tier_and_then_the_topic(tiered: Broker, topic: str, tmp_path: Path) -> None:
    side = create(tiered, topic, "local.retention.bytes=1")
    scene.fill(side, topic, BATCHES)
    scene.wait_until(side, topic, scene.EARLIEST_LOCAL, LOCAL_START)
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]}))
    shown = tool(tiered, "DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert f"partition: {topic}-0\tlow_watermark: 7" in shown
    scene.wait_for_store(side, topic, [6, 12])
    assert tool(tiered, "GetOffsetShell", "--topic", topic, "--time", "earliest") == f"{topic}:0:7\n"
    topics(tiered, "--delete", "--topic", topic)
    scene.wait_for_store(side, topic, [])
