"""The coordinators of a broker: unused producer ids, markers until all are written, shards that come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from coordinator import errors
from coordinator.api import TRANSACTION_VERSION, Future
from coordinator.errors import CoordinatorError
from coordinator.futures import SettableFuture
from coordinator.groups.tests.answers import result_of
from coordinator.groups.tests.test_service import BROKER, FakeCluster, Logs, topic
from coordinator.shards.shard import RELOAD_PAUSE_S
from coordinator.shards.shard_set import FIRST_LOAD_TIMEOUT_S, StateStorage, partition_of
from coordinator.state.log import StateMarker
from coordinator.testing.fakes import SimulatedStateCaches
from coordinator.testing.images import with_features
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity, TransactionState
from coordinator.transactions.entry import PARKED_MS, TransactionSettings
from coordinator.transactions.markers import REFUSED_PAUSE_S, RETRY_PAUSE_MAX_S, RETRY_PAUSE_S
from coordinator.transactions.service import (
    IDS_IN_RESERVE,
    TRANSACTIONS_TOPIC,
    TransactionCoordinators,
    TransactionOptions,
)
from coordinator.transactions.service import RETRY_PAUSE_S as RETRY_PAUSE_IDS_S

ORDERS, LATER = Partition("orders", 0), Partition("later", 1)
FIRST = ProducerIdentity(1, 0)
TIMEOUT_MS = 60_000


class Cluster(FakeCluster):
    """A cluster that gives out producer ids when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.given_out = 0
        self.may_give = trio.Event()
        self.may_give.set()
        self.gives_at_once = 0
        self.gives_none = False

    async def new_producer_id(self) -> int:
        if self.given_out >= self.gives_at_once:
            await self.may_give.wait()
        await trio.lowlevel.checkpoint()
        if self.gives_none:
            raise errors.MetadataUnavailable("nobody there")
        self.given_out += 1
        return self.given_out


