"""ListOffsets: special timestamps, exact ones, epochs and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case
from compat_tests.differential.compression import gzip_body
from compat_tests.harness.batches import FIRST_MS, Batch, Record

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -1, -3, -4, -5, -6


def timed_batch(first_ms: int, count: int, step_ms: int = 10, *, gzip: bool = False) -> bytes:
    """A batch with a record every `step_ms`."""
    records = tuple(Record(timestamp_delta_ms=step_ms * number) for number in range(count))
    if gzip:
        return Batch(records=records, base_timestamp_ms=first_ms, attributes=1, body=gzip_body(records)).encode()
    return Batch(records=records, base_timestamp_ms=first_ms).encode()


def ask(side: Side, version: int, label: str, timestamp: int, **more: Any) -> None:
    """Ask for an offset of partition 0 of one topic, unless `more` says otherwise."""
    row = {"partition_index": more.pop("partition", 0), "timestamp": timestamp}
    row |= {name: more.pop(name) for name in ("current_leader_epoch",) if name in more}
    fields = {"replica_id": -1, "topics": [{"name": more.pop("name"), "partitions": [row]}], **more}
    side.ask("list_offsets", version, fields, label=label)


def filled(side: Side) -> str:
    """30 records in three batches, the middle one compressed, the last one older than the one before."""
    name = "list-offsets"
    if name not in side.topics:
        side.create_topic(name, 2)
        side.produce(name, timed_batch(FIRST_MS, 10))
        side.produce(name, timed_batch(FIRST_MS + 1000, 10, gzip=True))
        side.produce(name, timed_batch(FIRST_MS + 500, 10))
    return name


@case("list_offsets")
def special_timestamps(side: Side, version: int) -> None:
    name = filled(side)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, -7):
        ask(side, version, f"timestamp {timestamp}", timestamp, name=name)
        ask(side, version, f"timestamp {timestamp} of an empty partition", timestamp, name=name, partition=1)


@case("list_offsets", (7, 11))
def without_timestamps(side: Side, version: int) -> None:
    name = f"list-offsets-untimed-{version}"
    side.create_topic(name)
    untimed = Batch(records=(Record(), Record()), base_timestamp_ms=-1).encode()
    side.produce(name, untimed)
    for timestamp in (0, 1, LATEST, EARLIEST, MAX_TIMESTAMP):
        ask(side, version, f"only without: {timestamp}", timestamp, name=name)
    side.produce(name, timed_batch(FIRST_MS, 1))
    side.produce(name, untimed)
    for timestamp in (0, FIRST_MS, FIRST_MS + 1, MAX_TIMESTAMP):
        ask(side, version, f"one with: {timestamp}", timestamp, name=name)


@case("list_offsets")
def exact_timestamps(side: Side, version: int) -> None:
    name = filled(side)
    for after_ms in (-1, 0, 1, 10, 89, 90, 91, 500, 505, 995, 1000, 1001, 1045, 1090, 1091):
        ask(side, version, f"{after_ms} ms after the first", FIRST_MS + after_ms, name=name)
    ask(side, version, "zero", 0, name=name)
    ask(side, version, "the largest", 2**63 - 1, name=name)


@case("list_offsets")
def unknown_topic_and_partition(side: Side, version: int) -> None:
    name = filled(side)
    ask(side, version, "unknown topic", LATEST, name="nowhere")
    ask(side, version, "unknown partition", LATEST, name=name, partition=2)
    ask(side, version, "negative partition", LATEST, name=name, partition=-1)
    ask(side, version, "bad name", LATEST, name="bad name")
    ask(side, version, "empty name", LATEST, name="")


@case("list_offsets")
def several_partitions(side: Side, version: int) -> None:
    name = filled(side)
    rows = [{"partition_index": index, "timestamp": LATEST} for index in (1, 0, 2)]
    topics = [{"name": name, "partitions": rows}, {"name": "nowhere", "partitions": rows[:1]}]
    side.ask("list_offsets", version, {"replica_id": -1, "topics": topics})
    side.ask("list_offsets", version, {"replica_id": -1, "topics": []}, label="no topics")
    side.ask("list_offsets", version, {"replica_id": -1, "topics": [{"name": name}]}, label="no partitions")


@case("list_offsets")
def same_partition_twice(side: Side, version: int) -> None:
    name = filled(side)
    rows = [{"partition_index": 0, "timestamp": timestamp} for timestamp in (LATEST, EARLIEST)]
    side.ask("list_offsets", version, {"replica_id": -1, "topics": [{"name": name, "partitions": rows}]})


@case("list_offsets", since=4)
def leader_epochs(side: Side, version: int) -> None:
    name = filled(side)
    for epoch in (-1, 0, 1, 100, -2):
        ask(side, version, f"epoch {epoch}", LATEST, name=name, current_leader_epoch=epoch)


@case("list_offsets", since=2)
def isolation_levels(side: Side, version: int) -> None:
    name = filled(side)
    for level in (0, 1, 2, -1):
        ask(side, version, f"level {level}, latest", LATEST, name=name, isolation_level=level)
        ask(side, version, f"level {level}, exact", FIRST_MS + 15, name=name, isolation_level=level)


@case("list_offsets")
def replica_ids(side: Side, version: int) -> None:
    """-1 is a consumer, -2 a debugging one; anything else claims to be a broker."""
    name = filled(side)
    for replica in (-2, 1, 5):
        ask(side, version, f"replica {replica}", LATEST, name=name, replica_id=replica)
