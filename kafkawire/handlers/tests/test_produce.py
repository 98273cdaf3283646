"""Produce: accepted batches, error codes of refused ones, and the order of waits."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from coordinator import errors
from coordinator.api import PartitionState, TopicInfo
from coordinator.transactions.api import SECOND_PROTOCOL, Partition, ProducerIdentity
from engine import errors as log_errors
from engine.api import Isolation
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import NOW_MS, Broker, batch, join, open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.primitives import ZERO_UUID

HOUR_MS = 3_600_000
TRANSACTIONAL = 0x10
CONTROL = 0x20


def request(
    *batches: bytes | bytearray | None,
    topic: str = "t",
    topic_id: bytes = ZERO_UUID,
    acks: int = -1,
    partitions: tuple[int, ...] = (0, 1, 2),
    **fields: Any,
) -> ProduceRequest:
    """A request with one batch for each of the first partitions."""
    data = [
        PartitionProduceData(index=index, records=None if one is None else memoryview(one))
        for index, one in zip(partitions, batches, strict=False)
    ]
    fields.setdefault("timeout_ms", 30_000)
    return ProduceRequest(
        acks=acks, topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)], **fields
    )


async def produce(broker: Broker, asked: ProduceRequest, version: int = 9) -> Any:
    """The only row of the reply."""
    response = await broker.ask(asked, version)
    [topic] = response.responses
    [row] = topic.partition_responses
    return row


def stored(broker: Broker, topic: str = "t", partition: int = 0) -> bytes:
    read = broker.log(topic, partition).read(0, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
    return join(read.records)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_batch_gets_the_next_offset(version: int, acks: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"a", b"b")
        row = await produce(broker, request(batch(b"c"), acks=acks), version)
        assert (row.error_code, row.base_offset, row.log_append_time_ms) == (0, 2, -1)
        assert row.log_start_offset == (0 if version >= 5 else -1)


async def test_a_topic_is_found_by_its_id() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        response = await broker.ask(request(batch(), topic="", topic_id=topic_id), 13)
        assert response.responses[0].topic_id == topic_id
        assert response.responses[0].partition_responses[0].error_code == 0
        assert (await produce(broker, request(batch(), topic_id=b"?" * 16), 13)).error_code == 100


async def test_unknown_topics_and_partitions() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 1)
        assert (await produce(broker, request(batch(), topic="nope"))).error_code == 3
        assert (await produce(broker, request(batch(), partitions=(1,)))).error_code == 3
        assert (await produce(broker, request(batch(), partitions=(-1,)))).error_code == 3


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_refused(acks: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        row = await produce(broker, request(batch(), acks=acks))
        assert (row.error_code, row.base_offset, row.log_start_offset) == (21, -1, -1)
        assert not stored(broker)


async def test_acks_0_gets_no_reply() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        assert await answer(broker.dispatch(request(batch(b"x"), acks=0), 9)) is None
        assert broker.log("t").log_end_offset == 1


@pytest.mark.parametrize("topic", ["t", "nope"])
async def test_an_error_with_acks_0_closes_the_connection(topic: str) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 1)
        dispatched = broker.dispatch(request(batch(), topic=topic, partitions=(5,), acks=0), 9)
        with pytest.raises(ProtocolViolation, match="acks=0"):
            await answer(dispatched)


def damaged(good: bytearray, position: int, value: int) -> bytearray:
    good[position] ^= value
    return good


REFUSED: list[tuple[str, bytearray | None, int, int]] = [
    ("nothing", None, 9, 87),
    ("no batch", bytearray(), 9, 87),
    ("two batches", batch() + batch(), 9, 87),
    ("magic 1", damaged(batch(), 16, 3), 9, 87),
    ("a control batch", batch(attributes=CONTROL), 9, 87),
    ("a negative sequence", batch(producer=(5, 0, -1)), 9, 87),
    ("an unknown codec", batch(attributes=6), 9, 87),
    ("a wrong CRC", damaged(batch(), 60, 1), 9, 2),
    ("zstd before version 7", batch(attributes=4), 6, 76),
    ("a timestamp beyond the limit", batch(timestamp_ms=NOW_MS + HOUR_MS + 1), 9, 32),
]


@pytest.mark.parametrize(("records", "version", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_bad_batch_is_refused_and_nothing_is_stored(records: bytearray | None, version: int, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        row = await produce(broker, request(records), version)
        assert (row.error_code, row.base_offset) == (code, -1)
        assert not stored(broker)


async def test_a_count_that_does_not_fit_the_offsets_is_refused() -> None:
    lying = batch(b"a", b"b")
    lying[60] = 3
    async with open_handlers() as broker:
        await broker.create("t")
        assert (await produce(broker, request(lying))).error_code in (2, 87)


async def test_a_batch_larger_than_the_topic_allows() -> None:
    async with open_handlers() as broker:
        await broker.create("t", max_message_bytes="100")
        assert (await produce(broker, request(batch(b"x" * 100)))).error_code == 10


async def test_a_batch_larger_than_a_segment() -> None:
    async with open_handlers() as broker:
        await broker.create("t", segment_bytes="100")
        assert (await produce(broker, request(batch(b"x" * 100)))).error_code == 18


async def test_the_broker_sets_the_time_where_the_topic_says_so() -> None:
    async with open_handlers() as broker:
        await broker.create("t", message_timestamp_type="LogAppendTime")
        assert (await produce(broker, request(batch(timestamp_ms=5)))).log_append_time_ms == NOW_MS


async def test_a_single_replica_is_enough_despite_min_insync_replicas_2() -> None:
    async with open_handlers() as broker:
        await broker.create("t", min_insync_replicas="2")
        assert (await produce(broker, request(batch()))).error_code == 0


async def test_one_bad_partition_leaves_the_others_alone() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        response = await broker.ask(request(batch(), damaged(batch(), 60, 1), batch()), 9)
        assert [row.error_code for row in response.responses[0].partition_responses] == [0, 2, 0]


async def test_a_validation_error_returns_its_reason_and_the_log_start_offset() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        row = await produce(broker, request(batch(timestamp_ms=NOW_MS + 2 * HOUR_MS)))
        assert row.log_start_offset == 0
        assert "timestamp" in row.error_message


async def test_transactions_need_the_right_to_their_id() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        of_a_transaction = batch(attributes=TRANSACTIONAL, producer=(5, 0, 0))
        assert (await produce(broker, request(of_a_transaction))).error_code == 53
        asked = request(of_a_transaction, transactional_id="x")
        denied = broker.without((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"))
        assert (await produce(denied, asked)).error_code == 53
        assert broker.log("t").log_end_offset == 0
        broker.transactions.answers["verify_partitions"] = [True]
        row = await produce(broker, asked)
        assert (row.error_code, row.base_offset) == (0, 0)


# Transactions (KIP-890)


def transactional(sequence: int = 0, epoch: int = 3, producer_id: int = 7) -> bytes:
    return bytes(batch(attributes=TRANSACTIONAL, producer=(producer_id, epoch, sequence)))


def asked_for(*batches: bytes, **fields: Any) -> ProduceRequest:
    return request(*map(bytearray, batches), transactional_id="x", **fields)


PRODUCER = ProducerIdentity(7, 3)


@pytest.mark.parametrize("version", range(3, 12))
async def test_older_clients_have_added_partitions_by_themselves(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        broker.transactions.answers["verify_partitions"] = [True, True]
        [topic] = (await broker.ask(asked_for(transactional(), transactional()), version)).responses
        assert [row.error_code for row in topic.partition_responses] == [0, 0]
        partitions = [Partition("t", 0), Partition("t", 1)]
        assert broker.transactions.calls == [("verify_partitions", "x", PRODUCER, partitions)]


@pytest.mark.parametrize("version", range(3, 12))
async def test_a_partition_missing_from_the_transaction_is_refused_alone(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        broker.transactions.answers["verify_partitions"] = [False, True]
        [topic] = (await broker.ask(asked_for(transactional(), transactional()), version)).responses
        refused, taken = topic.partition_responses
        assert (refused.error_code, refused.base_offset) == (120 if version >= 11 else 48, -1)
        if 8 <= version < 11:
            assert refused.error_message == "Partition was not added to the transaction"
        assert (taken.error_code, taken.base_offset) == (0, 0)
        assert stored(broker) == b""


@pytest.mark.parametrize("version", [12, 13])
async def test_newer_clients_add_partitions_by_writing_to_them(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t", 3)
        broker.transactions.answers["add_partitions"] = None
        asked = asked_for(
            transactional(),
            transactional(),
            topic="" if version == 13 else "t",
            topic_id=topic_id if version == 13 else ZERO_UUID,
        )
        [topic_row] = (await broker.ask(asked, version)).responses
        assert [row.error_code for row in topic_row.partition_responses] == [0, 0]
        partitions = [Partition("t", 0), Partition("t", 1)]
        assert broker.transactions.calls == [("add_partitions", "x", PRODUCER, partitions, SECOND_PROTOCOL)]


async def test_a_batch_of_a_transaction_open_in_the_partition_needs_no_verification() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        broker.transactions.answers["add_partitions"] = None
        for sequence in range(3):
            assert (await produce(broker, asked_for(transactional(sequence)), 12)).base_offset == sequence
        assert len(broker.transactions.calls) == 1


async def test_pipelined_produce_behind_add() -> None:
    """Named case 5: sequences 0 to 4 at once, while the coordinator answers late."""
    async with open_handlers() as broker:
        await broker.create("t")
        started = [broker.dispatch(asked_for(transactional(sequence)), 12) for sequence in range(5)]
        await trio.testing.wait_all_tasks_blocked()
        assert not any(one.is_settled for one in started)
        for future in broker.transactions.asked:
            future.settle(None)
        for number, one in enumerate(started):
            broker.correlation_id = number + 1
            row = broker.read(await answer(one), 0, 12).responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, number)


@pytest.mark.parametrize(
    ("error", "by_version"),
    [
        (errors.ProducerFenced(), {10: 47, 11: 47, 12: 47}),
        (errors.InvalidProducerIdMapping(), {10: 49, 11: 49, 12: 49}),
        (errors.ConcurrentTransactions(), {10: 19, 11: 19, 12: 51}),
        (errors.CoordinatorLoading(), {10: 19, 11: 19, 12: 19}),
        (errors.CoordinatorNotAvailable(), {10: 19, 11: 19, 12: 19}),
        (errors.NotCoordinator(), {10: 19, 11: 19, 12: 19}),
        (errors.InvalidTransactionState(), {10: 48, 11: 48, 12: 48}),
        (errors.TransactionAbortable(), {10: 48, 11: 120, 12: 120}),
        (errors.TransactionTooLarge(), {10: -1, 11: -1, 12: -1}),
    ],
)
async def test_coordinator_errors_are_translated_into_codes_of_the_produce_version(
    error: errors.TransactionError, by_version: dict[int, int]
) -> None:
    for version, code in by_version.items():
        async with open_handlers() as broker:
            await broker.create("t")
            broker.transactions.answers.update(verify_partitions=error, add_partitions=error)
            row = await produce(broker, asked_for(transactional()), version)
            assert (row.error_code, row.base_offset, row.log_start_offset) == (code, -1, -1)
            assert (row.error_message is None) == (code not in (19, 48))
            assert stored(broker) == b""


async def test_a_translated_coordinator_error_is_named_in_the_error_message() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.transactions.answers["add_partitions"] = errors.NotCoordinator()
        assert (await produce(broker, asked_for(transactional()), 12)).error_message == (
            "Unable to verify the partition has been added to the transaction. Underlying error: NOT_COORDINATOR"
        )


@pytest.mark.parametrize("others", [{"producer_id": 8}, {"epoch": 4}])
async def test_of_two_producers_in_a_request_nothing_is_taken(others: dict[str, int]) -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        [topic] = (await broker.ask(asked_for(transactional(), transactional(**others)), 12)).responses
        assert [row.error_code for row in topic.partition_responses] == [49, 49]
        assert broker.transactions.calls == []


async def test_a_plain_batch_beside_a_transactional_batch_is_not_verified() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        broker.transactions.answers["add_partitions"] = None
        [topic] = (await broker.ask(asked_for(transactional(), bytes(batch())), 12)).responses
        assert [row.error_code for row in topic.partition_responses] == [0, 0]
        assert broker.transactions.calls[0][3] == [Partition("t", 0)]


async def test_no_transaction_has_an_empty_id() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        asked = request(bytearray(transactional()), transactional_id="")
        assert (await produce(broker, asked, 12)).error_code == 42
        assert broker.transactions.calls == []


async def test_without_verification_older_clients_are_believed() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.interfaces.transaction_rules.verifies_partitions = False
        assert (await produce(broker, asked_for(transactional()), 11)).error_code == 0
        assert broker.transactions.calls == []
        broker.transactions.answers["add_partitions"] = None
        asked = asked_for(transactional(epoch=4))
        assert (await produce(broker, asked, 12)).error_code == 0, "newer ones add partitions all the same"
        assert len(broker.transactions.calls) == 1


async def test_a_refused_transactional_batch_with_acks_0_raises_a_protocol_violation() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        broker.transactions.answers["add_partitions"] = errors.ProducerFenced()
        with pytest.raises(ProtocolViolation):
            await broker.ask(asked_for(transactional(), acks=0), 12)


async def test_internal_topics_are_the_brokers_own() -> None:
    async with open_handlers() as broker:
        await broker.create("__consumer_offsets")
        asked = request(batch(), topic="__consumer_offsets")
        assert (await produce(broker, asked)).error_code == 17
        response = await broker.ask(asked, 9, client_id="__admin_client")
        assert response.responses[0].partition_responses[0].error_code == 0


async def test_requests_are_queued_in_order_before_the_first_is_answered() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        waiting = [broker.dispatch(request(batch(value)), 9) for value in (b"a", b"b", b"c")]
        assert all(one.two_stage for one in waiting)
        for number, one in enumerate(waiting):
            broker.correlation_id = number + 1
            response = broker.read(await answer(one), 0, 9)
            assert response.responses[0].partition_responses[0].base_offset == number


async def test_with_full_queues_the_next_request_waits_for_room() -> None:
    async with open_handlers(queue_max_bytes=100) as broker:
        await broker.create("t", 2)
        first = broker.dispatch(request(batch()), 9)
        second = broker.dispatch(request(batch()), 9)
        assert (first.two_stage, second.two_stage) == (True, False)
        assert await answer(first)
        response = broker.read(await answer(second), 0, 9)
        assert response.responses[0].partition_responses[0].base_offset == 1


async def test_a_request_that_was_answered_leaves_no_cycle_behind() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        for _ in range(2):
            gc.collect()
            ready = trio.Event()
            dispatched = broker.dispatch(request(batch(), batch()), 9)
            dispatched.call_when_settled(ready.set)
            await ready.wait()
            assert await answer(dispatched)
            del dispatched
        assert gc.collect() == 0  # else the garbage collector would be busy with them


class NeverDone:
    """A log whose disk hangs."""

    log_start_offset = 0
    is_settled = False
    has_stopped_waiting = False

    def append(self, records: memoryview, **options: object) -> NeverDone:
        return self

    def stop_waiting(self) -> None:
        self.has_stopped_waiting = True

    def call_when_settled(self, callback: object) -> None:
        """Never call it."""

    async def wait(self) -> None:
        await trio.sleep_forever()


class StoreOf:
    """A store with one log for everything, or an error for everything."""

    has_room = True

    def __init__(self, log: object) -> None:
        self.log = log

    def get(self, partition: object) -> object:
        if isinstance(self.log, Exception):
            raise self.log
        return self.log


async def test_acks_all_waits_no_longer_than_asked() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        hanging = broker.reconfigured(store=StoreOf(log := NeverDone()))
        started_s = trio.current_time()
        response = await hanging.ask(request(batch(), batch(), timeout_ms=1_500), 9)
        assert [row.error_code for row in response.responses[0].partition_responses] == [7, 7]
        assert trio.current_time() - started_s == pytest.approx(1.5)
        assert log.has_stopped_waiting


async def test_acks_1_waits_for_the_disk_however_long_that_takes() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        hanging = broker.reconfigured(store=StoreOf(NeverDone()))
        with trio.move_on_after(3600) as waited:
            await hanging.ask(request(batch(), acks=1, timeout_ms=1_500), 9)
        assert waited.cancelled_caught


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (log_errors.StorageError("x"), 56),
        (log_errors.NotLeaderOrFollower("x"), 6),
        (log_errors.UnknownPartition("x"), 6),
    ],
)
async def test_a_log_that_is_not_there(error: Exception, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        assert (await produce(broker.reconfigured(store=StoreOf(error)), request(batch()))).error_code == code


async def test_a_produce_at_a_wrong_broker_returns_the_leader_and_its_endpoint() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        [info] = broker.cluster.image.brokers.values()
        state = PartitionState(leader=2, leader_epoch=9, isr=(2,), replicas=(2,))
        topic = TopicInfo("t", topic_id, (state,))
        broker.cluster.changes = {
            "topics": {"t": topic},
            "topics_by_id": {topic_id: topic},
            "brokers": {1: info, 2: replace(info, broker_id=2, rack="r2")},
        }
        elsewhere = broker.reconfigured(store=StoreOf(log_errors.NotLeaderOrFollower("x")))
        response = await elsewhere.ask(request(batch()), 10)
        leader = response.responses[0].partition_responses[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (2, 9)
        [node] = response.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "broker.example", 9092, "r2")
        assert not (await elsewhere.ask(request(batch()), 9)).node_endpoints
