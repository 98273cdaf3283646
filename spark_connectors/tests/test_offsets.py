"""The JSON of the checkpoint: that of the kafka source, sorted, with topic ids that it ignores."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.offsets import MalformedOffsets, Offsets, TopicRecreated
from spark_connectors.wire import TopicPartition

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=10)
POSITIONS = st.dictionaries(
    st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1, max_size=20
)


@st.composite
def some_offsets(draw: st.DrawFn) -> Offsets:
    positions = draw(POSITIONS)
    named = draw(st.lists(st.sampled_from(sorted({one.topic for one in positions})), unique=True))
    return Offsets(positions, {topic: draw(st.binary(min_size=16, max_size=16)) for topic in named})


@given(some_offsets())
def test_they_go_both_ways(offsets: Offsets) -> None:
    assert Offsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@given(some_offsets(), st.randoms())
def test_the_text_is_the_same_however_they_came_about(offsets: Offsets, random: Any) -> None:
    """Trap: Spark takes the same offsets in another order for new ones, and an idle query runs forever."""
    positions, ids = list(offsets.positions.items()), list(offsets.ids.items())
    random.shuffle(positions)
    random.shuffle(ids)
    assert json.dumps(Offsets(dict(positions), dict(ids)).to_json()) == json.dumps(offsets.to_json())


def test_how_they_look() -> None:
    positions = {TopicPartition("t", 10): 7, TopicPartition("t", 9): 5, TopicPartition("a", 0): 1}
    offsets = Offsets(positions, {"t": b"\x01" * 16, "other": b"\x02" * 16})
    assert json.dumps(offsets.to_json()) == (
        '{"a": {"0": 1}, "t": {"9": 5, "10": 7}, "t@id=01010101010101010101010101010101": {}}'
    )


@given(some_offsets())
def test_the_kafka_source_sees_the_positions_alone(offsets: Offsets) -> None:
    """JsonUtils.partitionOffsets reads a map of maps of numbers to numbers."""
    read: dict[str, dict[str, int]] = json.loads(json.dumps(offsets.to_json()))
    seen = {TopicPartition(topic, int(number)): offset for topic, of in read.items() for number, offset in of.items()}
    assert seen == offsets.positions


def test_offsets_of_the_kafka_source_are_read() -> None:
    assert Offsets.from_json({"t": {"1": 5, "0": 7}}) == Offsets({TopicPartition("t", 0): 7, TopicPartition("t", 1): 5})


@pytest.mark.parametrize(
    "data",
    [[], None, {"t": 5}, {"t": {"x": 1}}, {"t": {"-1": 1}}, {"t": {"0": "1"}}, {"t": {"0": True}}, {"t@id=g": {}}],
)
def test_malformed_offsets_raise(data: Any) -> None:
    with pytest.raises(MalformedOffsets):
        Offsets.from_json(data)


def test_a_topic_with_another_id_is_another_topic() -> None:
    offsets = Offsets({TopicPartition("t", 0): 7, TopicPartition("u", 0): 7}, {"t": b"\x01" * 16})
    offsets.check_ids({"t": b"\x01" * 16, "u": b"\x09" * 16})
    offsets.check_ids({})
    with pytest.raises(TopicRecreated, match=r"topic t was deleted and created again: its id was 0101.* and is 0202"):
        offsets.check_ids({"t": b"\x02" * 16})
