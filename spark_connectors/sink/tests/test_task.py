"""Rows of a task become batches by partition, staged for the driver; a failed task leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.batches.batch import parse_header, walk_records
from spark_connectors.records.batches import batches_of, body_of
from spark_connectors.records.errors import RecordTooLarge
from spark_connectors.sink.columns import PIECE_BYTES
from spark_connectors.sink.errors import RowRefused
from spark_connectors.sink.options import SinkOptions, sink_options
from spark_connectors.sink.staging import Staged, Task, frames_of
from spark_connectors.sink.task import stage
from spark_connectors.wire import TopicPartition

BY = Task("query", 7, 3, 0)
NOW_MS = 1_700_000_000_123


def options(directory: Path, **more: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": "one", "stagingLocation": str(directory), "topic": "t", **more})


def rows(*values: bytes | None, **more: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), **more})


def staged(batches: list[pa.RecordBatch], using: SinkOptions, partitions: int = 3) -> Staged:
    return stage(iter(batches), BY, using, lambda _: partitions, lambda: NOW_MS)


def records_of(found: Staged) -> list[tuple[TopicPartition, bytes | None, bytes | None, int]]:
    """Place, key, value and time of each record, in the order of staging."""
    records = []
    for frame in frames_of(found):
        data = bytes(frame.batch)
        (batch,) = batches_of(data)
        header = parse_header(data)
        records += [
            (frame.place, one.key, one.value, header.base_timestamp_ms)
            for one in walk_records(header, bytes(body_of(memoryview(data), batch)))
        ]
    return records


def test_rows_go_where_they_say(tmp_path: Path) -> None:
    batch = rows(b"a", b"b", None, key=[b"k", None, b"k"], partition=pa.array([2, 1, 2], pa.int32()))
    found = staged([batch], options(tmp_path))
    one, two = TopicPartition("t", 1), TopicPartition("t", 2)
    assert sorted(records_of(found), key=str) == sorted(
        [(one, None, b"b", NOW_MS), (two, b"k", b"a", NOW_MS), (two, b"k", None, NOW_MS)], key=str
    )
    assert (found.by, found.rows, set(found.places)) == (BY, 3, {one, two})


def test_small_batches_of_arrow_become_one(tmp_path: Path) -> None:
    found = staged([rows(b"%d" % number) for number in range(20)], options(tmp_path), partitions=1)
    assert len(list(frames_of(found))) == 1
    assert [value for _, _, value, _ in records_of(found)] == [b"%d" % number for number in range(20)]


def test_places_take_turns(tmp_path: Path) -> None:
    """So the driver can append to several places at once."""
    count = 64
    batch = rows(*[bytes(1000)] * count, partition=pa.array([number % 2 for number in range(count)], pa.int32()))
    frames = list(frames_of(staged([batch], options(tmp_path, **{"kafka.batch.size": "8000"}))))
    assert [frame.place.partition for frame in frames] == [0, 1] * (len(frames) // 2)
    assert len(frames) > 4


def test_no_rows(tmp_path: Path) -> None:
    found = staged([], options(tmp_path))
    assert (found.rows, found.places, records_of(found)) == (0, (), [])


def test_each_topic_is_counted_once(tmp_path: Path) -> None:
    asked = []

    def count_of(topic: str) -> int:
        asked.append(topic)
        return 2

    batches = [rows(bytes(PIECE_BYTES), topic=["t"]) for _ in range(2)]
    using = sink_options({"kafka.bootstrap.servers": "one", "stagingLocation": str(tmp_path),
                          "kafka.max.request.size": str(2 * PIECE_BYTES)})  # fmt: skip
    stage(iter(batches), BY, using, count_of, lambda: NOW_MS)
    assert asked == ["t"]


def large_then(*last: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Enough rows for a file, and then the last ones."""
    for _ in range(40):
        yield rows(bytes(900_000), partition=pa.array([0], pa.int32()))
    yield from last


def failing() -> Iterator[pa.RecordBatch]:
    yield from large_then()
    raise OSError("a disk is full")


@pytest.mark.parametrize(
    ("batches", "kind"),
    [
        (large_then(rows(b"v", partition=pa.array([9], pa.int32()))), RowRefused),
        (large_then(rows(bytes(2_000_000), partition=pa.array([0], pa.int32()))), RecordTooLarge),
        (failing(), OSError),
    ],
    ids=["partition", "too large", "source"],
)
def test_a_task_that_fails_leaves_no_file(
    tmp_path: Path, batches: Iterator[pa.RecordBatch], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        stage(batches, BY, options(tmp_path), lambda _: 3, lambda: NOW_MS)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
