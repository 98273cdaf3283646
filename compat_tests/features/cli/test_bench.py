"""`kafkawire bench` as a user types it; its figures are not tested."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.features.cli.commands import TIMEOUT_S, asked, document, going_on, refusal

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_bench_consume_reads_all_records_of_bench_produce(broker: Broker, topic: str, codec: str) -> None:
    size = ("--record-size", "100", "--batch-size", "1000")
    load = ("--partitions", "3", "--connections", "2", "--in-flight", "3", "-z", codec)
    written = document(broker, "bench", "produce", topic, "--records", "2000", *size, *load)
    assert (written["records"], written["bytes"], written["requests"]) == (2000, 200_000, 200)
    latency = written["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    read = document(broker, "bench", "consume", topic, "--connections", "2")
    assert read["records"] == 2000
    assert document(broker, "bench", "consume", topic, "--records", "100")["records"] >= 100


def test_for_a_time(broker: Broker, topic: str) -> None:
    done = asked(broker, "bench", "produce", topic, "--duration", "0.5", "--acks", "1", "--progress")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["records", "throughput", "latency", "requests"]


def test_an_interrupted_bench_produce_prints_its_figures(broker: Broker, topic: str) -> None:
    first = ("consume", topic, "--from-beginning", "-n", "1", "-e")
    with going_on(broker, "bench", "produce", topic, "-o", "json") as bench:
        wait_until(lambda: asked(broker, *first).stdout != "", "nothing was produced", TIMEOUT_S)
        bench.send_signal(signal.SIGINT)
        told, problems = bench.communicate(timeout=TIMEOUT_S)
    assert (bench.returncode, problems) == (130, "")
    assert json.loads(told)["requests"] > 0


def test_refusals_are_one_line(broker: Broker, topic: str) -> None:
    assert refusal(broker, "bench", "consume", topic) == f"topic {topic}: there is no such topic or partition"
    document(broker, "topics", "create", topic, "--set", "max.message.bytes=1000")
    assert refusal(broker, "bench", "produce", topic).startswith(f"topic {topic}: ")
