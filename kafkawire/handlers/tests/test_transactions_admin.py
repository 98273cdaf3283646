"""Requests of administrators about transactions, on the wire: markers, descriptions, lists."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import errors
from coordinator.errors import CoordinatorError, MarkerNotWritten
from coordinator.state.log import StateMarker
from coordinator.transactions.api import (
    Partition,
    ProducerIdentity,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from engine import errors as log_errors
from kafkawire.messages.describe_transactions import DescribeTransactionsRequest
from kafkawire.messages.list_transactions import ListTransactionsRequest
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.tests.harness import NOW_MS, Broker, open_handlers

CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)


# WriteTxnMarkers


def marker(producer_id: int, *topics: tuple[str, list[int]], is_commit: bool = True) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=3,
        coordinator_epoch=8,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics],
    )


def written(reply: Any) -> dict[int, dict[tuple[str, int], int]]:
    return {
        one.producer_id: {
            (topic.name, row.partition_index): row.error_code for topic in one.topics for row in topic.partitions
        }
        for one in reply.markers
    }


def caused_by(cause: Exception) -> CoordinatorError:
    """The error of a marker's writer when the log refuses the marker."""
    error = MarkerNotWritten(str(cause))
    error.__cause__ = cause
    return error


async def test_markers_are_written() -> None:
    async with open_handlers() as broker:
        request = WriteTxnMarkersRequest(
            markers=[marker(7, ("t", [2, 0]), ("u", [0])), marker(9, ("t", [1]), is_commit=False)]
        )
        reply = await broker.ask(request, 1)
        commit, abort = StateMarker(7, 3, 8, is_commit=True), StateMarker(9, 3, 8, is_commit=False)
        assert broker.markers.written == [
            (commit, Partition("t", 2)),
            (commit, Partition("t", 0)),
            (commit, Partition("u", 0)),
            (abort, Partition("t", 1)),
        ]
        assert written(reply) == {7: {("t", 2): 0, ("t", 0): 0, ("u", 0): 0}, 9: {("t", 1): 0}}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnknownTopic("t"), 3),
        (errors.StaleProducerEpoch(), 47),
        (errors.TransactionCoordinatorFenced(), 52),
        (errors.MarkerNotWritten(), 6),
        (caused_by(log_errors.NotLeaderOrFollower()), 6),
        (caused_by(log_errors.StorageError()), 56),
        (errors.CoordinatorLoading(), 6),
        (errors.CoordinatorNotAvailable(), 6),
        (errors.NotCoordinator(), 6),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_a_marker_that_is_not_written_returns_its_error_code(error: CoordinatorError, code: int) -> None:
    async with open_handlers() as broker:
        broker.markers.answers[Partition("t", 1)] = error
        reply = await broker.ask(WriteTxnMarkersRequest(markers=[marker(7, ("t", [0, 1]))]), 1)
        assert written(reply) == {7: {("t", 0): 0, ("t", 1): code}}


async def test_a_producer_that_is_named_twice_is_answered_once() -> None:
    async with open_handlers() as broker:
        reply = await broker.ask(WriteTxnMarkersRequest(markers=[marker(7, ("t", [0])), marker(7, ("t", [1]))]), 1)
        assert len(reply.markers) == 1
        assert written(reply) == {7: {("t", 0): 0, ("t", 1): 0}}


@pytest.mark.parametrize(
    ("denied", "code"),
    [
        ([(Operation.ALTER, *CLUSTER)], 0),
        ([(Operation.CLUSTER_ACTION, *CLUSTER)], 0),
        ([(Operation.ALTER, *CLUSTER), (Operation.CLUSTER_ACTION, *CLUSTER)], 31),
    ],
)
async def test_markers_require_one_of_two_rights(denied: list[tuple[Operation, ResourceType, str]], code: int) -> None:
    async with open_handlers() as broker:
        reply = await broker.without(*denied).ask(WriteTxnMarkersRequest(markers=[marker(7, ("t", [0]))]), 1)
        assert written(reply) == {7: {("t", 0): code}}
        assert len(broker.markers.written) == (not code)


# DescribeTransactions


def description(name: str, state: TransactionState = TransactionState.ONGOING) -> TransactionDescription:
    partitions = {Partition("u", 0), Partition("t", 2), Partition("t", 0)}
    return TransactionDescription(name, ProducerIdentity(7, 3), state, 60_000, 123, partitions)


