"""`kafkawire bench produce`: the same batch again and again, over several connections.

The batch is encoded once, without a producer id. Brokers do the same work as for other batches, the client as little as
possible.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Final

import trio

from engine.batches.batch import Codec, Record
from kafkawire.cli.bench.measurement import BenchmarkResult, run_benchmark
from kafkawire.cli.common.streaming import Progress
from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import CLIENT_ID, Address, Connect, connect_tcp, parse_bootstrap
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.load import Load, LoadFailed, Requests
from kafkawire.client.offsets import LATEST, known_offsets
from kafkawire.client.partitions import TopicPartition
from kafkawire.client.producer import BROKER_TIMEOUT_MS, encode_batch
from kafkawire.client.topics import created_partitions
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.headers import encode_request

SECONDS: Final = 10.0

_VERSION: Final = 9  # the reply begins with the topic name, as in later versions by name
_SIZE: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_LETTERS: Final = bytes(ord("A") + number % 26 for number in range(256))
_COMPACT_1_MAX: Final = 126  # longer names have two bytes of length


@dataclass(frozen=True, slots=True)
class Writing:
    """Settings of a run: sizes, connections, acks, codec."""

    partition_count: int | None
    record_size_bytes: int
    batch_size_bytes: int
    connections: int
    acks: int
    codec: Codec

    @property
    def batch_records(self) -> int:
        """The number of records of a batch: at least one."""
        return max(1, self.batch_size_bytes // self.record_size_bytes)

    def batch(self) -> bytearray:
        """Encode the batch. Its values are letters, which compress like text, and are the same in every run."""
        letters = random.Random(0)  # noqa: S311 - nothing is kept secret with them
        now_ms = time.time_ns() // 1_000_000
        values = (letters.randbytes(self.record_size_bytes).translate(_LETTERS) for _ in range(self.batch_records))
        return encode_batch([Record(None, value, now_ms) for value in values], self.codec)

    def requests(self, topic: str, partitions: Sequence[int], batch: bytearray, count: int) -> Requests:
        """Requests that send the batch to each of these partitions in turn."""
        frames = []
        for partition in partitions:
            rows = [PartitionProduceData(index=partition, records=memoryview(batch))]
            sent = ProduceRequest(
                acks=self.acks,
                timeout_ms=BROKER_TIMEOUT_MS,
                topic_data=[TopicProduceData(name=topic, partition_data=rows)],
            )
            frame = encode_request(sent, _VERSION, 0, CLIENT_ID)
            frames.append(bytearray(_SIZE.pack(len(frame)) + frame))
        name_size = len(topic) + (1 if len(topic) <= _COMPACT_1_MAX else 2)
        # correlation id, header tags, one topic, its name, one partition, its index
        return Requests(frames, count, partial(_check, topic, 4 + 1 + 1 + name_size + 1 + 4))


def _check(topic: str, position: int, head: bytes) -> None:
    (code,) = _ERROR.unpack_from(head, position)
    if code:
        raise LoadFailed(f"topic {topic}: {refusal(code)}")


async def targets(
    cluster: Cluster, topic: str, writing: Writing, records_max: int | None
) -> list[tuple[Address, Requests]]:
    """Divide the load among connections: the leader and the requests of each. Raises ClientError."""
    partitions, _ = await created_partitions(cluster, topic, writing.partition_count or -1)
    await known_offsets(cluster, partitions, LATEST)  # a broker lists a new partition a moment before it leads it
    by_leader: dict[Address, list[TopicPartition]] = {}
    for one, leader in (await cluster.leaders(partitions)).items():
        if isinstance(leader, Refusal):
            raise ClientError(f"{one}: {leader}")
        by_leader.setdefault(leader, []).append(one)
    batch = writing.batch()
    places = [
        (leader, [one.partition for one in led[number :: writing.connections] or [led[number % len(led)]]])
        for leader, led in by_leader.items()
        for number in range(writing.connections)
    ]
    total = sys.maxsize if records_max is None else -(-records_max // writing.batch_records)
    counts = [(total + number) // len(places) for number in range(len(places))]
    return [
        (leader, writing.requests(topic, some, batch, count))
        for (leader, some), count in zip(places, counts, strict=True)
        if count
    ]


class _LoadProgress(Progress):
    """Progress of a load, in records and bytes."""

    def __init__(self, wanted: bool, load: Load, writing: Writing) -> None:
        super().__init__(wanted)
        self._load = load
        self._writing = writing

    def so_far(self) -> tuple[int, int]:
        records = self._load.measured.requests * self._writing.batch_records
        return records, records * self._writing.record_size_bytes


def bench(
    bootstrap: str,
    connect: Connect | None,
    *,
    topic: str,
    records_max: int | None,
    seconds: float | None,
    in_flight: int,
    acks: str,
    compression: str,
    progress: bool,
    output: str,
    timeout_s: float,
    partition_count: int | None,
    record_size_bytes: int,
    batch_size_bytes: int,
    connections: int,
) -> int:
    """Run the benchmark and return the exit code."""
    writing = Writing(
        partition_count,
        record_size_bytes,
        batch_size_bytes,
        connections,
        -1 if acks == "all" else int(acks),
        Codec[compression.upper()],
    )
    load = Load(in_flight, timeout_s)
    shown = _LoadProgress(progress, load, writing)
    if seconds is None:
        seconds = SECONDS if records_max is None else float("inf")

    async def work() -> None:
        async with Cluster(parse_bootstrap(bootstrap), connect or connect_tcp) as cluster:
            found = await cluster.run_within(timeout_s, partial(targets, cluster, topic, writing, records_max))
        await trio.to_thread.run_sync(load.run, found, seconds, abandon_on_cancel=True)

    def found() -> BenchmarkResult:
        return BenchmarkResult(*shown.so_far(), load.measured.seconds, load.measured.latencies_s)

    return run_benchmark(work, shown, found, topic, output)
