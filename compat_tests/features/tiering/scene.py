"""A topic that goes through the stages of tiering, the same on both brokers, and all requests about it."""

from __future__ import annotations

import random
import time
import zlib
from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_configs import SET, TOPIC, resource, wait_for
from compat_tests.differential.normalise import CONTROL, split_batches
from compat_tests.features.tiering.brokers import Tiered
from compat_tests.harness.batches import CHECKED, FIRST_MS, LENGTH_COVERS_FROM, PREFIX, Batch, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compat_tests.differential.side import Side

VALUE_BYTES = 170_000
RECORDS_A_BATCH, BATCHES_A_SEGMENT = 2, 3
OFFSETS_A_SEGMENT = RECORDS_A_BATCH * BATCHES_A_SEGMENT
SEGMENT_BYTES = 1 << 20  # the least that Apache Kafka takes; three batches fit
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NAMED_POINTS = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
BETWEEN_BATCHES_MS = 1000
WITHIN_S = 60.0
LIST_OFFSETS_VERSIONS = range(1, 12)
BASE_CONFIGS = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", "remote.storage.enable": "true"}
MIB = 1 << 20
TIMEOUT_MS = 10_000
REQUEST_TIMED_OUT = 7


def values(number: int) -> tuple[bytes, ...]:
    """The values of one batch, the same for both brokers."""
    source = random.Random(number)
    return tuple(source.randbytes(VALUE_BYTES) for _ in range(RECORDS_A_BATCH))


def batch(number: int, first_ms: int = FIRST_MS) -> bytes:
    records = tuple(Record(value=value, timestamp_delta_ms=10 * at) for at, value in enumerate(values(number)))
    return Batch(records=records, base_timestamp_ms=first_ms + BETWEEN_BATCHES_MS * number).encode()


BATCH_BYTES = len(batch(0))


def create(side: Side, name: str, **configs: str) -> None:
    """A topic in the tier; names of configs with underscores."""
    side.create_topic(name, configs=BASE_CONFIGS | {key.replace("_", "."): value for key, value in configs.items()})


def fill(side: Side, name: str, numbers: Iterable[int], first_ms: int = FIRST_MS) -> None:
    for number in numbers:
        side.produce(name, batch(number, first_ms))


def configure(side: Side, name: str, key: str, value: str) -> None:
    """Set a config, and wait until the broker has it."""
    asked = {"resources": [resource(TOPIC, name, (SET, key, value))], "validate_only": False}
    reply = side.quiet("incremental_alter_configs", 1, asked)
    assert reply["responses"][0]["error_code"] == 0, f"{side.broker.name}: {reply}"
    wait_for(side, TOPIC, name, key, value)


def offset(side: Side, name: str, point: int) -> int:
    """The offset at one of the named points."""
    row = {"partition_index": 0, "timestamp": point}
    reply = side.quiet("list_offsets", 11, {"replica_id": -1, "topics": [{"name": name, "partitions": [row]}]})
    found: int = reply["topics"][0]["partitions"][0]["offset"]
    return found


def wait_until(side: Side, name: str, point: int, wanted: int) -> None:
    _wait(lambda: offset(side, name, point), wanted, f"{side.broker.name}: point {point} of {name}")


def wait_for_store(side: Side, name: str, wanted: list[int]) -> None:
    """Wait until the tier has segments with exactly these first offsets."""
    _wait(lambda: copied(side, name), wanted, f"{side.broker.name}: segments of {name}")


