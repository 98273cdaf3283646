"""Produce to topics with a codec of their own (`compression.type`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.cases_produce import SOME_VERSIONS, THREE, TWO, ends, send
from compat_tests.differential.catalogue import case
from compat_tests.differential.compression import gzip_body, plain_body, zstd_body
from compat_tests.differential.framings import framings
from compat_tests.differential.normalise import describe_batch, split_batches
from compat_tests.harness.batches import Batch, Record
from compat_tests.harness.wire import stored_records

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

OF_THE_LIBRARY = ("crc", "length", "records")  # two of the same codec need not pack alike
SOURCES = (("none", 0, plain_body), ("gzip", 1, gzip_body), ("zstd", 4, zstd_body))
READ_BY_THE_BROKER: dict[str, tuple[int | None, dict[str, str]]] = {  # codec and configs of the topic
    "compact": (None, {"cleanup.policy": "compact"}),
    "gzip": (1, {"compression.type": "gzip"}),
    "uncompressed": (0, {"compression.type": "uncompressed"}),
    "zstd": (4, {"compression.type": "zstd"}),
}
WITH_MORE = (*TWO, Record(key=None, headers=(("h", b"1"), ("h", None)), timestamp_delta_ms=-7), Record(value=None))


def headers(side: Side, topic: str, after: str) -> None:
    """Note the batches of the log, without the fields that depend on a compression library."""
    for number, batch in enumerate(split_batches(stored_records(side.broker, topic))):
        shown = describe_batch(batch, {})
        left = {name: value for name, value in shown.items() if name not in OF_THE_LIBRARY}
        side.transcript.append((f"batch {number} after {after}", left))


@case("produce", SOME_VERSIONS)
def codec_of_the_topic(side: Side, version: int) -> None:
    """Stored batches where clients send other codecs; uncompressed, they are compared byte for byte."""
    for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        topic = f"produce-codec-{version}-{target}"
        side.create_topic(topic, configs={"compression.type": target})
        for name, codec, body in SOURCES:
            batch = Batch(records=WITH_MORE, attributes=codec, body=body(WITH_MORE))
            send(side, version, f"{name} to {target}", topic, batch.encode())
        headers(side, topic, target)
        if target in ("uncompressed", "producer"):
            ends(side, topic, target)


@case("produce", SOME_VERSIONS)
def codec_of_the_topic_and_its_clock(side: Side, version: int) -> None:
    topic = f"produce-codec-time-{version}"
    side.create_topic(topic, configs={"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"})
    send(side, version, "plain", topic, Batch(records=TWO).encode())
    send(side, version, "gzip", topic, Batch(records=THREE, attributes=1, body=gzip_body(THREE)).encode())
    headers(side, topic, "all")


@case("produce", SOME_VERSIONS)
def codec_of_the_topic_and_a_producer(side: Side, version: int) -> None:
    """Sequence numbers and duplicates are known although batches are compressed again."""
    topic = f"produce-codec-sequences-{version}"
    side.create_topic(topic, configs={"compression.type": "gzip"})
    for sequence in (0, 3, 3, 9):
        batch = Batch(records=THREE, producer_id=77, producer_epoch=0, base_sequence=sequence)
        send(side, version, f"sequence {sequence}", topic, batch.encode())
    headers(side, topic, "all")


@case("produce", SOME_VERSIONS)
def codec_of_the_topic_and_sizes(side: Side, version: int) -> None:
    """The size limit is valid for batches as sent and as stored."""
    for target, number in (("uncompressed", 0), ("gzip", 1)):
        topic = f"produce-codec-sizes-{version}-{number}"
        side.create_topic(topic, configs={"compression.type": target, "max.message.bytes": "1000"})
        records = (Record(value=bytes(5000)),)
        send(side, version, f"plain to {target}", topic, Batch(records=records).encode())
        packed = Batch(records=records, attributes=1, body=gzip_body(records))
        send(side, version, f"gzip to {target}", topic, packed.encode())
        headers(side, topic, target)


@case("produce", SOME_VERSIONS[-1:])
def framing_of_the_codec(side: Side, version: int) -> None:
    """How clients frame what they compress, in topics whose records the broker reads: each is read whole or refused."""
    records = tuple(Record(key=b"%d" % number, value=b"abcd%d" % number * 4000) for number in range(8))
    for number, (kind, (own_codec, configs)) in enumerate(READ_BY_THE_BROKER.items()):
        for place, (name, (codec, body)) in enumerate(framings(plain_body(records)).items()):
            if codec == own_codec:
                continue  # stored as it was sent
            topic = f"produce-framing-{number}-{place}"
            side.create_topic(topic, configs=configs)
            batch = Batch(records=records, attributes=codec, body=body)
            send(side, version, f"{name} to {kind}", topic, batch.encode())
            headers(side, topic, f"{name} to {kind}")
            if kind == "uncompressed":
                ends(side, topic, f"{name} to {kind}")
