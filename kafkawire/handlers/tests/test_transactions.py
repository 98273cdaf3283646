"""Requests of transactional producers on the wire, in front of a fake transaction service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator import errors
from coordinator.errors import TransactionError
from coordinator.groups.api import Claim, OffsetToCommit
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkawire.requests.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import open_handlers

IDENTITY = ProducerIdentity(7, 3)
CODES: list[tuple[TransactionError, int]] = [
    (errors.TransactionTooLarge(), -1),
    (errors.CoordinatorLoading(), 14),
    (errors.CoordinatorNotAvailable(), 15),
    (errors.NotCoordinator(), 16),
    (errors.InvalidTransactionState(), 48),
    (errors.InvalidProducerIdMapping(), 49),
    (errors.InvalidTransactionTimeout(), 50),
    (errors.TransactionAbortable(), 120),
    (errors.ConcurrentTransactions(), 51),
    (errors.ProducerFenced(), 90),
    (errors.UnknownTransactionalId(), 105),
]
# Errors between the parts that write markers; no client sees them.
OF_MARKERS = {errors.MarkerNotWritten, errors.StaleProducerEpoch, errors.TransactionCoordinatorFenced}
Denied = set[tuple[Operation, ResourceType, str]]
WRITE_ID = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")
READ_GROUP = (Operation.READ, ResourceType.GROUP, "g")


def test_every_transaction_error_is_in_the_list_of_codes() -> None:
    assert {type(error) for error, _ in CODES} == set(TransactionError.__subclasses__()) - OF_MARKERS


# AddPartitionsToTxn


def topics_of(*asked: tuple[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in asked]


def add(*asked: tuple[str, list[int]], name: str = "x") -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=IDENTITY.producer_id,
        v3_and_below_producer_epoch=IDENTITY.epoch,
        v3_and_below_topics=topics_of(*asked),
    )


def batched(*asked: tuple[str, list[tuple[str, list[int]]], bool]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=IDENTITY.producer_id,
                producer_epoch=IDENTITY.epoch,
                verify_only=verify_only,
                topics=topics_of(*topics),
            )
            for name, topics, verify_only in asked
        ]
    )


def added(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in topics
        for row in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        await broker.create("u")
        broker.transactions.answers["add_partitions"] = None
        reply = await broker.ask(add(("t", [2, 0]), ("u", [0])), version)
        asked = [Partition("t", 2), Partition("t", 0), Partition("u", 0)]
        assert broker.transactions.calls == [("add_partitions", "x", IDENTITY, asked, FIRST_PROTOCOL)]
        assert added(reply.results_by_topic_v3_and_below) == {("t", 2): 0, ("t", 0): 0, ("u", 0): 0}


async def test_an_addition_is_answered_when_the_coordinator_has_settled_it() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        started = broker.dispatch(add(("t", [0])), 3)
        assert not started.is_settled
        broker.transactions.asked[0].settle(None)
        assert added(broker.read(await answer(started), 24, 3).results_by_topic_v3_and_below) == {("t", 0): 0}


async def test_nothing_is_added_if_anything_is_unknown() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        reply = await broker.ask(add(("t", [0, 1, -1]), ("missing", [0])), 3)
        assert broker.transactions.calls == []
        assert added(reply.results_by_topic_v3_and_below) == {
            ("t", 0): 55,
            ("t", 1): 3,
            ("t", -1): 3,
            ("missing", 0): 3,
        }


async def test_nothing_is_added_if_anything_may_not_be_written() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.create("closed")
        denied = broker.without((Operation.WRITE, ResourceType.TOPIC, "closed"))
        request = add(("t", [0]), ("closed", [0]), ("__consumer_offsets", [0]), ("missing", [0]))
        reply = await denied.ask(request, 3)
        assert broker.transactions.calls == []
        assert added(reply.results_by_topic_v3_and_below) == {
            ("t", 0): 55,
            ("closed", 0): 29,
            ("__consumer_offsets", 0): 29,
            ("missing", 0): 3,
        }


async def test_an_addition_under_no_id() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        reply = await broker.ask(add(("t", [0]), name=""), 3)
        assert added(reply.results_by_topic_v3_and_below) == {("t", 0): 42}
        reply = await broker.without(WRITE_ID).ask(add(("t", [0])), 3)
        assert added(reply.results_by_topic_v3_and_below) == {("t", 0): 53}
        assert broker.transactions.calls == []


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_add_and_verify_for_many(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.transactions.answers = {
            ("add_partitions", "a"): None,
            ("add_partitions", "b"): errors.ProducerFenced(),
            ("verify_partitions", "c"): [True, False],
            ("verify_partitions", "d"): errors.InvalidProducerIdMapping(),
        }
        both = [("t", [0, 1])]
        request = batched(
            ("a", [("t", [0])], False),
            ("b", [("t", [0])], False),
            ("c", both, True),
            ("d", both, True),
            ("", both, True),
        )
        reply = await broker.ask(request, version)
        assert {one.transactional_id: added(one.topic_results) for one in reply.results_by_transaction} == {
            "a": {("t", 0): 0},
            "b": {("t", 0): 90},
            "c": {("t", 0): 0, ("t", 1): 120},
            "d": {("t", 0): 49, ("t", 1): 49},
            "": {("t", 0): 42, ("t", 1): 42},
        }


async def test_only_brokers_ask_for_many() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        denied = broker.without((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
        reply = await denied.ask(batched(("x", [("t", [0])], False)), 4)
        assert (reply.error_code, reply.results_by_transaction) == (31, [])
        assert broker.transactions.calls == []


async def test_a_broker_adds_partitions_without_the_rights_that_clients_need() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.transactions.answers["add_partitions"] = None
        denied = broker.without(WRITE_ID, (Operation.WRITE, ResourceType.TOPIC, "t"))
        reply = await denied.ask(batched(("x", [("t", [0])], False)), 4)
        assert added(reply.results_by_transaction[0].topic_results) == {("t", 0): 0}


# AddOffsetsToTxn


def add_offsets(name: str = "x") -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=IDENTITY.producer_id, producer_epoch=IDENTITY.epoch, group_id="g"
    )


@pytest.mark.parametrize("version", range(5))
async def test_the_partition_of_a_group_is_added(version: int) -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["add_partitions"] = None
        assert (await broker.ask(add_offsets(), version)).error_code == 0
        partition = Partition("__consumer_offsets", broker.groups.partition_of("g"))
        assert broker.transactions.calls == [("add_partitions", "x", IDENTITY, [partition], FIRST_PROTOCOL)]


@pytest.mark.parametrize(("denied", "code"), [(WRITE_ID, 53), (READ_GROUP, 30)])
async def test_adding_offsets_requires_both_rights(denied: tuple[Operation, ResourceType, str], code: int) -> None:
    async with open_handlers() as broker:
        assert (await broker.without(denied).ask(add_offsets(), 4)).error_code == code
        assert broker.transactions.calls == []


async def test_offsets_under_no_id() -> None:
    async with open_handlers() as broker:
        assert (await broker.ask(add_offsets(""), 4)).error_code == 42
        assert broker.transactions.calls == []


# EndTxn


def end(name: str = "x", *, is_commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=IDENTITY.producer_id, producer_epoch=IDENTITY.epoch, committed=is_commit
    )


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_is_ended(version: int, *, is_commit: bool) -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["end"] = ProducerIdentity(7, 4)
        reply = await broker.ask(end(is_commit=is_commit), version)
        is_second = version >= 5
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (
            0,
            7 if is_second else -1,
            4 if is_second else -1,
        )
        protocol = SECOND_PROTOCOL if is_second else FIRST_PROTOCOL
        assert broker.transactions.calls == [("end", "x", IDENTITY, is_commit, protocol)]


async def test_an_end_under_no_id() -> None:
    async with open_handlers() as broker:
        assert (await broker.ask(end(""), 4)).error_code == 42
        assert (await broker.without(WRITE_ID).ask(end(), 4)).error_code == 53
        assert broker.transactions.calls == []


# InitProducerId


def initialise(**fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000, **fields)


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_returns_the_identity_of_the_coordinator(version: int) -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["initialise"] = IDENTITY
        reply = await broker.ask(initialise(), version)
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 7, 3)
        assert broker.transactions.calls == [("initialise", "x", 60_000, None)]


async def test_init_producer_id_passes_the_former_identity_to_the_coordinator() -> None:
    async with open_handlers() as broker:
        broker.transactions.answers["initialise"] = IDENTITY
        await broker.ask(initialise(producer_id=7, producer_epoch=2), 3)
        assert broker.transactions.calls == [("initialise", "x", 60_000, ProducerIdentity(7, 2))]


# All of them


def first_code(reply: Any) -> int:
    topics = getattr(reply, "results_by_topic_v3_and_below", None)
    return int(topics[0].results_by_partition[0].partition_error_code if topics else reply.error_code)


# Call, request, version, and the first version with PRODUCER_FENCED (KIP-360, KIP-588).
ASKED: list[tuple[str, Callable[[], Any], int, int]] = [
    ("add_partitions", partial(add, ("t", [0])), 3, 2),
    ("add_partitions", add_offsets, 4, 2),
    ("end", end, 4, 2),
    ("initialise", initialise, 5, 4),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(("call", "request_", "version", "knows_fenced"), ASKED, ids=["add", "offsets", "end", "init"])
async def test_coordinator_errors_are_returned_with_codes_that_the_version_knows(
    call: str, request_: Callable[[], Any], version: int, knows_fenced: int, error: TransactionError, code: int
) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.transactions.answers[call] = error
        assert first_code(await broker.ask(request_(), version)) == code
        assert first_code(await broker.ask(request_(), knows_fenced)) == code
        for older in range(knows_fenced):
            assert first_code(await broker.ask(request_(), older)) == (47 if code == 90 else code)


# TxnOffsetCommit


def commit(*asked: tuple[str, list[int]], **fields: Any) -> TxnOffsetCommitRequest:
    """A request that commits offset 10 + index for each partition `index`."""
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=IDENTITY.producer_id,
        producer_epoch=IDENTITY.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=10 + index,
                        committed_leader_epoch=4,
                        committed_metadata=None if index else "x",
                    )
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ],
        **fields,
    )


def codes(reply: Any) -> list[list[tuple[int, int]]]:
    return [[(row.partition_index, row.error_code) for row in topic.partitions] for topic in reply.topics]


GROUPS_PARTITION = "__consumer_offsets"


@pytest.mark.parametrize("version", range(6))
async def test_offsets_of_a_transaction(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        broker.transactions.answers.update(verify_partitions=[True], add_partitions=None)
        broker.groups.answers["commit_in_transaction"] = [None, errors.OffsetMetadataTooLarge()]
        member = (
            {"generation_id_or_member_epoch": 5, "member_id": "m", "group_instance_id": "i"} if version >= 3 else {}
        )
        reply = await broker.ask(commit(("t", [2, 9, 0]), ("missing", [0]), **member), version)
        claim = Claim("m", "i", 5) if version >= 3 else Claim("", None, -1)
        epoch = 4 if version >= 2 else -1
        offsets = [OffsetToCommit("t", 2, 12, epoch, ""), OffsetToCommit("t", 0, 10, epoch, "x")]
        protocol = SECOND_PROTOCOL if version >= 5 else FIRST_PROTOCOL
        assert broker.groups.calls == [("commit_in_transaction", "g", claim, 7, 3, offsets, protocol)]
        assert codes(reply) == [[(2, 0), (9, 3), (0, 12)], [(0, 3)]]
        partition = Partition(GROUPS_PARTITION, broker.groups.partition_of("g"))
        if version >= 5:
            assert broker.transactions.calls == [("add_partitions", "x", IDENTITY, [partition], SECOND_PROTOCOL)]
        else:
            assert broker.transactions.calls == [("verify_partitions", "x", IDENTITY, [partition])]


@pytest.mark.parametrize("version", range(5))
async def test_without_verification_older_clients_are_believed_to_have_added_the_partition(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.interfaces.transaction_rules.verifies_partitions = False
        broker.groups.answers["commit_in_transaction"] = [None]
        assert codes(await broker.ask(commit(("t", [0])), version)) == [[(0, 0)]]
        assert broker.transactions.calls == []


@pytest.mark.parametrize("version", range(6))
async def test_offsets_are_refused_when_the_transaction_lacks_the_partition_of_the_group(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.transactions.answers.update(verify_partitions=[False], add_partitions=errors.ProducerFenced())
        code = 47 if version >= 5 else 120 if version == 4 else 48
        assert codes(await broker.ask(commit(("t", [0])), version)) == [[(0, code)]]
        assert broker.groups.calls == []


async def test_topics_of_a_transactional_commit_are_named_by_id_from_version_6_on() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.transactions.answers.update(add_partitions=None)
        broker.groups.answers["commit_in_transaction"] = [None]
        asked = commit(("", [1]), ("", [0]))
        topic_id = broker.interfaces.cluster.image.topics["t"].topic_id
        asked.topics[0].topic_id, asked.topics[1].topic_id = topic_id, b"?" * 16
        reply = await broker.ask(asked, 6)
        assert codes(reply) == [[(1, ErrorCode.NONE)], [(0, ErrorCode.UNKNOWN_TOPIC_ID)]]
        assert [one.topic_id for one in reply.topics] == [topic_id, b"?" * 16]
        [(_, _, _, _, _, offsets, _)] = broker.groups.calls
        assert [(one.topic, one.partition) for one in offsets] == [("t", 1)]


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_an_offset_commit_for_a_group_that_does_not_exist_is_refused(version: int, code: ErrorCode) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.groups.answers["commit_in_transaction"] = errors.UnknownGroup()
        broker.transactions.answers.update(add_partitions=None)
        asked = commit(("t", [0]))
        asked.topics[0].topic_id = broker.interfaces.cluster.image.topics["t"].topic_id
        assert codes(await broker.ask(asked, version)) == [[(0, code)]]


@pytest.mark.parametrize("version", [4, 5])
async def test_offsets_with_an_empty_transactional_id_or_group_id_are_refused(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        asked = commit(("t", [0]))
        asked.transactional_id = ""
        assert codes(await broker.ask(asked, version)) == [[(0, 42)]]
        broker.groups.answers["commit_in_transaction"] = errors.InvalidGroupId()
        asked = commit(("t", [0]))
        asked.group_id = ""
        assert codes(await broker.ask(asked, version)) == [[(0, 24)]]
        assert broker.transactions.calls == []


async def test_an_offset_commit_without_known_partitions_does_not_reach_the_group() -> None:
    async with open_handlers() as broker:
        assert codes(await broker.ask(commit(("missing", [0])), 4)) == [[(0, 3)]]
        assert broker.groups.calls == []


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        (WRITE_ID, [[(0, 53)], [(0, 53)]]),
        (READ_GROUP, [[(0, 30)], [(0, 30)]]),
        ((Operation.READ, ResourceType.TOPIC, "t"), [[(0, 29)], [(0, 0)]]),
    ],
)
async def test_offset_commits_without_a_required_right_are_refused(
    denied: tuple[Operation, ResourceType, str], expected: list[list[tuple[int, int]]]
) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.create("u")
        broker.groups.answers["commit_in_transaction"] = [None]
        broker.transactions.answers["verify_partitions"] = [True]
        assert codes(await broker.without(denied).ask(commit(("t", [0]), ("u", [0])), 4)) == expected


@pytest.mark.parametrize(
    ("error", "code", "older"),
    [
        (errors.CoordinatorLoading(), 14, 15),
        (errors.CoordinatorNotAvailable(), 15, 15),
        (errors.NotCoordinator(), 16, 16),
        (errors.IllegalGeneration(), 22, 22),
        (errors.UnknownMember(), 25, 25),
        (errors.StaleProducerEpoch(), 47, 47),
        (errors.FencedInstance(), 82, 82),
    ],
)
async def test_an_offset_commit_returns_group_errors(error: errors.CoordinatorError, code: int, older: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        broker.groups.answers["commit_in_transaction"] = error
        broker.transactions.answers.update(verify_partitions=[True], add_partitions=None)
        for version in range(6):
            expected = code if version >= 2 else older
            assert codes(await broker.ask(commit(("t", [0, 1, 2])), version)) == [
                [(0, expected), (1, expected), (2, 3)]
            ]
