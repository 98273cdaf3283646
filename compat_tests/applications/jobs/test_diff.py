"""Comparisons of topics of one broker, and of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.jobs.runs import Run, run
from compat_tests.applications.jobs.spoiled import fill
from compat_tests.applications.spark.queries import FIRST_MS
from compat_tests.applications.spark.test_transactions import Writer
from compat_tests.clients.confluent.clients import create_topic, flush, producer
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

CONTENT = ("--columns", "key,value,headers")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkawire]:
    with Kafkawire(tmp_path_factory.mktemp("other")) as running:
        yield running


def diff(broker: Broker, left: str, right: str, *words: str, workers: int = 1) -> Run:
    return run("diff", left, right, "-b", broker.bootstrap, *words, "--workers", str(workers))


def send(broker: Broker, topic: str, values: list[int]) -> None:
    client = producer(broker)
    for number in values:
        client.produce(topic, b"%d" % number, partition=0, timestamp=FIRST_MS + number)
    flush(client)


def test_topics_of_two_clusters(broker: Broker, other: Kafkawire, topic: str) -> None:
    for one in (broker, other):
        create_topic(one, topic, partitions=3)
        fill(one, topic, 3, 3000)
    there = f"{other.bootstrap}/{topic}"
    same = diff(broker, topic, there, *CONTENT, workers=2)
    assert (same.code, same.report["findings"], same.stderr) == (0, [], "")
    assert (same.counts["left_rows"], same.counts["right_rows"]) == (3000, 3000)
    send(other, topic, [7, 8])
    found = diff(broker, topic, there, *CONTENT)
    assert found.code == 1
    assert found.report["findings"] == [
        {"kind": "unexpected", "of": "rows", "partition": 0, "first": 1000, "last": 1001, "rows": 2}
    ]


def test_topics_are_compared_by_order_if_offsets_are_ignored(broker: Broker, topic: str) -> None:
    """Topics compared by order: one of them has transaction markers between its records, and aborted records."""
    plain = f"{topic}-plain"
    create_topic(broker, topic)
    create_topic(broker, plain)
    writer = Writer(broker, topic)
    for _ in range(5):
        writer.plain(3, 0)
        writer.abort(2, 0)
        writer.commit(4, 0)
    values = list(range(writer.kept))
    send(broker, plain, values[:20])
    send(broker, plain, values[21:])
    words = ("--ignore-offsets", "--columns", "value", "--option", "kafka.isolation.level=read_committed")
    found = diff(broker, topic, plain, *words)
    assert found.code == 1
    (finding,) = found.report["findings"]
    assert (finding["kind"], finding["rows"], finding["right_first"]) == ("missing", 1, None)
    send(broker, f"{topic}-again", values)
    assert diff(broker, topic, f"{topic}-again", *words).code == 0
    assert diff(broker, topic, f"{topic}-again", "--columns", "value", *words[3:]).counts["missing"] > 0