async def test_transactions_are_described() -> None:
    async with open_handlers() as broker:
        broker.transactions.answers = {
            ("describe", "a"): description("a"),
            ("describe", "b"): errors.UnknownTransactionalId(),
            ("describe", "c"): errors.NotCoordinator(),
        }
        reply = await broker.ask(DescribeTransactionsRequest(transactional_ids=["a", "b", "c", ""]), 0)
        found, *others = reply.transaction_states
        assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "a", "Ongoing")
        assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, 123)
        assert (found.producer_id, found.producer_epoch) == (7, 3)
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 2]), ("u", [0])]
        assert [(one.transactional_id, one.error_code, one.topics) for one in others] == [
            ("b", 105, []),
            ("c", 16, []),
            ("", 42, []),
        ]


async def test_describe_transactions_hides_ids_and_topics_without_the_describe_right() -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["describe"] = description("a")
        denied = broker.without(
            (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "b"),
            (Operation.DESCRIBE, ResourceType.TOPIC, "t"),
        )
        reply = await denied.ask(DescribeTransactionsRequest(transactional_ids=["a", "b"]), 0)
        assert [(one.error_code, [topic.topic for topic in one.topics]) for one in reply.transaction_states] == [
            (0, ["u"]),
            (53, []),
        ]
        assert broker.transactions.calls == [("describe", "a")]


# ListTransactions

LISTED = [
    TransactionListing("orders-1", 1, TransactionState.ONGOING, NOW_MS - 5_000),
    TransactionListing("orders-2", 2, TransactionState.COMPLETE_COMMIT, NOW_MS - 9_000),
    TransactionListing("new", 3, TransactionState.EMPTY, -1),
]


async def listed(broker: Broker, version: int = 2, **filters: Any) -> list[str]:
    broker.transactions.answers["list_transactions"] = LISTED
    reply = await broker.ask(ListTransactionsRequest(**filters), version)
    assert reply.error_code == 0
    return [one.transactional_id for one in reply.transaction_states]


@pytest.mark.parametrize("version", range(3))
async def test_all_are_listed(version: int) -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["list_transactions"] = LISTED
        reply = await broker.ask(ListTransactionsRequest(), version)
        assert [(one.transactional_id, one.producer_id, one.transaction_state) for one in reply.transaction_states] == [
            ("orders-1", 1, "Ongoing"),
            ("orders-2", 2, "CompleteCommit"),
            ("new", 3, "Empty"),
        ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"state_filters": ["Ongoing", "Empty"]}, ["orders-1", "new"]),
        ({"state_filters": ["ongoing"]}, []),
        ({"state_filters": ["Ongoing", "None"]}, ["orders-1"]),
        ({"producer_id_filters": [2, 3, 99]}, ["orders-2", "new"]),
        ({"duration_filter": 0}, ["orders-1", "orders-2", "new"]),
        ({"duration_filter": 5_000}, ["orders-2", "new"]),
        ({"duration_filter": 4_999}, ["orders-1", "orders-2", "new"]),
        ({"transactional_id_pattern": "orders-.*"}, ["orders-1", "orders-2"]),
        ({"transactional_id_pattern": "orders"}, []),
        ({"transactional_id_pattern": "new|.*-2"}, ["orders-2", "new"]),
        ({"transactional_id_pattern": ""}, ["orders-1", "orders-2", "new"]),
        ({"state_filters": ["Ongoing"], "producer_id_filters": [2]}, []),
    ],
)
async def test_filters_narrow_the_list(filters: dict[str, Any], expected: list[str]) -> None:
    async with open_handlers() as broker:
        assert await listed(broker, **filters) == expected


async def test_unknown_state_filters_are_returned() -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["list_transactions"] = LISTED
        reply = await broker.ask(ListTransactionsRequest(state_filters=["Ongoing", "Gone", "Away"]), 0)
        assert reply.unknown_state_filters == ["Gone", "Away"]


@pytest.mark.parametrize(
    "pattern", ["(", "a{2000}", r"(a)\1", "x" * 10_001], ids=["open", "large", "reference", "long"]
)
async def test_an_invalid_transactional_id_pattern_is_refused(pattern: str) -> None:
    async with open_handlers() as broker:
        reply = await broker.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert (reply.error_code, reply.transaction_states) == (128, [])
        assert broker.transactions.calls == []


async def test_only_transactions_with_the_describe_right_are_listed() -> None:
    async with open_handlers() as broker:
        denied = broker.without((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "orders-1"))
        assert await listed(denied) == ["orders-2", "new"]


async def test_a_list_that_cannot_be_had() -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["list_transactions"] = errors.CoordinatorLoading()
        reply = await broker.ask(ListTransactionsRequest(), 1)
        assert (reply.error_code, reply.transaction_states) == (14, [])