def _wait(ask: Callable[[], object], wanted: object, what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (found := ask()) != wanted:
        assert time.monotonic() < deadline, f"{what}: {found}, not {wanted}"
        time.sleep(0.05)


def copied(side: Side, name: str) -> list[int]:
    assert isinstance(side.broker, Tiered)
    return side.broker.copied(name, side.topic_id(name))


def ask_all(side: Side, stage: str, name: str) -> None:
    """Ask for the start and end of the log, the positions of its segments, and all records."""
    ask_offsets(side, stage, name)
    ask_times(side, stage, name)
    ask_epochs(side, stage, name)
    ask_sizes(side, stage, name)
    side.note(f"{stage}: the store", copied(side, name))
    ask_records(side, stage, name)


def ask_offsets(side: Side, stage: str, name: str, versions: Iterable[int] = LIST_OFFSETS_VERSIONS) -> None:
    for version in versions:
        for point in NAMED_POINTS:
            _list_offsets(side, version, f"{stage}: point {point} in v{version}", name, point)


def ask_times(side: Side, stage: str, name: str) -> None:
    """Ask for the offset by time: at each batch, between them, before the first and after the last."""
    for number in range(-1, 18):
        for after_ms in (0, 5):
            at_ms = BETWEEN_BATCHES_MS * number + after_ms
            _list_offsets(side, 11, f"{stage}: {at_ms} ms after the first", name, FIRST_MS + at_ms)


def _list_offsets(side: Side, version: int, label: str, name: str, timestamp: int) -> None:
    """Ask for an offset, and repeat as clients do if the tier took too long: Apache Kafka's sometimes does."""
    row = {"partition_index": 0, "timestamp": timestamp}
    fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": name, "partitions": [row]}]}
    if version >= 10:
        fields["timeout"] = TIMEOUT_MS  # without it, Apache Kafka does not wait for the tier
    side.ask_while(REQUEST_TIMED_OUT, "list_offsets", version, fields, label=label)


def ask_epochs(side: Side, stage: str, name: str) -> None:
    for epoch in (0, 1):
        row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        fields = {"topics": [{"topic": name, "partitions": [row]}], "replica_id": -1}
        side.ask("offset_for_leader_epoch", 4, fields, label=f"{stage}: end of epoch {epoch}")


def ask_sizes(side: Side, stage: str, name: str) -> None:
    asked = {"topics": [{"topic": name, "partitions": [0]}]}
    side.ask("describe_log_dirs", 4, asked, label=f"{stage}: log dirs")


def ask_records(side: Side, stage: str, name: str) -> None:
    """Fetch all batches from the log start on, and note the answers to fetches below it."""
    start, end = offset(side, name, EARLIEST), offset(side, name, LATEST)
    for below in {0, max(start - 1, 0)}:
        note_fetch(side, f"{stage}: fetch from {below}", name, below)
    found, at = [], start
    while at < end:
        row = fetch(side, name, at)
        assert row["error_code"] == 0, f"{side.broker.name}: {row}"
        for each in split_batches(row["records"] or b""):
            if (shown := show_batch(each))["complete"]:
                found.append(shown)
                at = shown["end"]
    side.note(f"{stage}: all records", found)


def show_batch(data: bytes) -> dict[str, Any]:
    """The offsets of a batch, and a digest of its bytes, without those that a broker sets."""
    if len(data) < PREFIX.size + CHECKED.size:
        return {"offset": "(torn)", "bytes": len(data), "complete": False}
    base_offset, length, _, _, _ = PREFIX.unpack_from(data)
    attributes, last_delta, _, _, producer_id, *_ = CHECKED.unpack_from(data, PREFIX.size)
    complete = len(data) == LENGTH_COVERS_FROM + length
    given = data if producer_id < 0 else data[PREFIX.size + CHECKED.size :]
    return {
        "offset": base_offset,
        "end": base_offset + last_delta + 1,
        "length": length,
        "complete": complete,
        "attributes": attributes,
        "bytes": "(marker)" if attributes & CONTROL else zlib.crc32(given),
    }


def fetch_all(side: Side, places: dict[str, int], version: int = 12, **more: Any) -> list[dict[str, Any]]:
    """The rows of partition 0 of several topics, each from an offset."""
    limit = more.pop("partition_max_bytes", MIB)
    topics = [
        {
            "topic": name,
            "topic_id": side.topic_id(name),
            "partitions": [{"partition": 0, "fetch_offset": at, "partition_max_bytes": limit}],
        }
        for name, at in places.items()
    ]
    request = {"replica_id": -1, "max_wait": 5000, "min_bytes": 1, "max_bytes": 50 * MIB, "session_epoch": -1}
    reply = side.quiet("fetch", version, {**request, "topics": topics, **more})
    return [row for topic in reply["responses"] for row in topic["partitions"]]


def fetch(side: Side, name: str, at: int, **more: Any) -> dict[str, Any]:
    """The row of one partition."""
    [row] = fetch_all(side, {name: at}, **more)
    return row


def note_fetch(side: Side, label: str, name: str, at: int, **more: Any) -> None:
    """A reply with its batches in short."""
    note_fetches(side, label, {name: at}, **more)


def note_fetches(side: Side, label: str, places: dict[str, int], **more: Any) -> None:
    """Note a reply row for row."""
    for number, row in enumerate(fetch_all(side, places, **more)):
        batches = [show_batch(each) for each in split_batches(row.pop("records") or b"")]
        row["aborted_transactions"] = sorted(each["first_offset"] for each in row["aborted_transactions"] or ())
        side.note(f"{label}: row {number}", {**row, "batches": batches})