@dataclass
class Markers:
    """A `MarkerWriter`: at once, unless `is_slow`; `errors` are the outcomes of the next markers for a partition."""

    errors: dict[Partition, list[CoordinatorError]] = field(default_factory=dict)
    written: list[tuple[StateMarker, Partition]] = field(default_factory=list)
    is_slow: bool = False
    waiting: list[SettableFuture[object]] = field(default_factory=list)

    def write(self, marker: StateMarker, partition: Partition) -> Future[None]:
        self.written.append((marker, partition))
        answer: Any = SettableFuture[object]()
        if self.is_slow:
            self.waiting.append(answer)
        else:
            answer.settle(next(iter(self.errors.get(partition, ())), None))
            self.errors.get(partition, [])[:1] = []
        return answer  # type: ignore[no-any-return]

    def settle_waiting(self, outcome: CoordinatorError | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one.settle(outcome)

    @property
    def partitions(self) -> list[Partition]:
        return [partition for _, partition in self.written]


@dataclass
class World:
    cluster: Cluster
    logs: Logs
    markers: Markers
    service: TransactionCoordinators

    @property
    def log(self) -> Any:
        return self.logs.logs[partition_of("t", 4)]

    async def state(self, name: str = "t") -> TransactionState:
        return (await result_of(self.service.describe(name))).state

    async def initialise(self, name: str = "t", timeout_ms: int = TIMEOUT_MS) -> ProducerIdentity:
        return await result_of(self.service.initialise(name, timeout_ms, None))

    async def begin(self, *partitions: Partition) -> ProducerIdentity:
        identity = await self.initialise()
        await result_of(self.service.add_partitions("t", identity, partitions or (ORDERS,), protocol=FIRST_PROTOCOL))
        return identity

    async def end(self, identity: ProducerIdentity = FIRST, *, is_commit: bool = True) -> None:
        await result_of(self.service.end("t", identity, is_commit=is_commit, protocol=FIRST_PROTOCOL))


@asynccontextmanager
async def coordinating(
    logs: Logs | None = None, settings: TransactionSettings | None = None, *, has_topic: bool = True, **options: Any
) -> AsyncIterator[World]:
    cluster, markers, caches = Cluster(), Markers(), SimulatedStateCaches()
    given = TransactionOptions(
        broker_id=BROKER, settings=settings or TransactionSettings(), topic_configs={"k": "v"}, **options
    )
    logs = logs or Logs()
    storage = StateStorage(logs=logs, cache=await caches.open(Path("view")))
    service = TransactionCoordinators(
        cluster,
        storage,
        markers,
        given,
        lambda: int(trio.current_time() * 1000),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        if has_topic:
            cluster.publish(topic(TRANSACTIONS_TOPIC))
        await wait_all_tasks_blocked()
        yield World(cluster, logs, markers, service)
        nursery.cancel_scope.cancel()


async def test_a_transaction() -> None:
    async with coordinating() as world:
        identity = await world.begin(ORDERS, LATER)
        assert identity == FIRST
        assert world.markers.written == []
        await world.end(identity)
        marker = StateMarker(1, 0, 0, is_commit=True)
        assert world.markers.written == [(marker, LATER), (marker, ORDERS)]
        assert await world.state() is TransactionState.COMPLETE_COMMIT
        assert [one.state for one in await result_of(world.service.list_transactions())] == [
            TransactionState.COMPLETE_COMMIT
        ]


async def test_ids_are_fetched_when_one_is_needed_only() -> None:
    async with coordinating() as world:
        assert world.cluster.given_out == 0
        for epoch in range(3):
            assert await world.initialise() == (1, epoch)
        await wait_all_tasks_blocked()
        assert world.cluster.given_out == IDS_IN_RESERVE + 1, "one is used"


async def test_there_is_always_another_id() -> None:
    async with coordinating() as world:
        found = [await world.initialise(str(number)) for number in range(3 * IDS_IN_RESERVE)]
        assert len(set(found)) == len(found)


async def test_requests_that_arrive_while_ids_are_fetched_wait_for_the_ids() -> None:
    async with coordinating() as world:
        world.cluster.may_give = trio.Event()
        asked = [world.service.initialise("t", TIMEOUT_MS, None) for _ in range(2)]
        await wait_all_tasks_blocked()
        assert not any(one.is_settled for one in asked)
        world.cluster.may_give.set()
        assert [await result_of(one) for one in asked] == [(1, 0), (1, 1)]


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_the_cluster_aborts_a_transaction_in_the_protocol_of_its_feature_level(level: int) -> None:
    """The level of transaction.version decides; a client that ends its own transaction does so in the protocol that it
    speaks."""
    async with coordinating() as world:
        world.cluster.image = with_features(world.cluster.image, {TRANSACTION_VERSION: level}, 1)
        identity = await world.begin()
        await world.initialise()
        [(marker, _)] = world.markers.written
        protocol = SECOND_PROTOCOL if level == 2 else FIRST_PROTOCOL
        assert marker == StateMarker(identity.producer_id, 1, 0, is_commit=False, protocol=protocol)


async def test_a_producer_id_is_returned_as_soon_as_it_is_available() -> None:
    """The ids behind it are slow: another block has to be taken."""
    async with coordinating() as world:
        world.cluster.may_give = trio.Event()
        asked = world.service.initialise("t", TIMEOUT_MS, None)
        world.cluster.gives_at_once = 1
        await wait_all_tasks_blocked()
        assert await result_of(asked) == (1, 0)


async def test_a_stopping_broker_begins_nothing_for_a_request_that_waits_for_a_producer_id() -> None:
    async with coordinating() as world:
        world.cluster.may_give = trio.Event()
        asked = world.service.initialise("t", TIMEOUT_MS, None)
        world.service.stop()
        with pytest.raises(errors.NotCoordinator):
            asked.result()
        world.cluster.may_give.set()
        await wait_all_tasks_blocked()
        assert world.log.batches == []


async def test_a_request_without_producer_ids_fails_with_loading_and_a_later_one_succeeds() -> None:
    async with coordinating() as world:
        world.cluster.gives_none = True
        with pytest.raises(errors.CoordinatorLoading):
            await world.initialise()
        assert trio.current_time() == PARKED_MS / 1000
        world.cluster.gives_none = False
        await trio.sleep(RETRY_PAUSE_IDS_S)
        assert await world.initialise() == (1, 0)


async def test_the_reply_to_an_end_and_the_markers_have_the_next_epoch() -> None:
    async with coordinating() as world:
        identity = await world.initialise()
        await result_of(world.service.add_partitions("t", identity, [ORDERS], protocol=SECOND_PROTOCOL))
        ended = world.service.end("t", identity, is_commit=True, protocol=SECOND_PROTOCOL)
        assert await result_of(ended) == (1, 1)
        marker = StateMarker(1, 1, 0, is_commit=True, protocol=SECOND_PROTOCOL)
        assert world.markers.written == [(marker, ORDERS)]


async def test_no_marker_leaves_before_the_decision_is_durable() -> None:
    async with coordinating() as world:
        identity = await world.begin()
        world.log.is_slow = True
        ending = world.service.end("t", identity, is_commit=True, protocol=FIRST_PROTOCOL)
        await wait_all_tasks_blocked()
        assert (ending.is_settled, world.markers.written) == (False, [])
        world.log.sync()
        await wait_all_tasks_blocked()
        assert ending.is_settled
        assert world.markers.partitions == [ORDERS]


async def test_a_decision_that_is_lost_sends_nothing() -> None:
    async with coordinating() as world:
        identity = await world.begin()
        world.log.is_slow = True
        ending = world.service.end("t", identity, is_commit=True, protocol=FIRST_PROTOCOL)
        await wait_all_tasks_blocked()
        world.log.fail()
        await wait_all_tasks_blocked()
        with pytest.raises(errors.NotCoordinator):
            ending.result()
        world.log.is_slow = False
        await trio.sleep(RELOAD_PAUSE_S + 1)
        assert world.markers.written == []
        assert await world.state() is TransactionState.ONGOING


async def test_a_marker_that_cannot_be_written_is_tried_again_alone() -> None:
    async with coordinating() as world:
        world.markers.errors[ORDERS] = [errors.MarkerNotWritten("full"), errors.NotCoordinator("moved")]
        identity = await world.begin(ORDERS, LATER)
        await world.end(identity)
        assert await world.state() is TransactionState.PREPARE_COMMIT
        await trio.sleep(3 * RETRY_PAUSE_S + 0.01)  # the second pause is twice as long
        assert world.markers.partitions == [LATER, ORDERS, ORDERS, ORDERS]
        assert await world.state() is TransactionState.COMPLETE_COMMIT


async def test_a_refused_marker_does_not_hold_up_another_that_is_tried_again() -> None:
    async with coordinating() as world:
        world.markers.errors = {ORDERS: [errors.StaleProducerEpoch("x")], LATER: [errors.MarkerNotWritten("full")]}
        identity = await world.begin(ORDERS, LATER)
        await world.end(identity)
        await trio.sleep(RETRY_PAUSE_S + 0.01)
        assert world.markers.partitions == [LATER, ORDERS, LATER]
        await trio.sleep(REFUSED_PAUSE_S)
        assert await world.state() is TransactionState.COMPLETE_COMMIT


async def test_a_marker_that_cannot_be_written_for_long_is_retried_rarely_and_logged_once() -> None:
    async with coordinating() as world:
        world.markers.errors[ORDERS] = [errors.MarkerNotWritten("full")] * 1_000
        identity = await world.begin()
        with capture_logs() as logs:
            await world.end(identity)
            await trio.sleep(100)
        assert 50 <= len(world.markers.written) < 60
        assert len(logs) == 1
        assert 10 * RETRY_PAUSE_S < RETRY_PAUSE_MAX_S < REFUSED_PAUSE_S


async def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async with coordinating() as world:
        world.markers.errors[ORDERS] = [errors.UnknownTopic("orders")]
        identity = await world.begin()
        await world.end(identity)
        assert await world.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [errors.StaleProducerEpoch("x"), errors.TransactionCoordinatorFenced("x")])
async def test_a_refused_marker_is_counted_as_stuck_and_retried_later(error: CoordinatorError) -> None:
    async with coordinating() as world:
        world.markers.errors[ORDERS] = [error, error]
        identity = await world.begin(ORDERS, LATER)
        await world.end(identity)
        await trio.sleep(REFUSED_PAUSE_S - 1)
        assert world.markers.partitions == [LATER, ORDERS]
        assert await world.state() is TransactionState.PREPARE_COMMIT
        await trio.sleep(REFUSED_PAUSE_S)
        assert world.markers.partitions == [LATER, ORDERS, ORDERS]
        assert world.service.counters.stuck_markers == 1
        await trio.sleep(REFUSED_PAUSE_S)
        assert await world.state() is TransactionState.COMPLETE_COMMIT


async def test_a_marker_whose_reply_was_lost_is_written_again_after_a_restart() -> None:
    """Named case 4."""
    logs = Logs()
    async with coordinating(logs) as world:
        identity = await world.begin()
        world.markers.is_slow = True
        await world.end(identity)
    async with coordinating(logs) as world:
        assert world.markers.partitions == [ORDERS]
        assert await world.state() is TransactionState.COMPLETE_COMMIT
        assert await world.initialise() == (1, 1)


async def test_a_retry_does_not_end_the_next_transaction() -> None:
    """The partition was read anew while a marker waited for its second try: sent again, all is over. The next
    transaction of the same epoch must not see that second try (T9)."""
    async with coordinating() as world:
        identity = await world.begin()
        world.markers.is_slow = True
        await world.end(identity)
        shard = world.service._shards.find(partition_of("t", 4))
        assert shard is not None
        world.markers.is_slow = False
        shard.fail(RuntimeError("as after a failed write"))
        world.markers.settle_waiting(errors.MarkerNotWritten("full"))
        await trio.sleep(RELOAD_PAUSE_S + 2 * RETRY_PAUSE_S)
        assert await world.state() is TransactionState.COMPLETE_COMMIT
        await result_of(world.service.add_partitions("t", identity, [ORDERS], protocol=FIRST_PROTOCOL))
        before = len(world.markers.written)
        await trio.sleep(10 * RETRY_PAUSE_S)
        assert len(world.markers.written) == before
        assert await world.state() is TransactionState.ONGOING


async def test_markers_of_a_partition_that_is_led_elsewhere_are_dropped() -> None:
    async with coordinating() as world:
        world.markers.errors[ORDERS] = [errors.MarkerNotWritten("full")] * 100
        identity = await world.begin()
        await world.end(identity)
        world.cluster.publish(topic(TRANSACTIONS_TOPIC, leader=BROKER + 1, epoch=1))
        await trio.sleep(2 * RETRY_PAUSE_S)
        before = len(world.markers.written)
        await trio.sleep(10 * RETRY_PAUSE_S)
        assert len(world.markers.written) == before
        with pytest.raises(errors.NotCoordinator):
            await world.state()


async def test_a_coordinator_writes_its_epoch_into_its_markers() -> None:
    async with coordinating(has_topic=False) as world:
        world.cluster.publish(topic(TRANSACTIONS_TOPIC, epoch=5))
        await wait_all_tasks_blocked()
        identity = await world.begin()
        await world.end(identity, is_commit=False)
        assert [marker for marker, _ in world.markers.written] == [StateMarker(1, 0, 5, is_commit=False)]


async def test_a_parked_request_gets_not_coordinator_when_the_broker_stops() -> None:
    async with coordinating() as world:
        identity = await world.begin()
        world.markers.is_slow = True
        await world.end(identity)
        parked = world.service.add_partitions("t", identity, [LATER], protocol=FIRST_PROTOCOL)
        assert not parked.is_settled
        world.service.stop()
        with pytest.raises(errors.NotCoordinator):
            parked.result()


async def test_the_first_request_for_a_coordinator_creates_the_topic() -> None:
    async with coordinating(has_topic=False, partition_count=3, replication_factor=3, min_isr=2) as world:
        assert await world.service.coordinator_of("t") == BROKER
        assert world.cluster.created == [
            {
                "name": TRANSACTIONS_TOPIC,
                "partition_count": 3,
                "replication_factor": 3,
                "configs": {"k": "v", "min.insync.replicas": "2"},
            }
        ]


async def test_with_one_replica_the_topic_asks_for_no_more_in_sync() -> None:
    async with coordinating(has_topic=False, replication_factor=1, min_isr=2) as world:
        await world.service.coordinator_of("t")
        assert world.cluster.created[0]["configs"]["min.insync.replicas"] == "1"


async def test_while_a_partition_is_read_nothing_is_listed() -> None:
    logs = Logs()
    async with coordinating(logs, has_topic=False) as world:
        (await logs.get(TRANSACTIONS_TOPIC.encode()[:16], TRANSACTIONS_TOPIC, 0)).is_broken = True
        world.cluster.publish(topic(TRANSACTIONS_TOPIC))
        await wait_all_tasks_blocked()
        with pytest.raises(errors.CoordinatorLoading):
            await result_of(world.service.list_transactions())


async def test_open_transactions_time_out_and_unused_transactional_ids_expire() -> None:
    limits = TransactionSettings(timeout_check_interval_ms=1_000, expiration_ms=5_000)
    async with coordinating(settings=limits, expiry_check_interval_ms=10_000) as world:
        identity = await world.initialise(timeout_ms=2_500)
        await result_of(world.service.add_partitions("t", identity, [ORDERS], protocol=FIRST_PROTOCOL))
        await trio.sleep(3.1)
        assert await world.state() is TransactionState.COMPLETE_ABORT
        assert world.service.counters.timed_out == 1
        assert [one.state for one in world.service.figures()] == [TransactionState.COMPLETE_ABORT]
        await trio.sleep(7)
        with pytest.raises(errors.UnknownTransactionalId):
            await world.state()


async def test_a_coordinator_that_was_looked_for_first_is_ready() -> None:
    async with coordinating(has_topic=False) as world:
        await world.service.coordinator_of("t")
        with pytest.raises(errors.UnknownTransactionalId):
            await world.state()


async def test_a_request_for_a_coordinator_waits_a_limited_time_for_an_unreadable_partition() -> None:
    logs = Logs()
    async with coordinating(logs, has_topic=False, partition_count=4) as world:
        (await logs.get(TRANSACTIONS_TOPIC.encode()[:16], TRANSACTIONS_TOPIC, 0)).is_broken = True
        assert await world.service.coordinator_of("t") == BROKER
        assert trio.current_time() == FIRST_LOAD_TIMEOUT_S


async def test_a_transaction_is_over_when_that_can_be_written() -> None:
    async with coordinating() as world:
        identity = await world.begin()
        world.markers.is_slow = True
        await world.end(identity)
        world.log.takes_writes = False
        world.markers.settle_waiting()
        await trio.sleep(5)
        assert await world.state() is TransactionState.PREPARE_COMMIT
        assert len(world.markers.written) == 1, "what is written is written"
        world.log.takes_writes = True
        await trio.sleep(1)
        assert await world.state() is TransactionState.COMPLETE_COMMIT


async def test_a_transaction_times_out_only_when_the_abort_can_be_written() -> None:
    async with coordinating() as world:
        await world.begin()
        world.log.takes_writes = False
        await trio.sleep(10 * TIMEOUT_MS / 1000)
        assert await world.state() is TransactionState.ONGOING
        with pytest.raises(errors.CoordinatorNotAvailable):
            await world.end()
        world.log.takes_writes = True
        await trio.sleep(1)
        assert await world.state() is TransactionState.COMPLETE_ABORT


async def test_a_durable_decision_is_carried_out_though_its_request_was_refused() -> None:
    async with coordinating() as world:
        identity = await world.begin()
        world.log.is_slow = True
        with pytest.raises(errors.CoordinatorNotAvailable):
            await world.end(identity)
        assert world.markers.written == []
        world.log.is_slow = False
        world.log.sync()
        await trio.sleep(1)
        assert world.markers.partitions == [ORDERS]
        assert await world.state() is TransactionState.COMPLETE_COMMIT


async def test_above_the_high_watermark_transactions_are_described_and_nothing_of_them_goes_on() -> None:
    """The decision was never acknowledged: no marker leaves, and no answer says whether the transaction has a partition
    (K26)."""
    logs = Logs()
    async with coordinating(logs) as world:
        identity, log = await world.begin(), world.log
        log.is_slow = True
        world.service.end("t", identity, is_commit=True, protocol=FIRST_PROTOCOL)
        await wait_all_tasks_blocked()
    log.takes_writes = log.is_confirmed = False
    async with coordinating(logs) as world:
        await trio.sleep(10 * TIMEOUT_MS / 1000)
        assert await world.state() is TransactionState.PREPARE_COMMIT
        (listed,) = await result_of(world.service.list_transactions())
        assert listed.state is TransactionState.PREPARE_COMMIT
        with pytest.raises(errors.CoordinatorLoading):
            await result_of(world.service.verify_partitions("t", identity, [ORDERS]))
        for ask in (world.initialise, world.end):
            with pytest.raises(errors.CoordinatorNotAvailable):
                await ask()
        assert world.markers.written == []
        log.takes_writes, log.is_confirmed, log.is_slow = True, True, False
        log.sync()
        await trio.sleep(1)
        assert world.markers.partitions == [ORDERS]
        assert await world.state() is TransactionState.COMPLETE_COMMIT
