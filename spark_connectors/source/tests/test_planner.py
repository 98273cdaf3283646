"""Start of a query, ends of its batches, ranges of its tasks, and the errors of these."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.offsets import Offsets, TopicRecreated
from spark_connectors.source.bounds import LimitRefused
from spark_connectors.source.errors import DataLoss
from spark_connectors.source.planner import StreamPlanner, batch_ranges
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.tests.world import FIRST_MS, Log, World
from spark_connectors.wire import BrokerError, TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def world_of(*counts: int) -> World:
    """A topic with these numbers of records in its partitions."""
    world = World()
    for number, count in enumerate(counts):
        if number == 0:
            world.topic(partitions=len(counts))
        if count:
            world.topics["t"].logs[number].append(*[b"v"] * count)
    return world


def planner(world: World, **options: str) -> StreamPlanner:
    chosen = world.options(True, **{"startingOffsets": "earliest", **options})
    return StreamPlanner(chosen, world.places(chosen), world.clock)


def batch(world: World, **options: str) -> list[tuple[str, int, int, bool]]:
    chosen = world.options(**options)
    return [(str(one.place), one.start, one.end, one.is_earliest) for one in batch_ranges(chosen, world.places(chosen))]


def spans(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [(str(one.place), one.start, one.end) for one in ranges]


# --- batches


def test_a_batch_has_all_there_is() -> None:
    world = world_of(10, 0, 5)
    assert batch(world) == [("t-0", 0, 10, True), ("t-2", 0, 5, True)]
    chosen = world.options()
    assert {one.topic_id for one in batch_ranges(chosen, world.places(chosen))} == {world.topics["t"].id}


def test_a_batch_between_places() -> None:
    world = world_of(10, 10)
    between = {
        "startingOffsets": json.dumps({"t": {"0": 2, "1": -2}}),
        "endingOffsets": json.dumps({"t": {"0": 7, "1": -1}}),
    }
    assert batch(world, **between) == [("t-0", 2, 7, False), ("t-1", 0, 10, True)]
    times = {"startingTimestamp": str(FIRST_MS + 15), "endingTimestamp": str(FIRST_MS + 40)}
    assert batch(world, **times) == [("t-0", 2, 4, False), ("t-1", 2, 4, False)]


@pytest.mark.parametrize(
    "limits",
    [
        {"startingTimestamp": str(FIRST_MS + 40), "endingTimestamp": str(FIRST_MS + 15)},
        {"startingOffsets": json.dumps({"t": {"0": 11, "1": -2}})},
        {"startingOffsets": json.dumps({"t": {"0": 5, "1": -2}}), "endingTimestamp": str(FIRST_MS + 15)},
    ],
)
def test_a_batch_that_would_end_before_its_start_is_refused(limits: dict[str, str]) -> None:
    """The stock source refuses it too (RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET): rows would be missing."""
    with pytest.raises(LimitRefused, match=r"t-0: the start offset \d+ is greater than the end offset \d+"):
        batch(world_of(10, 10), **limits)


def test_a_batch_is_cut_for_tasks() -> None:
    assert len(batch(world_of(10, 10), minPartitions="4")) == 4
    assert len(batch(world_of(10, 10), maxRecordsPerPartition="3")) == 8


# --- streams


def test_stream_plans_all_offsets_from_its_start() -> None:
    world = world_of(10, 5)
    query = planner(world)
    start = query.initial()
    assert start.positions == {ONE: 0, TWO: 0}
    end = query.latest(start, None, None)
    assert end == Offsets({ONE: 10, TWO: 5}, {"t": world.topics["t"].id})
    assert query.reported == end
    assert spans(query.ranges(start, end)) == [("t-0", 0, 10), ("t-1", 0, 5)]
    assert query.latest(end, None, None) == end
    assert query.ranges(end, end) == []


def test_a_stream_is_limited() -> None:
    world = world_of(100, 300)
    query = planner(world)
    end = query.latest(query.initial(), 40, None)
    assert end.positions == {ONE: 10, TWO: 30}
    assert query.reported is not None
    assert query.reported.positions == {ONE: 100, TWO: 300}
    assert query.latest(end, 10_000, None).positions == {ONE: 100, TWO: 300}


def test_a_batch_of_a_stream_waits() -> None:
    world = world_of(10)
    query = planner(world, maxTriggerDelay="20s")
    start = query.latest(query.initial(), None, 30)
    assert start.positions == {ONE: 10}
    world.topics["t"].logs[0].append(*[b"v"] * 29)
    assert query.latest(start, None, 30) is start
    world.clock.moment_s += 19
    assert query.latest(start, 5, 30) is start
    world.clock.moment_s += 1
    assert query.latest(start, 5, 30).positions == {ONE: 15}
    world.topics["t"].logs[0].append(b"v")
    assert query.latest(start, None, 30).positions == {ONE: 40}


def test_a_batch_that_is_planned_again_has_the_same_borders() -> None:
    """Another driver plans it again, and records have arrived since."""
    world = world_of(10, 5)
    query = planner(world, minPartitions="5")
    start = query.initial()
    end = query.latest(start, None, None)
    planned = query.ranges(start, end)
    world.topics["t"].logs[0].append(*[b"v"] * 100)
    world.topics["t"].logs[2] = Log()
    assert planner(world, minPartitions="5").ranges(start, end) == planned


def test_available_now_has_an_end() -> None:
    world = world_of(10)
    query = planner(world)
    query.read_what_is_there()
    start = query.latest(query.initial(), 6, 5)
    world.topics["t"].logs[0].append(*[b"v"] * 100)
    end = query.latest(start, 6, 5)  # a minimum would never be reached
    assert (start.positions, end.positions) == ({ONE: 6}, {ONE: 10})
    assert query.latest(end, 6, 5) == end


def test_a_new_partition_is_read_from_its_first_record_on() -> None:
    world = world_of(10)
    query = planner(world)
    start = query.latest(query.initial(), None, None)
    world.topic("u").logs[0].append(b"v")
    wider = planner(world, subscribe="t,u")
    end = wider.latest(start, 100, None)
    assert spans(wider.ranges(start, end)) == [("u-0", 0, 1)]


def fails_and_goes_on(world: World, start: Offsets, end: Offsets, text: str, left: list[tuple[str, int, int]]) -> None:
    with pytest.raises(DataLoss, match=f"KAFKA_DATA_LOSS: .*{text}.*failOnDataLoss"):
        planner(world, subscribePattern=".*").ranges(start, end)
    assert spans(planner(world, subscribePattern=".*", failOnDataLoss="false").ranges(start, end)) == left


def test_losses() -> None:
    world = world_of(10)
    ids = {"t": world.topics["t"].id}
    log = world.topic("u").logs[0]
    log.append(*[b"v"] * 5)
    log.delete_before(2)
    start, end = Offsets({ONE: 4}, ids), Offsets({ONE: 10}, ids)
    left = [("t-0", 4, 10)]
    new = Offsets({ONE: 10, TopicPartition("u", 0): 5}, {**ids, "u": world.topics["u"].id})
    fails_and_goes_on(world, start, new, "new partition u-0 begins at 2 instead of 0", [*left, ("u-0", 2, 5)])
    vanished = Offsets({ONE: 10, TopicPartition("v", 0): 5}, {**ids, "v": b"v" * 16})
    fails_and_goes_on(world, start, vanished, "of the new partitions v-0 are gone", left)
    gone = Offsets({ONE: 4, TopicPartition("v", 0): 5}, {**ids, "v": b"v" * 16})
    fails_and_goes_on(world, gone, end, "the partitions v-0 are gone", left)
    fails_and_goes_on(world, Offsets({ONE: 11}, ids), end, "the offset of t-0 went back from 11 to 10", [])


def test_a_topic_that_was_created_again() -> None:
    """Trap: the new topic has more records than the old one, so no offset looks wrong; for any failOnDataLoss."""
    world = world_of(10)
    query = planner(world, failOnDataLoss="false")
    start = query.latest(query.initial(), None, None)
    world.topic().logs[0].append(*[b"other"] * 20)
    with pytest.raises(TopicRecreated, match="topic t was deleted and created again"):
        query.latest(start, None, None)
    end = Offsets({ONE: 20}, {"t": world.topics["t"].id})
    with pytest.raises(TopicRecreated):
        query.ranges(start, end)


def test_a_checkpoint_of_the_kafka_source() -> None:
    world = world_of(10)
    query = planner(world)
    start = Offsets.from_json({"t": {"0": 3}})
    planned = Offsets.from_json({"t": {"0": 7}})
    assert [one.topic_id for one in query.ranges(start, planned)] == [world.topics["t"].id]
    end = query.latest(planned, None, None)
    assert end.ids == {"t": world.topics["t"].id}
    assert spans(query.ranges(planned, end)) == [("t-0", 7, 10)]
    del world.topics["t"]
    with pytest.raises(DataLoss, match="the topics t are gone"):
        query.ranges(start, planned)


def test_an_idle_query_rests() -> None:
    """Trap: Spark compares offsets as text, so equal offsets must have equal text."""
    world = world_of(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    query = planner(world)
    first = query.latest(query.initial(), None, None)
    text = json.dumps(first.to_json())
    again = query.latest(Offsets.from_json(json.loads(text)), None, None)
    assert json.dumps(again.to_json()) == text


def test_a_topic_that_is_not_there() -> None:
    world = World()
    with pytest.raises(BrokerError, match="topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        planner(world).initial()


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.none() | st.integers(1, 15)), max_size=15)


@given(STEPS, st.none() | st.integers(1, 5), st.none() | st.integers(1, 10), st.booleans())
def test_each_offset_is_planned_once(
    steps: list[tuple[int, int, int | None]], least: int | None, most: int | None, restarts: bool
) -> None:
    """A topic and its partitions grow, while a query is limited, divided among tasks, and restarted."""
    world = world_of(0)
    options = {key: str(value) for key, value in (("minPartitions", least), ("maxRecordsPerPartition", most)) if value}
    query = planner(world, **options)
    start = query.initial()
    read: dict[TopicPartition, list[int]] = {}
    for partition, count, limit in (*steps, (0, 1, None)):
        for number in range(partition + 1):
            world.topics["t"].logs.setdefault(number, Log())
        if count:
            world.topics["t"].logs[partition].append(*[b"v"] * count)
        query = planner(world, **options) if restarts else query
        end = Offsets.from_json(json.loads(json.dumps(query.latest(start, limit, None).to_json())))
        for one in query.ranges(start, end):
            read.setdefault(one.place, []).extend(range(one.start, one.end))
        start = end
    for number, log in world.topics["t"].logs.items():
        assert read.get(TopicPartition("t", number), []) == list(range(log.end))
