"""How long does it take to find the records of a key among ten million, over HTTP? Apache Kafka has no such thing."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from compat_tests.clients.confluent.clients import Delivery, flush, producer
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

RECORDS = 10_000_000
KEYS_ASKED = 200
RECORDS_PER_KEY = 10
INDEXED_WITHIN_S = 900.0
PORTION = 50_000


def fill(broker: Kafkawire, topic: str, count: int) -> None:
    """Write each key ten times, spread over the whole log."""
    client = producer(broker, linger_ms=50, batch_size=1 << 17, queue_buffering_max_messages=2 * PORTION)
    keys = count // RECORDS_PER_KEY
    stored = 0
    for first in range(0, count, PORTION):
        reports = Delivery()
        for number in range(first, min(first + PORTION, count)):
            value, key = b"value of %d" % number, b"key-%d" % (number % keys)
            client.produce(topic, value, key, partition=0, on_delivery=reports)
        flush(client)
        assert not reports.errors, f"not stored: {reports.errors[0]}"
        stored += len(reports.messages)
    assert stored == count, f"{stored} records of {count} are stored"


def ask_s(broker: Kafkawire, topic: str, key: str) -> float:
    """Seconds until all records of a key are found."""
    begun_s = time.perf_counter()
    url = f"{broker.http_url}/v1/topics/{topic}/messages?key={key}"
    with urllib.request.urlopen(url, timeout=INDEXED_WITHIN_S) as answer:
        found = json.load(answer)
    seconds = time.perf_counter() - begun_s
    assert len(found["messages"]) == RECORDS_PER_KEY, f"{len(found['messages'])} records of {key}"
    assert found["next"] is None, f"more records of {key} than were written"
    return seconds


def settle(broker: Kafkawire) -> float:
    """Wait until the broker has ended its background work. Returns the seconds that it took."""
    begun_s, before_s = time.perf_counter(), -1.0
    while (spent_s := machine.cpu_s(broker.pid)) - before_s > 0.05:
        before_s = spent_s
        time.sleep(1.0)
    return time.perf_counter() - begun_s


def compare(directory: Path, options: Options) -> report.Report:
    count = RECORDS_PER_KEY * options.count(RECORDS // RECORDS_PER_KEY, 200)
    with Kafkawire(directory / "kafkawire") as broker:
        contender = bench.Contender("kafkawire", broker, {"index.keys": "true"}, is_synced=True)
        topic = bench.new_topic(contender, 1, segment_bytes=str(128 * bench.MIB))
        fill(broker, topic, count)
        indexed_s = settle(broker)
        chance = random.Random(1)
        runs: list[report.Figures] = []
        for _ in range(options.alternations):
            keys = [f"key-{chance.randrange(count // RECORDS_PER_KEY)}" for _ in range(options.count(KEYS_ASKED, 5))]
            times_s = sorted(ask_s(broker, topic, key) for key in keys)
            middle, late = times_s[len(times_s) // 2], times_s[int(0.99 * len(times_s))]
            runs.append({"p50 ms": 1000 * middle, "p99 ms": 1000 * late, "indexed behind the last append s": indexed_s})
        result = report.Result(f"records of a key among {count:,}", "p50 ms", {"kafkawire": runs})
        print(report.as_text(result), flush=True)
        return report.Report(machine.facts(), [result], {"kafkawire": machine.rss_peak_mib(broker.pid)})


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("key-lookup", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
