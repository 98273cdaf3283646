"""Produce: acks, and every way in which a batch can be wrong."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case
from compat_tests.differential.compression import gzip_body, zstd_body
from compat_tests.differential.side import READY_TIMEOUT_S
from compat_tests.harness.batches import FIRST_MS, Batch, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compat_tests.differential.side import Side

UNKNOWN_ID = bytes(range(16))
# Replies grew twice: record errors in 8, topic ids in 13. The answers to a batch do not change in between.
SOME_VERSIONS = (3, 8, 13)
TWO = (Record(value=b"one"), Record(value=b"two"))
THREE = (*TWO, Record(value=b"three"))
LONG_AGO_MS, FAR_AHEAD_MS = 1, 4_000_000_000_000


def fields(
    side: Side, topic: str, rows: Iterable[tuple[int, bytes | None]], *, acks: int = -1, **more: Any
) -> dict[str, Any]:
    """A request for partitions of one topic, by name or by id as the version has it."""
    partition_rows = [{"index": index, "records": records} for index, records in rows]
    topic_row = {"name": topic, "topic_id": more.pop("topic_id", None) or side.topic_id(topic)}
    return {"acks": acks, "timeout": 10_000, "topic_data": [{**topic_row, "partition_data": partition_rows}], **more}


def send(side: Side, version: int, label: str, topic: str, records: bytes | None, **more: Any) -> None:
    """Produce to partition 0 of a topic."""
    side.ask("produce", version, fields(side, topic, [(0, records)], **more), label=label)


def ends(side: Side, topic: str, after: str = "all") -> None:
    """Note the end of the log and its batches."""
    row = {"partition_index": 0, "timestamp": -1}
    side.ask(
        "list_offsets",
        5,
        {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]},
        label=f"end after {after}",
    )
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    request = {"replica_id": -1, "max_wait": 0, "topics": [{"topic": topic, "partitions": [partition]}]}
    side.ask("fetch", 11, {**request, "session_epoch": -1}, label=f"log after {after}")


@case("produce")
def acks_and_versions(side: Side, version: int) -> None:
    """The whole log is compared: the broker stamps some fields of the batches, and changes no others."""
    topic = f"produce-{version}"
    side.create_topic(topic)
    for acks in (-1, 1):
        send(side, version, f"acks {acks}", topic, Batch(records=TWO).encode(), acks=acks)
    side.send("produce", version, fields(side, topic, [(0, Batch().encode())], acks=0))
    side.still_open("after acks 0")
    wait_for_end(side, topic, 5)
    ends(side, topic)


def wait_for_end(side: Side, topic: str, offset: int) -> None:
    """Wait for the end of the log: acks 0 has no reply, and consumers see the records some time after they were
    sent."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    row = {"partition_index": 0, "timestamp": -1}
    request = {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]}
    while side.quiet("list_offsets", 1, request)["topics"][0]["partitions"][0]["offset"] < offset:
        assert time.monotonic() < deadline, f"{side.broker.name}: {topic} does not come to {offset}"
        time.sleep(0.01)


@case("produce", SOME_VERSIONS)
def acks_1_is_found_at_once(side: Side, version: int) -> None:
    """The only replica has raised its high watermark before the answer with acks=1."""
    topic = f"produce-found-{version}"
    side.create_topic(topic)
    for number in range(5):
        send(side, version, f"acks 1, batch {number}", topic, Batch(records=TWO).encode(), acks=1)
        with side.on("another"):
            ends(side, topic, after=f"batch {number}")


@case("produce")
def bad_acks(side: Side, version: int) -> None:
    topic = "produce-acks"
    side.create_topic(topic)
    for acks in (2, -2, 32_767):
        send(side, version, f"acks {acks}", topic, Batch().encode(), acks=acks)
    ends(side, topic)


@case("produce")
def error_with_acks_0_closes(side: Side, version: int) -> None:
    topic = "produce-acks"
    side.create_topic(topic)
    side.send("produce", version, fields(side, topic, [(0, Batch(crc=1).encode())], acks=0))
    side.read("api_versions", 0, label="reply")


