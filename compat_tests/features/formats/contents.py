"""The content of a data dir, as the broker that opened it reports it: equal for all versions.

Offsets, bytes and committed positions, as clients get them. Old brokers are asked in the same way, so requests are in
early versions, and only for data that a client of the first release could ask for.
"""

from __future__ import annotations

import json
import struct
import urllib.request
import zlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from compat_tests.clients.confluent.clients import (
    COORDINATED_ELSEWHERE,
    TIMEOUT_S,
    Admin,
    describe,
    insist,
    watermarks,
    with_consumer,
)
from compat_tests.harness.batches import next_offset, split
from compat_tests.harness.wire import WireConnection, fetch_frame, fetched_records, request_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.kafkawire_broker import Kafkawire

# No data may expire or be rewritten because of the time since the data dir was written.
KEEPING = {
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "2147483647",
    "offsets.retention.minutes": "2147483647",
    "offsets.topic.num.partitions": "4",
    "journal.slot.bytes": "131072",
}
GROUPS = ("members", "committers")
INDEXED, INDEXED_KEY = "indexed", "customer-7"
PRODUCE, PRODUCE_VERSION = 0, 3
PRODUCER_ID_POSITION = 43

Contents = dict[str, Any]  # as it stands in a JSON file


def contents_of(broker: Kafkawire) -> Contents:
    """The whole content that the broker reports."""
    topics = Admin(broker).topics()
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    return {
        "topics": {
            name: {
                "configs": _set_here(client, ConfigResource(ResourceType.TOPIC, name), "DYNAMIC_TOPIC_CONFIG"),
                "partitions": [partition_of(broker, name, one) for one in sorted(topics[name].partitions)],
            }
            for name in sorted(topics)
            if not name.startswith("__")
        },
        "broker": _set_here(client, ConfigResource(ResourceType.BROKER, "1"), "DYNAMIC_BROKER_CONFIG"),
        "groups": {group: _committed(client, group) for group in GROUPS},
        "found by key": found_by_key(broker),
    }


def partition_of(broker: Kafkawire, topic: str, partition: int, end: int | None = None) -> dict[str, int]:
    """The start and end of a partition, and the CRC of its batches up to `end`, or up to its own end."""
    where = TopicPartition(topic, partition)
    start, log_end = with_consumer(broker, lambda consumer: watermarks(consumer, where))
    end = log_end if end is None else end
    return {"start": start, "end": end, "crc32": zlib.crc32(b"".join(batches(broker, topic, partition, start, end)))}


def batches(broker: Kafkawire, topic: str, partition: int, start: int, end: int) -> Iterator[bytes]:
    """All batches of a partition between two offsets, as the broker sends them; those of compacted topics have gaps."""
    with WireConnection(broker.port) as connection:
        offset = start
        while offset < end:
            connection.send_frame(fetch_frame(topic, offset, max_wait_ms=0, partition=partition))
            records = fetched_records(connection.receive_frame(), topic)
            assert records, f"nothing at {offset} of {topic}-{partition}, which ends at {end}"
            for batch in split(records):
                if offset >= end:
                    break
                offset = next_offset(batch)
                yield batch


def producer_of(batch: bytes) -> int:
    """The producer id of a batch; -1 without one."""
    (producer_id,) = struct.unpack_from(">q", batch, PRODUCER_ID_POSITION)
    return int(producer_id)


def send_again(broker: Kafkawire, topic: str, partition: int, batch: bytes) -> int:
    """Send a batch again, as a producer without an acknowledgement does. Returns the base offset of the reply."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, -1, 30_000)  # no transactional id, acks=all
    body += struct.pack(f">ih{len(name)}siii", 1, len(name), name, 1, partition, len(batch)) + bytes(8) + batch[8:]
    with WireConnection(broker.port) as connection:
        connection.send_frame(request_frame(PRODUCE, PRODUCE_VERSION, body))
        reply = connection.receive_frame()
    assert reply is not None, "the broker closed the connection"
    # correlation id, one topic, one partition, its index
    error, base_offset = struct.unpack_from(">hq", reply, 4 + 4 + 2 + len(name) + 4 + 4)
    assert error == 0
    return int(base_offset)


def found_by_key(broker: Kafkawire) -> list[str]:
    """`partition:offset` of the records with one of the keys."""
    url = f"{broker.http_url}/v1/topics/{INDEXED}/messages?key={INDEXED_KEY}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        found = json.load(answer)
    assert found["next"] is None
    return [f"{one['partition']}:{one['offset']}" for one in found["messages"]]


def _set_here(client: AdminClient, asked: ConfigResource, source: str) -> dict[str, str]:
    """The keys that were set at run time for this resource, with their values."""
    entries = describe(client, asked)
    return {key: entry.value for key, entry in sorted(entries.items()) if ConfigSource(entry.source).name == source}


def _committed(client: AdminClient, group: str) -> dict[str, int]:
    def ask() -> list[TopicPartition]:
        (found,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return [*found.result(TIMEOUT_S).topic_partitions]

    rows = insist(ask, *COORDINATED_ELSEWHERE)
    return {f"{row.topic}-{row.partition}": row.offset for row in sorted(rows, key=str)}
