"""Transaction verification in a partition: requests to the coordinator, waiting appends, late batches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import trio.testing

from engine.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Marker, Outcome, PartitionLog, PendingAppend, TopicIdPartition
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.errors import (
    EngineError,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    Overloaded,
    UnknownPartition,
)
from engine.log_config import CleanupPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, open_orders, options, read_committed, running

FIRST = pytest.mark.parametrize("protocol", [FIRST_PROTOCOL])
BOTH = pytest.mark.parametrize("protocol", [FIRST_PROTOCOL, SECOND_PROTOCOL])


@dataclass
class FakeVerification:
    """A fake `VerificationFuture` that the test settles."""

    is_settled: bool = False
    refusal: EngineError | None = None
    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def settle(self, refusal: EngineError | None = None) -> None:
        self.is_settled, self.refusal = True, refusal
        for callback in self.callbacks:
            callback()


@dataclass
class Asked:
    """A fake `Joining` that notes the partitions that were asked for."""

    protocol: int
    is_enforced: bool = True
    futures: list[FakeVerification] = field(default_factory=list)
    partitions: list[TopicIdPartition] = field(default_factory=list)

    def ask(self, partition: TopicIdPartition) -> FakeVerification:
        self.partitions.append(partition)
        self.futures.append(FakeVerification())
        return self.futures[-1]


def send(log: PartitionLog, asked: Asked | None, producer: tuple[int, int, int], size: int = 1) -> PendingAppend:
    batch = build_batch(
        [Record(b"k", b"%d" % producer[2] * size, NOW_MS)], attributes=TRANSACTIONAL_BIT, producer=producer
    )
    return log.append(memoryview(batch), acks=-1, joining=asked)


async def begin(log: PartitionLog, asked: Asked, producer: tuple[int, int, int]) -> int:
    pending = send(log, asked, producer)
    asked.futures[-1].settle()
    return (await pending.wait()).base_offset


async def end(
    log: PartitionLog, protocol: int, epoch: int = 0, outcome: Outcome = Outcome.COMMIT, producer_id: int = 7
) -> None:
    """End a transaction. In the second protocol the marker has the producer's next epoch."""
    epoch += protocol >= SECOND_PROTOCOL
    await log.end_transaction(Marker(producer_id, epoch, 0, outcome, protocol)).wait()


async def outcome_of(pending: PendingAppend) -> EngineError | int:
    try:
        return (await pending.wait()).base_offset
    except EngineError as error:
        return error


async def values(log: PartitionLog) -> list[bytes | None]:
    return [one.value for one in (await read_committed(log, 0)).values()]


@BOTH
async def test_later_batches_of_a_transaction_wait_behind_the_first_and_keep_their_order(protocol: int) -> None:
    """Named case 5: sequences 0 to 4 at once to a partition that is being added."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        pending = [send(log, asked, (7, 0, sequence)) for sequence in range(5)]
        assert asked.partitions == [log.partition] * 5
        for future in reversed(asked.futures[1:]):
            future.settle()
        await trio.testing.wait_all_tasks_blocked()
        assert (log.log_end_offset, [one.is_settled for one in pending]) == (0, [False] * 5)
        asked.futures[0].settle()
        assert [await outcome_of(one) for one in pending] == [0, 1, 2, 3, 4]


@BOTH
async def test_the_coordinator_is_not_asked_again_after_a_transaction_has_begun(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        await begin(log, asked, (7, 0, 0))
        assert await outcome_of(send(log, asked, (7, 0, 1))) == 1
        assert len(asked.futures) == 1


async def test_the_coordinator_is_not_asked_about_a_batch_outside_a_transaction() -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(SECOND_PROTOCOL)
        batch = build_batch([Record(b"k", b"v", NOW_MS)], producer=(7, 0, 0))
        assert await outcome_of(log.append(memoryview(batch), acks=-1, joining=asked)) == 0
        assert asked.futures == []


@BOTH
async def test_batches_of_other_producers_pass_a_batch_that_waits_for_verification(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        waiting = send(log, asked, (7, 0, 0))
        assert await begin(log, asked, (8, 0, 0)) == 0
        batch = build_batch([Record(b"k", b"v", NOW_MS)])
        assert await outcome_of(log.append(memoryview(batch), acks=-1)) == 1
        asked.futures[0].settle()
        assert await outcome_of(waiting) == 2


@BOTH
async def test_batches_behind_a_refused_first_batch_are_refused_until_it_is_sent_again(protocol: int) -> None:
    """The batches behind a refused one are refused until the producer sends it again (KAFKA-14359)."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        first, second = (send(log, asked, (7, 0, sequence)) for sequence in range(2))
        refusal = NotEnoughReplicas("its coordinator is away")
        asked.futures[0].settle(refusal)
        assert await outcome_of(first) is refusal
        asked.futures[1].settle()
        assert isinstance(await outcome_of(second), OutOfOrderSequence)
        assert log.log_end_offset == 0
        assert await begin(log, asked, (7, 0, 0)) == 0
        assert await outcome_of(send(log, asked, (7, 0, 1))) == 1