@case("produce")
def unknown_topic_and_partition(side: Side, version: int) -> None:
    topic = "produce-acks"
    side.create_topic(topic)
    records = Batch().encode()
    nowhere = fields(side, "nowhere", [(0, records)], topic_id=UNKNOWN_ID)
    side.ask("produce", version, nowhere, label="unknown topic")
    side.ask("produce", version, fields(side, topic, [(1, records)]), label="unknown partition")
    side.ask("produce", version, fields(side, topic, [(-1, records)]), label="negative partition")
    zero = fields(side, topic, [(0, records)])
    zero["topic_data"][0].update(name="", topic_id=bytes(16))
    side.ask("produce", version, zero, label="empty name or zero id")


@case("produce")
def nothing_to_do(side: Side, version: int) -> None:
    topic = "produce-acks"
    side.create_topic(topic)
    side.ask("produce", version, {"acks": -1, "timeout": 1_000, "topic_data": []}, label="no topics")
    side.ask("produce", version, fields(side, topic, []), label="no partitions")
    send(side, version, "empty records", topic, b"")
    ends(side, topic)


@case("produce", (13,))
def null_records(side: Side, version: int) -> None:
    """Null records, in one version only: if a broker does not answer, noticing that takes a time-out."""
    topic = "produce-acks"
    side.create_topic(topic)
    send(side, version, "null records", topic, None)


@case("produce", SOME_VERSIONS)
def several_partitions(side: Side, version: int) -> None:
    topic = f"produce-several-{version}"
    side.create_topic(topic, 3)
    good, bad = Batch().encode(), Batch(crc=1).encode()
    side.ask("produce", version, fields(side, topic, [(2, good), (0, bad), (7, good), (1, good)]), label="one is bad")
    side.ask("produce", version, fields(side, topic, [(0, good), (0, good)]), label="same partition twice")


