"""How long does a broker take to open 10,000 partitions that are in the remote tier, and without a tier?

Each partition gets two batches of a record, the second of which begins a segment, because the first is older than a
millisecond (segment.ms). In the tier the first segment is copied and loses its file, without it both stay: the same
appends, and a log of two segments. The tier is a directory. Then both are stopped in order and started.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.tiered_brokers import OVERRIDES, without_tier
from benchmarks.lib.wire_requests import batch_of, produce_requests
from compat_tests.features.tiering.brokers import TieredKafkawire

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from compat_tests.harness.kafkawire_broker import Kafkawire

TOPICS, CONNECTIONS_PER_TOPIC, SEGMENTS = 10, 5, 2
TIERED: Final = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
COPIERS: Final = {"tier.copiers": "8"}  # until all is there: each segment is three objects, which are synced
COPIED_WITHIN_S: Final = 1200.0
POLL_S: Final = 0.5


def write(contender: Contender, topics: list[str], partitions_each: int) -> None:
    """Write a record to each partition."""
    share = partitions_each // CONNECTIONS_PER_TOPIC
    loads = [
        produce_requests(topic, range(first, first + share), batch_of(bench.KIB), share)
        for topic in topics
        for first in range(0, partitions_each, share)
    ]
    run_load(contender.broker.port, loads, 1)


def segment_files(broker: Kafkawire, topics: list[str]) -> int:
    """The number of segment files of these topics."""
    directories = [one.path for one in os.scandir(broker.data_dir) if one.name.rpartition("-")[0] in topics]
    return sum(name.endswith(".log") for directory in directories for name in os.listdir(directory))


def make(broker: Kafkawire, partitions_each: int, *, is_tiered: bool) -> str:
    """Create all partitions on a broker, and stop it. Returns one of the topics."""
    with broker:
        contender = Contender(broker.name, broker, {}, is_synced=True)
        config = {"segment_ms": "1", "message_timestamp_type": "LogAppendTime", **(TIERED if is_tiered else {})}
        topics = [bench.new_topic(contender, partitions_each, **config) for _ in range(TOPICS)]
        for _ in range(SEGMENTS):
            write(contender, topics, partitions_each)
        deadline_s, left = time.monotonic() + COPIED_WITHIN_S, 1 if is_tiered else SEGMENTS
        while segment_files(broker, topics) != left * TOPICS * partitions_each:
            assert time.monotonic() < deadline_s, "not all segments are in the tier"
            time.sleep(POLL_S)
        return topics[-1]


def open_again(broker: Kafkawire, topic: str) -> tuple[float, float, float]:
    """Start the broker. Returns seconds until it says that it is ready, and until a record was acknowledged, and
    MiB."""
    begun_s = time.perf_counter()
    with broker:
        ready_s = time.perf_counter() - begun_s
        run_load(broker.port, [produce_requests(topic, [0], batch_of(bench.KIB), 1)], 1)
        return ready_s, time.perf_counter() - begun_s, machine.rss_mib(broker.pid)


def once(
    tiered: Kafkawire, plain: Kafkawire, topics: dict[str, str], scratch: Path, _contender: Contender
) -> report.Figures:
    found: dict[str, float] = {}
    for name, broker in (("", tiered), (" without a tier", plain)):
        machine.drop_page_cache(scratch)
        ready_s, acked_s, rss_mib = open_again(broker, topics[name])
        found |= {f"open s{name}": ready_s, f"first ack s{name}": acked_s, f"RSS MiB{name}": rss_mib}
    return found | {"more s": found["open s"] - found["open s without a tier"]}


def opening(directory: Path, options: Options) -> report.Result:
    partitions_each = 10 if options.toy else options.count(1_000, 10)
    tiered = TieredKafkawire(directory / "partitions", {**OVERRIDES, **COPIERS})
    plain = without_tier(directory / "partitions-without")
    topics = {
        "": make(tiered, partitions_each, is_tiered=True),
        " without a tier": make(plain, partitions_each, is_tiered=False),
    }
    del tiered.overrides["tier.copiers"]
    field = [Contender("kafkawire", tiered, {}, is_synced=True)]
    case = f"{TOPICS * partitions_each} partitions, opened after a clean stop"
    measure = partial(once, tiered, plain, topics, directory)
    return bench.alternate(case, "open s", field, measure, options, "at most 1 s more than without a tier")
