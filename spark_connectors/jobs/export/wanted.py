"""Offsets of a topic that a run exports, from the progress of the job on: looked up once, before the first round.

A run exports the offsets that exist at this time, so that it ends. Once the job has committed, its progress counts
instead of the requested start, and new partitions begin at their first offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_connectors.jobs.tables.api import Place, Progress
from spark_connectors.jobs.tables.errors import TableRefused
from spark_connectors.offsets import Offsets
from spark_connectors.segments.access import planned_by
from spark_connectors.source.errors import report_loss
from spark_connectors.source.options import Edge, Limit, SourceOptions
from spark_connectors.source.planner import Limits, is_earliest
from spark_connectors.source.ranges import Division, OffsetRange
from spark_connectors.wire import TopicPartition


class ExportPlan(NamedTuple):
    """Ranges to export, in the order of partitions and offsets. `starts` has the first offset of each partition,
    whether it has a range or not.
    """

    topic_id: bytes
    ranges: list[OffsetRange]
    starts: Mapping[Place, int]

    @property
    def offsets(self) -> int:
        """Number of offsets."""
        return sum(one.size for one in self.ranges)


def plan_export(options: SourceOptions, starting: Limit, job: str, progress: Progress) -> ExportPlan:
    """Look up the offsets of one topic. Raises WireError, LimitRefused, TopicRecreated, CatalogueUnavailable, DataLoss,
    TableRefused.
    """
    with planned_by(options) as (places, division):
        return build_plan(options, starting, job, progress, places, division)


def build_plan(
    options: SourceOptions, starting: Limit, job: str, progress: Progress, places: Limits, division: Division
) -> ExportPlan:
    """The offsets to export, by the limits that `places` looks up. Raises as `plan_export` does."""
    firsts = places.at(Edge.EARLIEST, is_starting=True)
    begins = firsts if progress.offsets else places.at(starting, is_starting=True)
    ends = places.at(options.ending, is_starting=False)
    for earlier in (firsts, begins):
        earlier.check_ids(ends.ids)
    (topic_id,) = ends.ids.values()
    check_topic(progress, job, topic_id)
    ranges = []
    for place in sorted(ends.positions.keys() & firsts.positions.keys()):
        known = progress.offsets.get(Place(topic_id, place.partition))
        if known is None:
            is_whole = bool(progress.offsets) or is_earliest(starting, place)
            start = begins.positions[place]
        else:
            is_whole = False
            start = _resumed(options, place, known, firsts, ends)
        ranges.append(OffsetRange(place, topic_id, start, max(start, ends.positions[place]), is_whole))
    starts = {Place(topic_id, one.place.partition): one.start for one in ranges}
    tasks = division([one for one in ranges if one.size], None, None)
    return ExportPlan(topic_id, sorted(tasks, key=lambda one: (one.place, one.start)), starts)


def check_topic(progress: Progress, job: str, topic_id: bytes) -> None:
    """Raises TableRefused if the progress belongs to another topic, because offsets of one topic mean nothing in
    another.
    """
    others = {place.topic_id for place in progress.offsets} - {topic_id}
    if others:
        raise TableRefused(
            f"job {job} has exported the topic with id {min(others).hex()} to this table, and this one has id "
            f"{topic_id.hex()}: it was deleted and created again, or it is another one. Export it to another table: "
            f"both topics have the same offsets, and no verify could tell their rows apart"
        )


def _resumed(options: SourceOptions, place: TopicPartition, known: int, firsts: Offsets, ends: Offsets) -> int:
    first, end = firsts.positions[place], ends.positions[place]
    if known < first:
        report_loss(
            f"offsets {known} to {first} of {place} are gone, and were not exported", fails=options.fails_on_data_loss
        )
    if end < known and options.ending is Edge.LATEST:
        report_loss(f"{place} ends at {end}, and was exported up to {known} already", fails=options.fails_on_data_loss)
    return max(known, first)