@case("produce", SOME_VERSIONS)
def bytes_that_are_no_batch(side: Side, version: int) -> None:
    topic = f"produce-bytes-{version}"
    side.create_topic(topic)
    good = Batch(records=TWO).encode()
    for label, records in (
        ("one byte", b"\x00"),
        ("sixteen bytes", bytes(16)),
        ("header only", good[:61]),
        ("less than a header", good[:60]),
        ("cut", good[:-1]),
        ("one byte behind", good + b"\x00"),
        ("half a batch behind", good + good[:40]),
        ("two batches", good + good),
        ("zeros", bytes(200)),
        ("text", b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n" * 4),
    ):
        send(side, version, label, topic, records)
    ends(side, topic)


def variants() -> Iterable[tuple[str, Batch]]:
    """A good batch with one wrong field in its header; the CRC is right unless it is that field."""
    yield "wrong crc", Batch(records=TWO, crc=1)
    yield "magic 0", Batch(records=TWO, magic=0)
    yield "magic 1", Batch(records=TWO, magic=1)
    yield "magic 3", Batch(records=TWO, magic=3)
    yield "magic -1", Batch(records=TWO, magic=-1)
    yield "length too small", Batch(records=TWO, batch_length=60)
    yield "length too large", Batch(records=TWO, batch_length=1_000)
    yield "length below the header", Batch(records=TWO, batch_length=10)
    yield "negative length", Batch(records=TWO, batch_length=-1)
    yield "count too small", Batch(records=TWO, count=1)
    yield "count too large", Batch(records=TWO, count=3)
    yield "count zero", Batch(records=TWO, count=0)
    yield "count negative", Batch(records=TWO, count=-1)
    yield "count and delta of three", Batch(records=TWO, count=3, last_offset_delta=2)
    yield "last delta too small", Batch(records=TWO, last_offset_delta=0)
    yield "last delta too large", Batch(records=TWO, last_offset_delta=5)
    yield "last delta negative", Batch(records=TWO, last_offset_delta=-1)
    yield "no records", Batch(records=(), count=0, last_offset_delta=-1)
    yield "no records, delta 0", Batch(records=(), count=0, last_offset_delta=0)
    yield "base offset 7", Batch(records=TWO, base_offset=7)
    yield "base offset negative", Batch(records=TWO, base_offset=-1)
    yield "leader epoch 9", Batch(records=TWO, leader_epoch=9)
    yield "control batch", Batch(records=TWO, attributes=0x20)
    yield "transactional without a producer", Batch(records=TWO, attributes=0x10)
    yield "transactional", Batch(records=TWO, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0)
    yield "log append time", Batch(records=TWO, attributes=0x08)
    yield "delete horizon", Batch(records=TWO, attributes=0x40)
    yield "unused attribute", Batch(records=TWO, attributes=0x80)
    yield "unused high attribute", Batch(records=TWO, attributes=0x4000)
    yield "codec 5", Batch(records=TWO, attributes=5)
    yield "codec 7", Batch(records=TWO, attributes=7)
    yield "gzip that is plain", Batch(records=TWO, attributes=1)
    yield "max timestamp too small", Batch(records=TWO, max_timestamp_ms=FIRST_MS - 5)
    yield "max timestamp too large", Batch(records=TWO, max_timestamp_ms=FIRST_MS + 5)
    yield "max timestamp -1", Batch(records=TWO, max_timestamp_ms=-1)


@case("produce", SOME_VERSIONS)
def lies_in_the_header(side: Side, version: int) -> None:
    """Batches with one wrong field in the header, each in an empty topic, so that a difference does not shift later
    ones."""
    for number, (label, batch) in enumerate(variants()):
        topic = f"produce-lies-{version}-{number}"
        side.create_topic(topic)
        send(side, version, label, topic, batch.encode())
        if version == SOME_VERSIONS[-1]:
            ends(side, topic, label)


@case("produce", SOME_VERSIONS)
def sequences(side: Side, version: int) -> None:
    """Producer ids that no broker gave out, and impossible sequence numbers."""
    for number, (producer_id, epoch, sequence) in enumerate(
        ((5, 0, -1), (5, 0, -2), (5, -1, 0), (-1, 0, 0), (-1, -1, 0), (-2, -1, -1), (5, 0, 0), (5, 0, 7))
    ):
        topic = f"produce-sequences-{version}-{number}"
        side.create_topic(topic)
        batch = Batch(records=TWO, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        send(side, version, f"id {producer_id}, epoch {epoch}, sequence {sequence}", topic, batch.encode())


@case("produce", SOME_VERSIONS)
def one_producer(side: Side, version: int) -> None:
    """Duplicates, gaps and epochs of a known producer."""
    topic = f"produce-producer-{version}"
    side.create_topic(topic)
    for epoch, sequence, count in (
        *((0, sequence, 2) for sequence in (0, 2, 4, 6, 8, 10)),
        *((0, sequence, 2) for sequence in (10, 2, 0, 14, 4)),
        *((0, sequence, 1) for sequence in (10, 2, 11, 12)),
        *((1, sequence, 2) for sequence in (13, 1, 0, 0, 2)),
        *((0, sequence, 2) for sequence in (13, 0)),
        (3, 0, 2),
        (3, 2**31 - 2, 2),
    ):
        batch = Batch(records=TWO[:count], producer_id=77, producer_epoch=epoch, base_sequence=sequence)
        send(side, version, f"epoch {epoch}, {count} from sequence {sequence}", topic, batch.encode())
    ends(side, topic, "all of it")


@case("produce", SOME_VERSIONS)
def a_producer_that_begins_late(side: Side, version: int) -> None:
    """A producer id with no earlier batches in the log, and sequence numbers that wrap around."""
    topic = f"produce-late-{version}"
    side.create_topic(topic)
    for sequence in (2**31 - 3, 2**31 - 1, 1, 5, 2**31 - 1):
        batch = Batch(records=TWO, producer_id=78, producer_epoch=4, base_sequence=sequence)
        send(side, version, f"sequence {sequence}", topic, batch.encode())
    ends(side, topic, "all of it")


@case("produce", SOME_VERSIONS)
def a_producer_whose_records_are_gone(side: Side, version: int) -> None:
    """DeleteRecords takes the records; the producer goes on where it was."""
    topic = f"produce-gone-{version}"
    side.create_topic(topic)

    def send_from(sequence: int, label: str) -> None:
        batch = Batch(records=TWO, producer_id=79, producer_epoch=1, base_sequence=sequence)
        send(side, version, f"{label}: sequence {sequence}", topic, batch.encode())

    for sequence in (0, 2):
        send_from(sequence, "before")
    fields = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}], "timeout": 10_000}
    side.ask("delete_records", 2, fields, label="all of them")
    for sequence in (0, 2, 8, 4, 2):
        send_from(sequence, "after")
    ends(side, topic, "what is left")


