"""`kafkawire bench consume`: throughput of the command line's client for reads of a topic.

Batches are checked against their CRC and counted; records are not decoded. All connections share one core: a broker can
send more than one such reader receives.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Sequence
from functools import partial

import trio

from kafkawire.cli.bench.measurement import BenchmarkResult, run_benchmark
from kafkawire.cli.common.streaming import Progress
from kafkawire.cli.consume.consuming import remark
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Connect, connect_tcp, parse_bootstrap
from kafkawire.client.consumer import WAIT_MAX_MS, Consumer
from kafkawire.client.errors import ClientError
from kafkawire.client.offsets import EARLIEST, LATEST, known_offsets, known_partitions
from kafkawire.client.partitions import TopicPartition


class Reading:
    """A run of the benchmark. It counts records and bytes in `progress`."""

    def __init__(
        self, bootstrap: str, connect: Connect, topic: str, progress: Progress, timeout_s: float, records_max: float
    ) -> None:
        self._bootstrap = bootstrap
        self._connect = connect
        self._topic = topic
        self._progress = progress
        self._timeout_s = timeout_s
        self._records_max = records_max
        self._latencies_s: array[float] = array("d")
        self._began_s = self._ended_s = 0.0
        self._failed: ClientError | None = None

    def found(self) -> BenchmarkResult:
        """The result so far."""
        return BenchmarkResult(*self._progress.so_far(), self._ended_s - self._began_s, self._latencies_s)

    async def run(self, connections: int, seconds: float) -> None:
        """Read the topic to its present end, for at most `seconds`. Raises ClientError."""
        async with self._cluster() as cluster:
            starts, ends = await cluster.run_within(self._timeout_s, partial(self._bounds, cluster))
        partitions = sorted(starts)
        self._began_s = self._ended_s = time.perf_counter()
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for number in range(min(connections, len(partitions))):
                    assigned = {one: starts[one] for one in partitions[number::connections]}
                    nursery.start_soon(self._read, assigned, ends, nursery.cancel_scope)
        if self._failed is not None:
            raise self._failed

    def _cluster(self) -> Cluster:
        return Cluster(parse_bootstrap(self._bootstrap), self._connect)

    async def _bounds(self, cluster: Cluster) -> Sequence[dict[TopicPartition, int]]:
        partitions = await known_partitions(cluster, self._topic)
        return [await known_offsets(cluster, partitions, time_ms) for time_ms in (EARLIEST, LATEST)]

    async def _read(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int], all_readers: trio.CancelScope
    ) -> None:
        """Read some of the partitions over connections of its own."""
        try:
            async with self._cluster() as cluster:
                consumer = Consumer(cluster, starts, remark)
                while True:
                    consumer.drop_finished(ends)
                    if not consumer.positions:
                        return
                    await self._poll(cluster, consumer)
                    if self._progress.records >= self._records_max:
                        all_readers.cancel()
        except ClientError as error:
            self._failed = error
            all_readers.cancel()

    async def _poll(self, cluster: Cluster, consumer: Consumer) -> None:
        requested_s = time.perf_counter()
        batches = await cluster.run_within(self._timeout_s + WAIT_MAX_MS / 1000, consumer.poll)
        if batches:
            self._ended_s = time.perf_counter()
            self._latencies_s.append(self._ended_s - requested_s)
        for batch in batches:
            if not batch.header.is_control and not batch.is_aborted:
                self._progress.add(batch.header.record_count, len(batch.data))


def bench(
    bootstrap: str,
    connect: Connect | None,
    *,
    topic: str,
    records_max: int | None,
    seconds: float | None,
    connections: int,
    progress: bool,
    output: str,
    timeout_s: float,
) -> int:
    """Run the benchmark and return the exit code."""
    shown = Progress(progress)
    reading = Reading(bootstrap, connect or connect_tcp, topic, shown, timeout_s, records_max or math.inf)
    work = partial(reading.run, connections, math.inf if seconds is None else seconds)
    return run_benchmark(work, shown, reading.found, topic, output)
