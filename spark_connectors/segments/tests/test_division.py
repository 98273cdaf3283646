"""Size of tasks for sealed segments, and questions to the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from spark_connectors.segments.plan import SealedRange
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed, Segment
from spark_connectors.segments.splitting import LOOK_AGAIN_S, BySegments
from spark_connectors.source.ranges import OffsetRange, Times
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.tests.fakes import FakeClock

ID = bytes(16)


@dataclass
class ScriptedCatalogue:
    """Catalogue with a number of segments for each partition. A segment has ten offsets, a hundred bytes and four
    batches.
    """

    segments: dict[int, int]
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    is_away: bool = False
    has_positions: bool = True

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        self.asked.append((place.partition, start, end))
        if self.is_away:
            raise CatalogueUnavailable("away")
        if place.partition not in self.segments:
            return None
        bases = range(0, 10 * self.segments[place.partition], 10)
        places = ((2, 25), (5, 50), (7, 75)) if self.has_positions else ()
        found = tuple(
            Segment(base, base + 10, 100, base, "", (), tuple((base + step, at) for step, at in places), f"{base}")
            for base in bases
        )
        return Sealed(place, topic_id, 0, 10 * len(found), found, "s3://bucket")


def one(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), ID, start, end)


def ranges_of(ranges: list[OffsetRange]) -> list[tuple[int, int, int, int]]:
    """Partition, start, end and bytes of segments of each range."""
    sizes = [each.size_bytes if isinstance(each, SealedRange) else 0 for each in ranges]
    return [(each.place.partition, each.start, each.end, size) for each, size in zip(ranges, sizes, strict=True)]


def test_tasks_read_at_most_the_split_bytes_of_segments() -> None:
    division = BySegments(ScriptedCatalogue({0: 3, 1: 1}), 100)
    found = division.divided([one(0, 0, 35), one(1, 0, 10), one(2, 0, 5), one(3, 4, 4)], None, None)
    assert ranges_of(found) == [
        (0, 0, 10, 100),
        (0, 10, 20, 100),
        (0, 20, 30, 100),
        (1, 0, 10, 100),
        (0, 30, 35, 0),
        (2, 0, 5, 0),
    ]


def test_there_are_about_as_many_tasks_as_asked_for() -> None:
    division = BySegments(ScriptedCatalogue({0: 2}), 1 << 20)
    assert ranges_of(division.divided([one(0, 0, 20)], None, None)) == [(0, 0, 20, 200)]
    assert len(division.divided([one(0, 0, 20)], 8, None)) == 8
    assert ranges_of(division.divided([one(0, 0, 40)], 4, None)) == [
        (0, 0, 10, 100),
        (0, 10, 20, 100),
        (0, 20, 30, 0),
        (0, 30, 40, 0),
    ]


def test_tasks_have_at_most_the_requested_number_of_offsets() -> None:
    found = BySegments(ScriptedCatalogue({0: 1}), 1 << 20).divided([one(0, 0, 12)], None, 4)
    assert ranges_of(found) == [(0, 0, 3, 50), (0, 3, 6, 50), (0, 6, 10, 50), (0, 10, 12, 0)]


def test_segments_before_the_start_time_are_not_read() -> None:
    found = BySegments(ScriptedCatalogue({0: 3}), 1 << 20).divided([one(0, 0, 30)], None, None, Times(20))
    assert ranges_of(found) == [(0, 0, 30, 100)]


def test_range_is_fetched_if_the_catalogue_is_unavailable() -> None:
    catalogue = ScriptedCatalogue({0: 3}, is_away=True)
    assert ranges_of(BySegments(catalogue, 100).divided([one(0, 0, 30)], None, None)) == [(0, 0, 30, 0)]


def test_batch_positions_of_a_large_segment_are_looked_up_if_missing() -> None:
    looked: list[tuple[str | None, str | None]] = []

    def with_trailer(segment: Segment, store: str | None) -> Segment:
        looked.append((segment.key, store))
        if segment.base == 20:
            raise SegmentGone("it is gone")
        return segment._replace(positions=((segment.base + 5, 50),))

    catalogue = ScriptedCatalogue({0: 3}, has_positions=False)
    found = BySegments(catalogue, 60, with_trailer).divided([one(0, 0, 30)], None, None)
    assert looked == [("0", "s3://bucket"), ("10", "s3://bucket"), ("20", "s3://bucket")]
    assert ranges_of(found) == [(0, 0, 5, 50), (0, 5, 10, 50), (0, 10, 15, 50), (0, 15, 20, 50), (0, 20, 30, 100)]
    BySegments(catalogue, 100, with_trailer).divided([one(0, 0, 30)], None, None)
    assert len(looked) == 3


@pytest.mark.parametrize("partition", [0, 1])
def test_a_stream_at_the_end_asks_now_and_then(partition: int) -> None:
    catalogue, clock = ScriptedCatalogue({0: 3}), FakeClock()
    division = BySegments(catalogue, 1 << 20, clock=clock)

    def plan(start: int, end: int) -> int:
        before = len(catalogue.asked)
        division.divided([one(partition, start, end)], None, None)
        return len(catalogue.asked) - before

    behind = 0 if partition else 1  # a partition without known segments has nothing to catch up with
    assert [plan(0, 10), plan(10, 20), plan(20, 35)] == [1, behind, behind]
    assert [plan(35, 40), plan(40, 41)] == [0, 0]
    clock.moment_s += LOOK_AGAIN_S
    assert [plan(41, 42), plan(42, 43)] == [1, 0]
