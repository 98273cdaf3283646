"""Start and end of a query without a broker, from the tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.segments.bounds import SealedPlaces
from spark_connectors.segments.bucket_catalogue import BucketCatalogue
from spark_connectors.segments.sealed import CatalogueUnavailable
from spark_connectors.source.bounds import LimitRefused
from spark_connectors.source.options import AtOffsets, AtTimestamp, Edge, Limit, Selection
from spark_connectors.source.planner import batch_ranges
from spark_connectors.source.tests.world import World
from spark_connectors.wire import TopicPartition
from testkit.bucket_broker import OTHER_ID, TOPIC_ID, Bucket

ZERO, ONE = TopicPartition("topic", 0), TopicPartition("topic", 1)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A topic with two partitions, of which one has two segments and begins in the middle of the first; and another
    topic.
    """
    made = Bucket(tmp_path)
    made.put_topic("topic", partition_count=2)
    made.put_topic("other", OTHER_ID)
    for end in (10, 30):
        made.copy(end)
    made.shed(4)
    return made


def places(bucket: Bucket, selection: Selection) -> SealedPlaces:
    return SealedPlaces(BucketCatalogue(str(bucket.directory)), selection)


def at(bucket: Bucket, limit: Limit, selection: Selection | None = None) -> dict[TopicPartition, int]:
    found = places(bucket, selection or Selection(topics=("topic",))).at(limit, is_starting=True)
    return dict(found.positions)


def test_topic_in_the_tier_ranges_from_its_log_start_to_its_copied_end(bucket: Bucket) -> None:
    assert at(bucket, Edge.EARLIEST) == {ZERO: 4, ONE: 0}
    assert at(bucket, Edge.LATEST) == {ZERO: 30, ONE: 0}
    assert at(bucket, AtOffsets({ZERO: 7, ONE: -1})) == {ZERO: 7, ONE: 0}
    assert at(bucket, AtOffsets({ZERO: -2, ONE: 0})) == {ZERO: 4, ONE: 0}
    assert places(bucket, Selection(topics=("topic",))).at(Edge.LATEST, is_starting=False).ids == {"topic": TOPIC_ID}


def test_selection_by_pattern_or_partition_leaves_out_internal_topics(bucket: Bucket) -> None:
    bucket.put_topic("__consumer_offsets", bytes(16))
    assert set(at(bucket, Edge.LATEST, Selection(pattern=".*"))) == {ZERO, ONE, TopicPartition("other", 0)}
    assert set(at(bucket, Edge.LATEST, Selection(pattern="t.*"))) == {ZERO, ONE}
    assert set(at(bucket, Edge.LATEST, Selection(partitions=(ONE,)))) == {ONE}


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (AtTimestamp(7), "only brokers look times up"),
        (AtOffsets({ZERO: 3, ONE: 0}), "offset 3 of topic-0 is not in the tier, which has 4 to 30"),
        (AtOffsets({ZERO: 31, ONE: 0}), "offset 31 of topic-0 is not in the tier"),
        (AtOffsets({ZERO: 7}), "must name all partitions"),
    ],
)
def test_places_that_no_tier_knows(bucket: Bucket, limit: Limit, reason: str) -> None:
    with pytest.raises(LimitRefused, match=reason):
        at(bucket, limit)


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (Selection(topics=("topic", "none")), "the tier has no topic none"),
        (Selection(partitions=(ZERO, TopicPartition("topic", 2))), "the tier has no topic-2"),
    ],
)
def test_unknown_topic_or_partition_raises(bucket: Bucket, selection: Selection, reason: str) -> None:
    with pytest.raises(CatalogueUnavailable, match=reason):
        at(bucket, Edge.LATEST, selection)


def test_a_batch_is_planned_without_a_broker(bucket: Bucket) -> None:
    options = World().options(subscribe="topic")
    [found] = batch_ranges(options, places(bucket, options.selection))
    assert (found.place, found.start, found.end, found.is_earliest) == (ZERO, 4, 30, True)