@case("produce", SOME_VERSIONS)
def lies_in_the_records(side: Side, version: int) -> None:
    """Batches with wrong records, but a right header and CRC."""
    whole = Batch(records=TWO).encode()[61:]
    for number, (label, batch) in enumerate(
        (
            ("broken varint", Batch(records=TWO, body=b"\xff" * 11 + whole[11:])),
            ("record longer than the batch", Batch(records=TWO, body=b"\x7f" + whole[1:])),
            ("a byte behind the records", Batch(records=TWO, body=whole + b"\x00")),
            ("records cut", Batch(records=TWO, body=whole[:-2])),
            ("one record of two", Batch(records=TWO[:1], count=2, last_offset_delta=1)),
            ("wrong offset delta", Batch(records=(TWO[0], Record(offset_delta=5)), last_offset_delta=1)),
            ("same offset twice", Batch(records=(Record(offset_delta=0), Record(offset_delta=0)))),
            ("gzip of too few", Batch(records=TWO, attributes=1, body=gzip_body(TWO[:1]))),
            ("gzip, broken", Batch(records=TWO, attributes=1, body=gzip_body(TWO)[:-9])),
        )
    ):
        topic = f"produce-records-{version}-{number}"
        side.create_topic(topic)
        send(side, version, label, topic, batch.encode())
        ends(side, topic, label)


@case("produce")
def compressed(side: Side, version: int) -> None:
    """Codecs: gzip is accepted in all versions, zstd from version 7 on (KIP-110)."""
    topic = f"produce-compressed-{version}"
    side.create_topic(topic)
    send(side, version, "gzip", topic, Batch(records=THREE, attributes=1, body=gzip_body(THREE)).encode())
    send(side, version, "zstd", topic, Batch(records=THREE, attributes=4, body=zstd_body(THREE)).encode())
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def timestamps(side: Side, version: int) -> None:
    topic = f"produce-times-{version}"
    side.create_topic(topic)
    for label, first_ms in (("long ago", LONG_AGO_MS), ("zero", 0), ("far ahead", FAR_AHEAD_MS), ("none", -1)):
        send(side, version, label, topic, Batch(records=TWO, base_timestamp_ms=first_ms).encode())
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def timestamp_limits_of_the_topic(side: Side, version: int) -> None:
    topic = f"produce-limits-{version}"
    limits = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "9223372036854775807"}
    side.create_topic(topic, configs=limits)
    send(side, version, "too old", topic, Batch(records=TWO).encode())
    send(side, version, "far ahead", topic, Batch(records=TWO, base_timestamp_ms=FAR_AHEAD_MS).encode())
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def maximum_timestamp_of_sarama(side: Side, version: int) -> None:
    """sarama up to 1.45.0 writes -1 into the header: Kafka takes the greatest timestamp of the records."""
    records = (TWO[0], Record(value=b"two", timestamp_delta_ms=7), Record(value=b"three", timestamp_delta_ms=5))
    settings: dict[str, dict[str, str]] = {
        "plain": {},
        "compacted": {"cleanup.policy": "compact"},
        "of one codec": {"compression.type": "uncompressed"},
        "LogAppendTime": {"message.timestamp.type": "LogAppendTime"},
    }
    for number, (label, configs) in enumerate(settings.items()):
        topic = f"produce-sarama-{version}-{number}"
        side.create_topic(topic, configs=configs)
        for codec, body in ((0, None), (1, gzip_body(records))):
            batch = Batch(records=records, attributes=codec, body=body, max_timestamp_ms=-1)
            send(side, version, f"{label}, codec {codec}", topic, batch.encode())
        send(side, version, f"{label}, wrong CRC", topic, Batch(records=records, max_timestamp_ms=-1, crc=1).encode())
        far = Batch(records=records, base_timestamp_ms=FAR_AHEAD_MS, max_timestamp_ms=-1)
        send(side, version, f"{label}, far ahead", topic, far.encode())
        ends(side, topic, label)
        for timestamp in (-3, 0, FIRST_MS + 1, FIRST_MS + 7, FIRST_MS + 8) if label != "LogAppendTime" else ():
            row = {"partition_index": 0, "timestamp": timestamp}
            asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]}
            side.ask("list_offsets", 7, asked | {"isolation_level": 0}, label=f"{label}, time {timestamp}")


