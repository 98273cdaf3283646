"""Partitions, their start and end offsets, and offsets for times."""

from __future__ import annotations

import json

import pytest

from kafkawire.messages.list_offsets import ListOffsetsRequest
from spark_connectors.offsets import Offsets
from spark_connectors.source.bounds import LimitRefused
from spark_connectors.source.options import AtOffsets, AtTimestamp, AtTimestamps, Edge
from spark_connectors.source.tests.world import FIRST_MS, World
from spark_connectors.wire import BrokerError, GaveUp, TopicPartition
from spark_connectors.wire.tests.fakes import FakeBroker

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world() -> World:
    """A topic with two partitions, of which the first begins at 3."""
    world = World()
    topic = world.topic(partitions=2)
    topic.logs[0].append(*[b"v"] * 10)
    topic.logs[0].delete_before(3)
    topic.logs[1].append(b"v")
    return world


def test_ends_and_beginnings(world: World) -> None:
    places = world.places(world.options())
    assert places.latest() == Offsets({ONE: 10, TWO: 1}, {"t": world.topics["t"].id})
    assert places.at(Edge.EARLIEST, is_starting=True).positions == {ONE: 3, TWO: 0}
    assert places.earliest({ONE}) == {ONE: 3}
    assert places.earliest({ONE, TopicPartition("t", 5), TopicPartition("u", 0)}) == {ONE: 3}
    assert places.earliest(set()) == {}
    assert places.ids_of(["t", "u"]) == {"t": world.topics["t"].id}


def test_open_transaction_limits_the_committed_end(world: World) -> None:
    world.topics["t"].logs[1].send(7, b"a", b"b")
    assert world.places(world.options()).latest().positions[TWO] == 3
    assert world.places(world.options(**{"kafka.isolation.level": "read_committed"})).latest().positions[TWO] == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "t,u"}, {"t-0", "t-1", "u-0"}),
        ({"subscribePattern": "[tu]"}, {"t-0", "t-1", "u-0"}),
        ({"subscribePattern": "t"}, {"t-0", "t-1"}),
        ({"subscribePattern": "no.*"}, set()),
        ({"subscribePattern": ".*"}, {"t-0", "t-1", "u-0", "tu-0"}),
        ({"assign": '{"t":[1],"u":[0]}'}, {"t-1", "u-0"}),
    ],
)
def test_selection_returns_matching_partitions(world: World, options: dict[str, str], expected: set[str]) -> None:
    for name in ("u", "tu"):
        world.topic(name)
    world.topic("__consumer_offsets", is_internal=True)
    found = world.places(world.options(**options)).latest()
    assert {str(one) for one in found.positions} == expected
    assert found.ids.keys() == {one.topic for one in found.positions}


@pytest.mark.parametrize(
    ("options", "text"), [({"subscribe": "t,x,u"}, "topic u, x: UNKNOWN"), ({"assign": '{"t":[0,2]}'}, "t-2: UNKNOWN")]
)
def test_missing_topic_is_looked_up_as_often_as_configured(world: World, options: dict[str, str], text: str) -> None:
    places = world.places(world.options(**options, **{"fetchOffset.numRetries": "4"}))
    with pytest.raises(BrokerError, match=text):
        places.latest()
    assert world.clock.pauses_s == [1, 1, 1]


def test_limits(world: World) -> None:
    places = world.places(world.options())
    assert places.at(AtOffsets({ONE: 5, TWO: -1}), is_starting=True).positions == {ONE: 5, TWO: 1}
    assert places.at(AtOffsets({ONE: -2, TWO: 7}), is_starting=False).positions == {ONE: 3, TWO: 7}
    times = AtTimestamps({ONE: FIRST_MS + 55, TWO: FIRST_MS})
    assert places.at(times, is_starting=True).positions == {ONE: 6, TWO: 0}
    assert places.at(AtTimestamp(FIRST_MS - 5), is_starting=True).positions == {ONE: 3, TWO: 0}


def test_a_time_behind_the_last_record(world: World) -> None:
    limit = AtTimestamp(FIRST_MS + 20)
    assert world.places(world.options()).at(limit, is_starting=False).positions == {ONE: 3, TWO: 1}
    refusal = f"No offset matched from request of topic-partition t-1 and timestamp {FIRST_MS + 20}"
    with pytest.raises(LimitRefused, match=refusal):
        world.places(world.options()).at(AtTimestamps({ONE: 0, TWO: FIRST_MS + 20}), is_starting=True)
    lenient = world.options(startingOffsetsByTimestampStrategy="latest")
    assert world.places(lenient).at(limit, is_starting=True).positions == {ONE: 3, TWO: 1}


@pytest.mark.parametrize("given", [{ONE: 1}, {ONE: 1, TWO: 1, TopicPartition("t", 2): 1}])
def test_limits_name_all_there_is(world: World, given: dict[TopicPartition, int]) -> None:
    for limit in (AtOffsets(given), AtTimestamps(given)):
        with pytest.raises(LimitRefused, match="must name all partitions"):
            world.places(world.options()).at(limit, is_starting=True)


def test_an_end_that_goes_back_is_not_believed_at_once(world: World) -> None:
    world.lag[ONE] = 4
    known = Offsets({ONE: 10, TWO: 1, TopicPartition("gone", 0): 5})
    assert world.places(world.options()).latest(known).positions[ONE] == 10
    assert world.clock.pauses_s == [1]
    before = len(world.broker.asked(ListOffsetsRequest))
    assert world.places(world.options()).latest(Offsets({ONE: 11})).positions[ONE] == 10
    assert len(world.broker.asked(ListOffsetsRequest)) == before + 3


def test_a_cluster_that_does_not_answer(world: World) -> None:
    world.broker.is_down = True
    options = world.options(**{"kafka.default.api.timeout.ms": "5000", "fetchOffset.numRetries": "2"})
    begun_s = world.clock.now_s()
    with pytest.raises(GaveUp, match="cannot connect to one:9092"):
        world.places(options).latest()
    assert 9 < world.clock.now_s() - begun_s < 12


def test_a_connection_that_is_lost(world: World) -> None:
    places = world.places(world.options())
    world.broker.next.extend([None, None, FakeBroker.BREAK_AFTER])
    assert places.latest().positions == {ONE: 10, TWO: 1}


def test_many_partitions_are_asked_for_at_once(world: World) -> None:
    world.topic("u", partitions=50)
    places = world.places(world.options(subscribe="t,u"))
    assert len(places.latest().positions) == 52
    assert len(world.broker.asked(ListOffsetsRequest)) == 1
    assert json.dumps(places.latest().to_json())
