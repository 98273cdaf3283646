"""Rows go to the same partitions as one by one, and keep their order there."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.client.partitioner import partition_of_key
from spark_connectors.records.partitioner import CHUNK_BYTES
from spark_connectors.sink.columns import SinkRows, rows_of
from spark_connectors.sink.errors import RowRefused
from spark_connectors.sink.routing import Router
from spark_connectors.wire import TopicPartition

COUNTS = {"a": 1, "b": 3, "c": 70_000}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(list(COUNTS)),
            "key": st.none() | st.binary(max_size=5),
            "partition": st.none() | st.just(0),
        }
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = pa.schema([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])


def sink_rows(rows: list[dict[str, object]]) -> SinkRows:
    numbered = [{**row, "value": str(number).encode()} for number, row in enumerate(rows)]
    return rows_of(pa.RecordBatch.from_pylist(numbered, schema=SCHEMA), None)


def routed(router: Router, rows: list[dict[str, object]]) -> dict[TopicPartition, list[int]]:
    """Numbers of the rows of each place."""
    found = router.routed(sink_rows(rows))
    assert len(set(found.places)) == len(found.places)
    values = [int(value) for value in found.rows.values.to_pylist()]
    assert [rows[number]["key"] for number in values] == found.rows.keys.to_pylist()
    edges = pairwise([*found.edges, len(values)])
    return {place: values[first:end] for place, (first, end) in zip(found.places, edges, strict=True)}


@given(ROWS, st.booleans())
def test_rows_go_where_they_belong(rows: list[dict[str, object]], ignores_keys: bool) -> None:
    expected = defaultdict(list)
    for number, row in enumerate(rows):
        topic, key = str(row["topic"]), row["key"]
        count = COUNTS[topic]
        partition = 2 % count
        if row["partition"] is not None:
            partition = 0
        elif isinstance(key, bytes) and not ignores_keys:
            partition = partition_of_key(key, count)
        expected[TopicPartition(topic, partition)].append(number)
    assert routed(Router(COUNTS.__getitem__, 2, ignores_keys=ignores_keys), rows) == expected


def test_rows_without_a_key_go_on_where_the_last_piece_ended() -> None:
    router = Router(COUNTS.__getitem__, 0)
    rows: list[dict[str, object]] = [{"topic": "b", "key": None, "partition": None}] * (CHUNK_BYTES // 25)
    found = [{place.partition for place in routed(router, rows)} for _ in range(4)]
    assert found == [{0}, {0, 1}, {1, 2}, {2, 0}]


def test_partitions_are_counted_once_for_a_topic() -> None:
    asked = []

    def count_of(topic: str) -> int:
        asked.append(topic)
        return 3

    router = Router(count_of, 0)
    for _ in range(3):
        router.routed(sink_rows([{"topic": topic, "key": b"k", "partition": None} for topic in "aab"]))
    assert asked == ["a", "b"]


def test_a_partition_that_is_not_there() -> None:
    counts = [3, 3, 5]
    router = Router(lambda _: counts.pop(0), 0)
    row: dict[str, object] = {"topic": "t", "key": None, "partition": 4}
    with pytest.raises(RowRefused, match="topic t has 3 partitions, and none 4"):
        router.routed(sink_rows([row]))
    assert routed(router, [row]) == {TopicPartition("t", 4): [0]}


def test_a_negative_partition() -> None:
    row: dict[str, object] = {"topic": "a", "key": None, "partition": -1}
    with pytest.raises(RowRefused, match=r"Invalid partition: -1. Partition number should always be non-negative"):
        Router(COUNTS.__getitem__, 0).routed(sink_rows([row]))
