"""Topics in a remote tier, filled for a measurement, and reads of them: the same for every broker.

A topic's batches are stamped by the broker, so that its times are spread over it and no batch is old for retention.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigResource, ResourceType

from benchmarks.lib import bench
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, fetch_requests, produce_requests
from compat_tests.clients.confluent.clients import Admin, alter, wait_until
from compat_tests.harness.batches import next_offset, split
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed
from kafkawire.wire.primitives import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkawire.client.load import Requests

BATCH = batch_of(16 * KIB)
RECORDS_A_BATCH = 16
SEEK_BYTES = 16 * KIB
COPIED_WITHIN_S = 300.0
READ_WITHIN_S = 30.0
FILL_IN_FLIGHT = 5
LIST_OFFSETS_VERSION = 11  # which knows the points of a tier, and waits for it
LIST_OFFSETS_TIMEOUT_MS = 10_000
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
COPY_QUOTA = "remote.log.manager.copy.max.bytes.per.second"
COLD = {"remote_storage_enable": "true", "local_retention_bytes": "1"}


@dataclass(frozen=True)
class Sizes:
    """The size of a topic: sealed segments of each partition, and behind them an active one with a batch."""

    partitions: int
    segments: int
    segment_bytes: int

    @property
    def segment_records(self) -> int:
        return self.segment_bytes // len(BATCH) * RECORDS_A_BATCH

    @property
    def sealed_to(self) -> int:
        """The offset at which the active segment begins."""
        return self.segments * self.segment_records

    @property
    def sealed_bytes(self) -> int:
        """The size of the sealed segments of all partitions, in bytes."""
        return self.partitions * self.sealed_to // RECORDS_A_BATCH * len(BATCH)


@dataclass(frozen=True)
class Filled:
    """A topic, and the times of its first and last record."""

    topic: str
    sizes: Sizes
    first_ms: int
    last_ms: int


def fill(contender: Contender, sizes: Sizes, **config: str) -> Filled:
    """A new topic of these sizes; `config` may say that it is in the tier from the beginning."""
    configs = {
        "segment_bytes": str(sizes.segment_bytes),
        "message_timestamp_type": "LogAppendTime",
        "retention_ms": "-1",
        **config,
    }
    topic = bench.new_topic(contender, sizes.partitions, **configs)
    batches = sizes.sealed_to // RECORDS_A_BATCH + 1
    first_ms = int(1000 * time.time())

    def send(count: int) -> None:
        loads = [produce_requests(topic, [partition], BATCH, count) for partition in range(sizes.partitions)]
        run_load(contender.broker.port, loads, FILL_IN_FLIGHT)

    send(batches - 1)
    last_ms = int(1000 * time.time())
    send(1)  # so that something is newer
    return Filled(topic, sizes, first_ms, last_ms)


def enter_tier(contender: Contender, data: Filled) -> None:
    """Let the segments of a topic be copied from now on."""
    Admin(contender.broker).alter_config(data.topic, "remote.storage.enable", "true")


@contextmanager
def copying_at_most(contender: Contender, bytes_per_s: int | None) -> Iterator[None]:
    """Limit the copies during the block, by the config that brokers of either kind have for it; None: no limit."""
    if bytes_per_s is None:
        yield
        return
    admin = AdminClient({"bootstrap.servers": contender.broker.bootstrap})
    set_to, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    alter(admin, ConfigResource(ResourceType.BROKER, "1"), {COPY_QUOTA: (set_to, str(bytes_per_s))})
    try:
        yield
    finally:
        alter(admin, ConfigResource(ResourceType.BROKER, "1"), {COPY_QUOTA: (delete, None)})


def is_copied(contender: Contender, data: Filled) -> bool:
    """Whether the tier has all sealed segments."""
    return all(
        find_offset(contender.broker.port, data.topic, partition, LATEST_TIERED)[0] == data.sizes.sealed_to - 1
        for partition in range(data.sizes.partitions)
    )


def wait_until_copied(contender: Contender, data: Filled) -> None:
    wait_until(lambda: is_copied(contender, data), f"{contender.name} does not copy {data.topic}", COPIED_WITHIN_S)


def fill_cold(contender: Contender, sizes: Sizes) -> Filled:
    """A topic of which the log dir has the active segments only."""
    data = fill(contender, sizes, **COLD)
    wait_until_copied(contender, data)
    wait_until(
        lambda: all(
            find_offset(contender.broker.port, data.topic, partition, EARLIEST_LOCAL)[0] == sizes.sealed_to
            for partition in range(sizes.partitions)
        ),
        f"{contender.name} keeps files of {data.topic}",
        COPIED_WITHIN_S,
    )
    return data


def find_offset(port: int, topic: str, partition: int, timestamp_ms: int) -> tuple[int, float]:
    """The first offset at or after a time, or EARLIEST_LOCAL and the like, -1 if there is none; and how many seconds
    the answer took."""
    asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [asked]}],
        "timeout": LIST_OFFSETS_TIMEOUT_MS,
    }
    frame = encode_request("list_offsets", LIST_OFFSETS_VERSION, fields)
    with WireConnection(port) as connection:
        begun_s = time.perf_counter()
        connection.send_frame(frame)
        reply = connection.receive_frame()
        seconds = time.perf_counter() - begun_s
    if reply is None:
        raise LoadFailed("the broker closed the connection at ListOffsets")
    [[row]] = [one["partitions"] for one in decode_response("list_offsets", LIST_OFFSETS_VERSION, reply)["topics"]]
    if row["error_code"]:
        raise LoadFailed(f"ListOffsets answered with error {row['error_code']}")
    return row["offset"], seconds


def seek_by_offset_s(contender: Contender, data: Filled, share: float) -> float:
    """Seconds until there are records of a place, which is a share of the sealed part. If a broker answers without
    records, it is asked again."""
    requests = fetch_requests(data.topic, [int(share * data.sizes.sealed_to)], 1, SEEK_BYTES)
    with WireConnection(contender.broker.port) as connection:
        begun_s = time.perf_counter()
        _fetch(connection, data.topic, requests)
        return time.perf_counter() - begun_s


def seek_by_time_s(contender: Contender, data: Filled, share: float) -> float:
    """Seconds until the broker has found the first record after that share of the time in which the records came."""
    timestamp_ms = int(data.first_ms + share * (data.last_ms - data.first_ms))
    offset, seconds = find_offset(contender.broker.port, data.topic, 0, timestamp_ms)
    if not 0 <= offset <= data.sizes.sealed_to:
        raise LoadFailed(f"{contender.name}: no record at {timestamp_ms}: offset {offset}")
    return seconds


def read_through(contender: Contender, data: Filled) -> tuple[int, float]:
    """Read the sealed part of partition 0 as a consumer does: each fetch begins where the one before has ended. Returns
    the bytes of whole batches, and seconds."""
    offset, read_bytes = 0, 0
    with WireConnection(contender.broker.port) as connection:
        begun_s = time.perf_counter()
        while offset < data.sizes.sealed_to:
            records = _fetch(connection, data.topic, fetch_requests(data.topic, [offset], 1, MIB))
            following, size_bytes = complete_batches(records)
            if following <= offset:
                raise LoadFailed(f"{contender.name}: {len(records)} bytes at {offset} are no batch")
            offset, read_bytes = following, read_bytes + size_bytes
        return read_bytes, time.perf_counter() - begun_s


def _fetch(connection: WireConnection, topic: str, requests: Requests) -> memoryview:
    """Fetch until there are records, and return them."""
    frame, deadline_s = bytes(requests.prepare(0)), time.monotonic() + READ_WITHIN_S
    while True:
        connection.send_bytes(frame)
        reply = connection.receive_frame()
        if reply is None:
            raise LoadFailed("the broker closed the connection at Fetch")
        requests.check(reply)
        records = fetched_records(reply, topic)
        if records:
            return records
        if time.monotonic() > deadline_s:
            raise LoadFailed(f"no records of {topic} within {READ_WITHIN_S:g} s")


def fetched_records(reply: bytes, topic: str) -> memoryview:
    """The records of an answer to Fetch 12 of one partition without aborted transactions."""
    # correlation id, tags, throttle, error, session, a topic, its name, a partition, its index, error, three offsets
    position = 4 + 1 + 4 + 2 + 4 + 1 + (1 + len(topic)) + 1 + 4 + 2 + 3 * 8
    if reply[position] > 1:
        raise LoadFailed("aborted transactions in an answer to Fetch")
    position += 1 + 4  # none of them, preferred replica
    size, position = read_uvarint(reply, position)
    return memoryview(reply)[position : position + max(0, size - 1)]


def complete_batches(records: memoryview) -> tuple[int, int]:
    """The offset behind the last complete batch, -1 without any, and the size of the complete batches in bytes."""
    following, size_bytes = -1, 0
    for batch in split(records):
        following = next_offset(batch)
        size_bytes += len(batch)
    return following, size_bytes
