"""Markers for partitions that other brokers lead, and the conditions for sending them to another leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
import trio
import trio.testing

from coordinator.api import Future
from coordinator.errors import (
    CoordinatorError,
    MarkerNotWritten,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopic,
)
from coordinator.state.log import SECOND_PROTOCOL, StateMarker
from coordinator.transactions.api import Partition
from kafkawire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kafkawire.peers.errors import LinkFailed
from kafkawire.peers.markers import MARKERS_PER_REQUEST, ClusterMarkers
from kafkawire.peers.peers import Peers
from kafkawire.peers.tests.fake_links import Call, FakeLinks, cut, link
from kafkawire.peers.tests.peers import ME, FakeCluster, image_of
from kafkawire.tests.fake_transactions import FakeMarkers

MARKER = StateMarker(7, 3, 8, is_commit=True, protocol=SECOND_PROTOCOL)
MINE, SECONDS, THIRDS, LEADERLESS = (Partition("t", number) for number in range(4))


@dataclass
class World:
    cluster: FakeCluster
    links: FakeLinks
    local: FakeMarkers
    markers: ClusterMarkers

    async def write(self, *partitions: Partition, marker: StateMarker = MARKER) -> list[Future[None]]:
        """Write all at once, and wait until the requests have left."""
        pending = [self.markers.write(marker, one) for one in partitions]
        await trio.testing.wait_all_tasks_blocked()
        return pending

    @property
    def unknown_outcomes(self) -> int:
        return len(self.markers._unknown_outcomes)


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    cluster, links, local = FakeCluster(image_of((), {"t": (ME, 2, 3, -1)})), FakeLinks(), FakeMarkers()
    markers = ClusterMarkers(local, cast(Peers, links), cast(Any, cluster), ME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(markers.run)
        yield World(cluster, links, local, markers)
        nursery.cancel_scope.cancel()


def rows_of(call: Call) -> list[tuple[StateMarker, str, int]]:
    return [
        (
            StateMarker(
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.transaction_result,
                one.transaction_version,
            ),
            topic.name,
            number,
        )
        for one in call.request.markers
        for topic in one.topics
        for number in topic.partition_indexes
    ]


def reply_to(call: Call, code: Callable[[int], int] | int = 0) -> WriteTxnMarkersResponse:
    """The reply to a call. `code`: an error code, or a function of the partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=number, error_code=code if isinstance(code, int) else code(number)
                            )
                        ],
                    )
                ],
            )
            for marker, topic, number in rows_of(call)
        ]
    )


async def test_marker_for_a_partition_led_by_this_broker_is_written_locally() -> None:
    async with open_world() as world:
        (written,) = await world.write(MINE)
        assert written.result() is None
        assert (world.local.written, world.links.calls) == ([(MARKER, MINE)], [])


async def test_markers_due_at_the_same_moment_share_one_request_to_each_leader() -> None:
    other = StateMarker(9, 0, 8, is_commit=False)
    async with open_world() as world:
        pending = [
            world.markers.write(MARKER, SECONDS),
            world.markers.write(MARKER, THIRDS),
            world.markers.write(other, SECONDS),
        ]
        await trio.testing.wait_all_tasks_blocked()
        second, third = world.links.calls
        assert (second.broker_id, second.version, second.purpose) == (2, 2, "markers")
        assert rows_of(second) == [(MARKER, *SECONDS), (other, *SECONDS)]
        assert (third.broker_id, rows_of(third)) == (3, [(MARKER, *THIRDS)])
        third.answer.settle(reply_to(third))
        assert [one.is_settled for one in pending] == [False, True, False]
        second.answer.settle(reply_to(second))
        assert [one.result() for one in pending] == [None] * 3
        assert world.unknown_outcomes == 0


async def test_markers_for_consumer_offsets_partitions_are_written_by_the_partition_leaders() -> None:
    async with open_world() as world:
        world.cluster.lead("__consumer_offsets", 3, ME)
        await world.write(Partition("__consumer_offsets", 0), Partition("__consumer_offsets", 1))
        assert [one.broker_id for one in world.links.calls] == [3]
        assert world.local.written == [(MARKER, Partition("__consumer_offsets", 1))]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, None),
        (47, StaleProducerEpoch),
        (52, TransactionCoordinatorFenced),
        (3, MarkerNotWritten),
        (6, MarkerNotWritten),
        (7, MarkerNotWritten),
        (19, MarkerNotWritten),
        (20, MarkerNotWritten),
        (31, MarkerNotWritten),
        (56, MarkerNotWritten),
        (-1, MarkerNotWritten),
    ],
)
async def test_leader_error_becomes_the_marker_write_error(code: int, expected: type[CoordinatorError] | None) -> None:
    async with open_world() as world:
        (written,) = await world.write(SECONDS)
        (call,) = world.links.calls
        call.answer.settle(reply_to(call, code))
        if expected is None:
            assert written.result() is None
            return
        with pytest.raises(expected):
            written.result()


async def test_a_leader_that_says_nothing_about_a_partition_is_asked_again() -> None:
    async with open_world() as world:
        (written,) = await world.write(SECONDS)
        world.links.calls[0].answer.settle(WriteTxnMarkersResponse(markers=[]))
        with pytest.raises(MarkerNotWritten):
            written.result()


