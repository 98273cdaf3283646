"""A broker with a topic whose finished segments are in the tier only, and an object store that the test controls."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from engine.api import PartitionLog, TopicIdPartition
from engine.batches.batch import Record, build_batch
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.testing import EPOCH_MS, Client, MemoryDeps, OpenBroker, open_broker
from tiering.stores.memory import HEALTHY, Fault, Operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COLD, WARM = "cold", "warm"
VALUE_BYTES = 700_000  # a MiB has room for one record
SETTINGS = {
    "remote_log_storage_system_enable": "true",
    "tier_store": "s3://bucket/lake",
    "remote_log_manager_task_interval_ms": "1000",
    "log_retention_check_interval_ms": "1000",
    "log_initial_task_delay_ms": "1000",
    "log_segment_delete_delay_ms": "0",
}


@dataclass
class Cold:
    """A broker with cold segments, and a client."""

    opened: OpenBroker
    client: Client

    @property
    def deps(self) -> MemoryDeps:
        return self.opened.deps

    @property
    def gets(self) -> int:
        return self.deps.objects.requests[Operation.GET]

    def log(self, topic: str = COLD, partition: int = 0) -> PartitionLog:
        topic_id = self.opened.broker.coordinator.image.topics[topic].topic_id
        return self.opened.broker.store.get(TopicIdPartition(topic_id, topic, partition))

    def read_with(self, fault: Fault = HEALTHY, partition: int | None = None) -> None:
        """Inject a fault into each GET of a segment, of that partition or of any."""

        def decide(operation: Operation, key: str) -> Fault:
            is_wanted = operation is Operation.GET and is_segment(key) and partition in (None, int(key.split("/")[3]))
            return fault if is_wanted else HEALTHY

        self.deps.objects.fault = decide

    async def append(self, topic: str, partition: int, value: bytes, at_s: int = 0, key: bytes | None = None) -> None:
        records = memoryview(build_batch([Record(key, value, EPOCH_MS + 1000 * at_s)]))
        await self.log(topic, partition).append(records, acks=-1).wait()

    async def fetch(self, *wanted: tuple[str, int], version: int = 12, **fields: Any) -> Any:
        """The rows of a reply by topic and partition, from offset 0 on."""
        return rows(await self.client.call(fetch_request(*wanted, **fields), version))


def is_segment(key: str) -> bool:
    return "-" in key.rpartition("/")[2] and "/page/" not in key


def fetch_request(*wanted: tuple[str, int], **fields: Any) -> FetchRequest:
    """A fetch of one record from each partition, without a session, unless `fields` say otherwise."""
    size_bytes = fields.pop("partition_max_bytes", VALUE_BYTES + 10_000)
    topics: dict[str, list[FetchPartition]] = {}
    for topic, number in wanted:
        one = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=size_bytes)
        topics.setdefault(topic, []).append(one)
    named = [FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    fields = {"max_bytes": 2**31 - 1, "min_bytes": 1, "max_wait_ms": 0, "session_epoch": -1, **fields}
    return FetchRequest(topics=named, **fields)


def rows(reply: Any) -> dict[tuple[str, int], Any]:
    assert reply.error_code == 0
    return {(topic.topic, row.partition_index): row for topic in reply.responses for row in topic.partitions}


@asynccontextmanager
async def cold_broker(
    partitions: int = 1, segments: int = 1, deps: MemoryDeps | None = None, /, cache: str = "", **configs: str
) -> AsyncIterator[Cold]:
    """A broker with so many cold segments in each partition of COLD. Each has one record: record n has the time of
    second n, and the key n modulo 2. WARM has one record."""
    cached = {"tier_cache_size_bytes": cache} if cache else {}
    async with open_broker(deps, **SETTINGS, **cached) as opened:
        cold = Cold(opened, opened.connect())
        given = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "local.retention.bytes": "1"}
        create = opened.broker.coordinator.create_topic
        given.update({name.replace("_", "."): value for name, value in configs.items()})
        await create(COLD, partition_count=partitions, configs=given)
        await create(WARM, partition_count=1, configs={})
        await cold.append(WARM, 0, b"warm")
        for partition in range(partitions):
            for number in range(segments + 1):
                await cold.append(COLD, partition, bytes([number]) * VALUE_BYTES, number, b"%d" % (number % 2))
        await trio.sleep(5 + 2 * partitions)
        yield cold