@BOTH
async def test_an_older_epoch_is_told_before_anybody_is_asked(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        await begin(log, asked, (7, 3, 0))
        with pytest.raises(InvalidProducerEpoch):
            send(log, asked, (7, 2, 0))
        assert len(asked.futures) == 1


async def test_stale_verification_aba() -> None:
    """Named case 7: the coordinator had the partition, the transaction was aborted there, and then comes the batch."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(FIRST_PROTOCOL)
        late = send(log, asked, (7, 0, 0))
        await end(log, FIRST_PROTOCOL, outcome=Outcome.ABORT)
        asked.futures[0].settle()
        assert isinstance(await outcome_of(late), InvalidTxnState)
        assert log.last_stable_offset == log.log_end_offset == 1


async def test_a_producer_fenced_during_verification_gets_invalid_producer_epoch() -> None:
    """The transaction timed out, and the abort marker has a newer producer epoch."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(FIRST_PROTOCOL)
        late = send(log, asked, (7, 0, 0))
        await end(log, FIRST_PROTOCOL, epoch=1, outcome=Outcome.ABORT)
        asked.futures[0].settle()
        assert isinstance(await outcome_of(late), InvalidProducerEpoch)


async def test_permission_for_one_transaction_is_none_for_the_next() -> None:
    """Named case 7, with a whole transaction in between: the producer's state looks the same as before."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(FIRST_PROTOCOL)
        await begin(log, asked, (7, 0, 0))
        await end(log, FIRST_PROTOCOL)
        late = send(log, asked, (7, 0, 2))
        await begin(log, Asked(FIRST_PROTOCOL), (8, 0, 0))
        await log.end_transaction(Marker(8, 0, 0, Outcome.COMMIT)).wait()
        batch = build_batch([Record(b"k", b"1", NOW_MS)], attributes=TRANSACTIONAL_BIT, producer=(7, 0, 1))
        await log.append(memoryview(batch), acks=-1).wait()
        await end(log, FIRST_PROTOCOL)
        asked.futures[-1].settle()
        assert isinstance(await outcome_of(late), InvalidTxnState)
        assert log.last_stable_offset == log.log_end_offset


async def test_a_batch_for_an_open_transaction_is_too_late_when_that_has_ended() -> None:
    """The batch needed no verification when it came. In the second protocol its epoch is an old one afterwards."""
    for protocol, error in ((FIRST_PROTOCOL, InvalidTxnState), (SECOND_PROTOCOL, InvalidProducerEpoch)):
        async with running(SimulatedFileSystem()) as store:
            log, asked = await open_orders(store), Asked(protocol)
            await begin(log, asked, (7, 0, 0))
            ending = log.end_transaction(Marker(7, int(protocol == SECOND_PROTOCOL), 0, Outcome.COMMIT, protocol))
            late = send(log, asked, (7, 0, 1))
            await ending.wait()
            assert isinstance(await outcome_of(late), error)
            assert log.last_stable_offset == log.log_end_offset == 2


async def test_late_produce_of_ended_transaction() -> None:
    """Named case 6: a batch of epoch 5 that was held up past the commit, and the beginning of the next transaction."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(SECOND_PROTOCOL)
        await begin(log, asked, (7, 5, 0))
        held_up = send(log, asked, (7, 5, 1))
        late = Asked(SECOND_PROTOCOL)
        await held_up.wait()
        await end(log, SECOND_PROTOCOL, epoch=5)
        with pytest.raises(InvalidProducerEpoch):
            send(log, late, (7, 5, 2))
        await begin(log, asked, (7, 6, 0))
        with pytest.raises(InvalidProducerEpoch):
            send(log, late, (7, 5, 2))
        assert late.futures == []
        assert await values(log) == [b"0", b"1"]


async def test_the_end_of_the_transaction_before_does_not_take_permission_from_the_next() -> None:
    """A producer that was told its next epoch goes on while the markers are on their way (KIP-890)."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(SECOND_PROTOCOL)
        await begin(log, asked, (7, 0, 0))
        following = send(log, asked, (7, 1, 0))
        await end(log, SECOND_PROTOCOL)
        asked.futures[-1].settle()
        assert await outcome_of(following) == 2
        assert await values(log) == [b"0"]


@pytest.mark.parametrize(("protocol", "is_refused"), [(FIRST_PROTOCOL, False), (SECOND_PROTOCOL, True)])
async def test_a_producer_that_is_not_known_begins_with_0_in_the_second_protocol(
    protocol: int, *, is_refused: bool
) -> None:
    """Check the sequence as ProducerAppendInfo.checkSequence does. In the first protocol retention may have removed the
    producer's state with its records."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        pending = send(log, asked, (7, 0, 3))
        asked.futures[0].settle()
        assert isinstance(await outcome_of(pending), OutOfOrderSequence if is_refused else int)


@FIRST
async def test_a_duplicate_from_an_ended_transaction_returns_the_original_offset(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        await begin(log, asked, (7, 0, 0))
        again = send(log, asked, (7, 0, 0))
        await end(log, protocol)
        assert await outcome_of(again) == 0
        assert log.log_end_offset == 2


@BOTH
async def test_a_partition_that_is_deleted_meanwhile(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        waiting = send(log, asked, (7, 0, 0))
        await store.delete_partitions([ORDERS])
        asked.futures[0].settle()
        assert isinstance(await outcome_of(waiting), UnknownPartition)
        assert used_bytes(store) == 0


def used_bytes(store: SegmentStore) -> int:
    [log_dir] = store._dirs
    return log_dir.commit_log.budget.used_bytes + log_dir.commit_log.budget.waiting_bytes


@BOTH
async def test_batches_that_wait_for_verification_have_a_separate_queue_budget(protocol: int) -> None:
    """Waiting and queued appends have separate budgets: with a shared one, the coordinator's own appends could wait for
    room forever, behind the batches that wait for the coordinator."""
    chosen = options(queue_max_bytes=1_000)
    async with running(SimulatedFileSystem(), chosen) as store:
        log, asked = await open_orders(store), Asked(protocol)
        waiting = send(log, asked, (7, 0, 0), size=900)
        with pytest.raises(Overloaded):
            send(log, asked, (8, 0, 0), size=900)
        await store.wait_for_room()
        batch = build_batch([Record(b"k", bytes(900), NOW_MS)])
        assert await outcome_of(log.append(memoryview(batch), acks=-1)) == 0
        asked.futures[0].settle(NotEnoughReplicas("x"))
        assert isinstance(await outcome_of(waiting), NotEnoughReplicas)
        assert used_bytes(store) == 0
        assert await begin(log, asked, (8, 0, 0)) == 1
        await trio.testing.wait_all_tasks_blocked()
        assert used_bytes(store) == 0


@BOTH
async def test_records_are_examined_once_they_are_allowed(protocol: int) -> None:
    config = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store, config), Asked(protocol)
        pending = [send(log, asked, (7, 0, sequence)) for sequence in range(3)]
        for future in asked.futures:
            future.settle()
        assert [await outcome_of(one) for one in pending] == [0, 1, 2]
        assert used_bytes(store) == 0


@pytest.mark.parametrize("has_permission", [False, True])
async def test_a_first_protocol_marker_refuses_a_late_batch_of_the_second_protocol(*, has_permission: bool) -> None:
    """Marker and batch have the same producer epoch: a transaction that began behind the marker would hang."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(SECOND_PROTOCOL)
        if not has_permission:
            await begin(log, asked, (7, 0, 0))
        ending = log.end_transaction(Marker(7, 0, 0, Outcome.COMMIT, FIRST_PROTOCOL))
        late = send(log, asked, (7, 0, 1 - has_permission))
        await ending.wait()
        asked.futures[-1].settle()
        assert isinstance(await outcome_of(late), InvalidTxnState)
        assert log.last_stable_offset == log.log_end_offset


async def test_a_marker_that_is_written_again_takes_nothing_from_the_next_transaction() -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(SECOND_PROTOCOL)
        await begin(log, asked, (7, 0, 0))
        await end(log, SECOND_PROTOCOL)
        following = send(log, asked, (7, 1, 0))
        await end(log, SECOND_PROTOCOL)
        asked.futures[-1].settle()
        assert await outcome_of(following) == 3


async def test_an_unverified_batch_waits_behind_a_batch_that_waits_for_verification() -> None:
    """Verification is switched off while a batch waits for its verification."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(FIRST_PROTOCOL)
        first = send(log, asked, (7, 0, 0))
        believed = Asked(FIRST_PROTOCOL, is_enforced=False)
        second = send(log, believed, (7, 0, 1))
        believed.futures[0].settle()
        asked.futures[0].settle()
        assert [await outcome_of(first), await outcome_of(second)] == [0, 1]
        await end(log, FIRST_PROTOCOL)
        late = send(log, believed, (7, 0, 2))
        await end(log, FIRST_PROTOCOL)
        believed.futures[-1].settle()
        assert await outcome_of(late) == 4, "nobody looks whether its transaction is over"


@BOTH
async def test_a_producer_that_is_forgotten_meanwhile(protocol: int) -> None:
    """No marker came, so the verification still counts."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        await begin(log, asked, (7, 0, 0))
        await end(log, protocol)
        epoch = int(protocol == SECOND_PROTOCOL)
        following = send(log, asked, (7, epoch, 1 - epoch))
        assert isinstance(log, Partition)
        log.log.producers.expire(2**62)
        asked.futures[-1].settle()
        assert await outcome_of(following) == 2


@BOTH
async def test_nothing_passes_for_a_beginning_when_another_leadership_begins(protocol: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(protocol)
        first = send(log, asked, (7, 0, 0))
        assert isinstance(log, Partition)
        log.lead(LogConfig(), 1)
        asked.futures[0].settle()
        assert isinstance(await outcome_of(first), NotLeaderOrFollower)
        second = send(log, asked, (7, 0, 1))
        asked.futures[-1].settle()
        assert isinstance(await outcome_of(second), OutOfOrderSequence)
        assert await begin(log, asked, (7, 0, 0)) == 0


async def test_a_refused_first_batch_is_remembered_until_the_second_expiry_of_producers() -> None:
    """The first search for expired producers keeps it, however soon that runs."""
    async with running(SimulatedFileSystem()) as store:
        log, asked = await open_orders(store), Asked(FIRST_PROTOCOL)
        assert isinstance(log, Partition)
        refused = send(log, asked, (7, 0, 0))
        asked.futures[0].settle(NotEnoughReplicas("its coordinator is away"))
        await outcome_of(refused)
        log.log.producers.expire(0)
        assert isinstance(await outcome_of(allowed(log, asked, (7, 0, 1))), OutOfOrderSequence)
        log.log.producers.expire(0)
        assert await outcome_of(allowed(log, asked, (7, 0, 1))) == 0, "nobody knows better any more"


def allowed(log: PartitionLog, asked: Asked, producer: tuple[int, int, int]) -> PendingAppend:
    pending = send(log, asked, producer)
    asked.futures[-1].settle()
    return pending