async def test_marker_without_a_leader_is_not_written_and_without_a_partition_raises_unknown_topic() -> None:
    async with open_world() as world:
        for partition, expected in (
            (LEADERLESS, MarkerNotWritten),
            (Partition("t", 4), UnknownTopic),
            (Partition("u", 0), UnknownTopic),
        ):
            (written,) = await world.write(partition)
            with pytest.raises(expected):
                written.result()


async def test_a_reply_that_is_lost_is_worth_another_try_at_the_same_broker() -> None:
    async with open_world() as world:
        (written,) = await world.write(SECONDS)
        world.links.calls[0].answer.settle(cut(2))
        with pytest.raises(MarkerNotWritten, match="cut"):
            written.result()
        assert world.unknown_outcomes == 1
        (written,) = await world.write(SECONDS)
        world.links.calls[1].answer.settle(reply_to(world.links.calls[1]))
        assert written.result() is None
        assert world.unknown_outcomes == 0


@pytest.mark.parametrize("leader", [ME, 3, -1])
async def test_new_leader_gets_no_marker_while_the_previous_leader_may_still_write_it(leader: int) -> None:
    async with open_world() as world:
        await world.write(SECONDS)
        world.links.calls[0].answer.settle(cut(2))
        world.cluster.lead("t", ME, leader, 3, -1)
        (written,) = await world.write(SECONDS)
        with pytest.raises(MarkerNotWritten, match="may write it still"):
            written.result()
        assert world.links.renewed == [link(2)]
        world.links.over.add(link(2))
        (written,) = await world.write(SECONDS)
        assert (len(world.links.calls), len(world.local.written)) == {ME: (1, 1), 3: (2, 0), -1: (1, 0)}[leader]


async def test_marker_of_a_deleted_topic_raises_unknown_topic_once_no_leader_may_write_it() -> None:
    """A topic with the same name may be created."""
    async with open_world() as world:
        await world.write(SECONDS)
        world.links.calls[0].answer.settle(cut(2))
        world.cluster.change(topics={})
        (written,) = await world.write(SECONDS)
        with pytest.raises(MarkerNotWritten):
            written.result()
        world.links.over.add(link(2))
        (written,) = await world.write(SECONDS)
        with pytest.raises(UnknownTopic):
            written.result()


async def test_new_leader_gets_no_marker_before_the_previous_leader_has_answered() -> None:
    async with open_world() as world:
        (first,) = await world.write(SECONDS)
        world.cluster.lead("t", ME, 3, 3, -1)
        (second,) = await world.write(SECONDS)
        with pytest.raises(MarkerNotWritten):
            second.result()
        assert world.links.renewed == []
        world.links.calls[0].answer.settle(reply_to(world.links.calls[0], 6))
        assert first.is_settled
        await world.write(SECONDS)
        assert [one.broker_id for one in world.links.calls] == [2, 3]


async def test_a_try_that_never_left_leaves_the_doubt_about_the_one_before() -> None:
    async with open_world() as world:
        await world.write(SECONDS)
        world.links.calls[0].answer.settle(cut(2))
        await world.write(SECONDS)
        world.links.calls[1].answer.settle(LinkFailed("away"))
        world.cluster.lead("t", ME, 3, 3, -1)
        (written,) = await world.write(SECONDS)
        with pytest.raises(MarkerNotWritten, match="may write it still"):
            written.result()


async def test_marker_request_that_never_left_does_not_block_the_next_leader() -> None:
    async with open_world() as world:
        await world.write(SECONDS)
        world.links.calls[0].answer.settle(LinkFailed("away"))
        assert world.unknown_outcomes == 0
        world.cluster.lead("t", ME, 3, 3, -1)
        await world.write(SECONDS)
        assert [one.broker_id for one in world.links.calls] == [2, 3]


async def test_unknown_outcome_is_forgotten_once_its_connection_is_over_without_a_retry() -> None:
    async with open_world() as world:
        await world.write(SECONDS)
        world.links.calls[0].answer.settle(cut(2))
        world.links.over.add(link(2))
        await world.write(THIRDS)
        world.links.calls[1].answer.settle(cut(3, 2))
        assert world.unknown_outcomes == 1


async def test_two_markers_of_one_producer_for_one_partition_go_one_after_the_other() -> None:
    """Replies name only producer and partition."""
    later = MARKER._replace(is_commit=False)
    async with open_world() as world:
        pending = [world.markers.write(MARKER, SECONDS), world.markers.write(later, SECONDS)]
        await trio.testing.wait_all_tasks_blocked()
        first, second = world.links.calls
        assert (rows_of(first), rows_of(second)) == ([(MARKER, *SECONDS)], [(later, *SECONDS)])
        first.answer.settle(reply_to(first))
        assert [one.is_settled for one in pending] == [True, False]


async def test_a_request_has_so_many_markers_at_most() -> None:
    async with open_world() as world:
        count = MARKERS_PER_REQUEST + 1
        world.cluster.lead("t", *[2] * count)
        await world.write(*(Partition("t", number) for number in range(count)))
        assert [len(rows_of(one)) for one in world.links.calls] == [MARKERS_PER_REQUEST, 1]
