"""Offsets of topics in a query's progress, and the lowest offset of each partition."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.offsets import Offsets
from spark_connectors.progress.positions import Positions, SourceEnd, lowest, positions_of
from spark_connectors.wire import TopicPartition

STOCK = "KafkaV2[Subscribe[t]]"
OURS = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithAdmissionControl@1f"
ID = "t@id=01010101010101010101010101010101"
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1))


def test_both_sources_tell_the_next_offset_to_read() -> None:
    expected = {FIRST: 10, SECOND: 0}
    assert positions_of([SourceEnd(STOCK, '{"t":{"0":10,"1":0}}')]) == expected
    assert positions_of([SourceEnd(OURS, f'{{"t": {{"0": 10, "1": 0}}, "{ID}": {{}}}}')]) == expected


@pytest.mark.parametrize(
    ("description", "end_offset"),
    [
        ("RateStreamV2[rowsPerSecond=1]", "0"),
        ("FileStreamSource[file:/data]", '{"logOffset":3}'),
        ("MemoryStream[value#1]", "null"),
        ("TextSocketV2[host: localhost, port: 9999]", "None"),
        (OURS, '{"t": {"0": 10}}'),  # another source, written in Python
        (OURS, '{"@refused": {}}'),
        (STOCK, "{}"),
    ],
)
def test_offsets_of_other_sources_are_left_out(description: str, end_offset: str) -> None:
    assert positions_of([SourceEnd(description, end_offset)]) == {}
    both = [SourceEnd(description, end_offset), SourceEnd(STOCK, '{"t":{"1":7}}')]
    assert positions_of(both) == {SECOND: 7}


@given(st.lists(POSITIONS, max_size=4))
def test_of_several_readers_of_a_partition_the_slowest_counts(several: list[Positions]) -> None:
    found = lowest(several)
    assert found.keys() == {place for positions in several for place in positions}
    for place, offset in found.items():
        assert offset == min(positions[place] for positions in several if place in positions)
    ends = [SourceEnd(STOCK, json.dumps(Offsets(positions).to_json())) for positions in several]
    assert positions_of(ends) == found
