"""Offsets to export: from the progress of the job on, up to the end at the lookup."""

from __future__ import annotations

from typing import Any

import pytest

from spark_connectors.jobs.export.wanted import ExportPlan, build_plan
from spark_connectors.jobs.tables.api import Place, Position, Progress
from spark_connectors.jobs.tables.errors import TableRefused
from spark_connectors.source.errors import DataLoss
from spark_connectors.source.options import Edge, Limit
from spark_connectors.source.ranges import divided
from spark_connectors.source.tests.world import World

JOB = "nightly"


@pytest.fixture
def world() -> World:
    """A topic of two partitions with ten and five records."""
    world = World()
    topic = world.topic("t", 2)
    topic.logs[0].append(*[b"v"] * 10)
    topic.logs[1].append(*[b"v"] * 5)
    return world


def plan_of(
    world: World, progress: Progress | None = None, starting: Limit | None = None, **options: str
) -> ExportPlan:
    asked = world.options(**options)
    found = progress or Progress()
    return build_plan(asked, asked.starting if starting is None else starting, JOB, found, world.places(asked), divided)


def edges(found: ExportPlan) -> list[tuple[int, int, int]]:
    return [(one.place.partition, one.start, one.end) for one in found.ranges]


def at(world: World, *offsets: int) -> Progress:
    topic_id = world.topics["t"].id
    return Progress().advanced(Position(topic_id, number, offset) for number, offset in enumerate(offsets))


def test_a_job_begins_where_partitions_do(world: World) -> None:
    world.topics["t"].logs[0].delete_before(3)
    found = plan_of(world)
    assert edges(found) == [(0, 3, 10), (1, 0, 5)]
    assert all(one.is_earliest for one in found.ranges)
    assert found.offsets == 12


def test_a_job_may_begin_at_the_end(world: World) -> None:
    """The job remembers this start."""
    found = plan_of(world, starting=Edge.LATEST)
    assert found.ranges == []
    topic_id = world.topics["t"].id
    assert found.starts == {Place(topic_id, 0): 10, Place(topic_id, 1): 5}


def test_a_job_may_begin_anywhere(world: World) -> None:
    found = plan_of(world, startingOffsets='{"t": {"0": 7, "1": -2}}', endingOffsets='{"t": {"0": 9, "1": -1}}')
    assert edges(found) == [(0, 7, 9), (1, 0, 5)]
    assert [one.is_earliest for one in found.ranges] == [False, True]


def test_job_continues_at_its_position_despite_a_requested_start(world: World) -> None:
    """The requested start is ignored."""
    found = plan_of(world, at(world, 4, 5), startingOffsets='{"t": {"0": 7, "1": 1}}')
    assert edges(found) == [(0, 4, 10)]
    assert not found.ranges[0].is_earliest


def test_new_partition_is_exported_from_its_beginning(world: World) -> None:
    found = plan_of(world, at(world, 10), starting=Edge.LATEST)
    assert edges(found) == [(1, 0, 5)]
    assert found.ranges[0].is_earliest


def test_offsets_deleted_before_their_export_raise_data_loss(world: World) -> None:
    world.topics["t"].logs[0].delete_before(6)
    with pytest.raises(DataLoss, match="offsets 4 to 6 of t-0 are gone, and were not exported"):
        plan_of(world, at(world, 4, 5))
    assert edges(plan_of(world, at(world, 4, 5), failOnDataLoss="false")) == [(0, 6, 10)]


def test_a_log_that_went_back_is_a_loss(world: World) -> None:
    with pytest.raises(DataLoss, match="t-0 ends at 10, and was exported up to 12 already"):
        plan_of(world, at(world, 12, 5))
    assert edges(plan_of(world, at(world, 12, 5), failOnDataLoss="false")) == []


def test_an_end_before_where_the_job_is_is_none(world: World) -> None:
    assert edges(plan_of(world, at(world, 8, 2), endingOffsets='{"t": {"0": 3, "1": 4}}')) == [(1, 2, 4)]


def test_a_topic_that_was_created_again_is_refused(world: World) -> None:
    before = at(world, 4, 5)
    world.topic("t", 2)
    with pytest.raises(TableRefused, match="deleted and created again"):
        plan_of(world, before)


def test_read_committed_job_ends_at_the_last_stable_offset(world: World) -> None:
    log = world.topics["t"].logs[0]
    log.send(7, b"undecided")
    asked: dict[str, Any] = {"kafka.isolation.level": "read_committed"}
    assert edges(plan_of(world, **asked)) == [(0, 0, 10), (1, 0, 5)]