@case("produce", SOME_VERSIONS)
def log_append_time(side: Side, version: int) -> None:
    """The broker's clock goes into the batch, for each timestamp of the producer."""
    topic = f"produce-append-time-{version}"
    side.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    for label, first_ms in (("now and then", FIRST_MS), ("far ahead", FAR_AHEAD_MS), ("none", -1)):
        batch = Batch(records=TWO, base_timestamp_ms=first_ms)
        send(side, version, label, topic, batch.encode())
    gzip = Batch(records=TWO, attributes=1, body=gzip_body(TWO))
    send(side, version, "gzip", topic, gzip.encode())
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def sizes(side: Side, version: int) -> None:
    """The limit counts the whole batch: 1 MiB + 12 by default."""
    topic = f"produce-sizes-{version}"
    side.create_topic(topic)
    small = side_topic = f"{topic}-small"
    side.create_topic(side_topic, configs={"max.message.bytes": "1000"})
    limit = 1_048_588
    overhead = len(Batch(records=(Record(value=bytes(limit - 200)),)).encode()) - (limit - 200)
    exact = Batch(records=(Record(value=bytes(limit - overhead)),)).encode()
    assert len(exact) == limit
    over = Batch(records=(Record(value=bytes(limit - overhead + 1)),)).encode()
    send(side, version, "just fits", topic, exact)
    send(side, version, "one byte too large", topic, over)
    send(side, version, "over the topic's limit", small, Batch(records=(Record(value=bytes(1_000)),)).encode())
    send(side, version, "large sum of small batches", small, Batch().encode() * 20)


@case("produce", SOME_VERSIONS)
def batch_larger_than_a_segment(side: Side, version: int) -> None:
    topic = f"produce-segment-{version}"
    side.create_topic(topic, configs={"segment.bytes": "1048576", "max.message.bytes": "4000000"})
    send(side, version, "too large", topic, Batch(records=(Record(value=bytes(1_500_000)),)).encode())


@case("produce", SOME_VERSIONS)
def too_few_replicas(side: Side, version: int) -> None:
    topic = f"produce-isr-{version}"
    side.create_topic(topic, configs={"min.insync.replicas": "2"})
    send(side, version, "acks all", topic, Batch().encode(), acks=-1)
    send(side, version, "acks 1", topic, Batch().encode(), acks=1)
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def compacted_topic(side: Side, version: int) -> None:
    """A compacted topic refuses records without a key."""
    topic = f"produce-compacted-{version}"
    side.create_topic(topic, configs={"cleanup.policy": "compact"})
    send(side, version, "with keys", topic, Batch(records=TWO).encode())
    send(side, version, "one without", topic, Batch(records=(Record(), Record(key=None))).encode())
    ends(side, topic)


@case("produce", SOME_VERSIONS)
def transactional_id(side: Side, version: int) -> None:
    topic = "produce-acks"
    side.create_topic(topic)
    send(side, version, "plain batch", topic, Batch().encode(), transactional_id="t")


@case("produce")
def several_in_flight(side: Side, version: int) -> None:
    """Replies come in the order of the requests, even if they take different times."""
    topic = f"produce-flight-{version}"
    side.create_topic(topic)
    for number in range(5):
        side.send("produce", version, fields(side, topic, [(0, Batch(records=TWO).encode())]), correlation_id=number)
    for number in range(5):
        side.read("produce", version, label=f"reply {number}")
