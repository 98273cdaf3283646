"""Offsets in transactions, on a shard: when they are durable, and when a cache and a restart have them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.errors import (
    CoordinatorError,
    CoordinatorLoading,
    NotCoordinator,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
)
from coordinator.groups.api import OffsetToCommit
from coordinator.groups.service import Table
from coordinator.groups.tests.answers import result_of
from coordinator.groups.tests.test_shard import NO_MEMBER, Bench, commit, offset_of
from coordinator.shards.shard import RELOAD_PAUSE_S, ReplyFuture, Shard
from coordinator.shards.writer import CacheMode, WriteBatch
from coordinator.state.log import SECOND_PROTOCOL, StateMarker, StateProducer, StateSlice
from coordinator.testing.fakes import FakeStateLog, FakeWrite

P = StateProducer(1, 3)


class StallingLog(FakeStateLog):
    """A log in which a read from `stalls_at` does not end."""

    stalls_at = -1

    async def read(self, offset: int) -> StateSlice:
        if offset == self.stalls_at:
            await trio.sleep_forever()
        return await super().read(offset)


def pend(shard: Shard[Table], offset: int, producer: StateProducer = P) -> ReplyFuture:
    offsets = [OffsetToCommit("t", 0, offset, -1, "")]
    return shard.ask_about(
        producer,
        lambda table, moment, future: table.offsets.commit_in_transaction(
            moment, "g", NO_MEMBER, producer, offsets, future
        ),
    )


def end(
    shard: Shard[Table], producer: StateProducer = P, *, is_commit: bool = True, coordinator_epoch: int = 0
) -> ReplyFuture:
    return end_by_marker(shard, StateMarker(*producer, coordinator_epoch, is_commit))


def end_by_marker(shard: Shard[Table], marker: StateMarker) -> ReplyFuture:
    return shard.ask_about(marker, lambda table, _, future: table.offsets.end_transaction(marker, future))


def fetch(shard: Shard[Table]) -> ReplyFuture:
    return shard.ask(
        lambda table, _, future: table.offsets.fetch_offsets("g", [("t", [0])], future, require_stable=True)
    )


def is_unstable(future: ReplyFuture) -> bool:
    found = future.result()
    assert isinstance(found, list)
    return isinstance(found[0], CoordinatorError)


def error_of(future: ReplyFuture) -> type[CoordinatorError]:
    with pytest.raises(CoordinatorError) as caught:
        future.result()
    return caught.type


@pytest.mark.parametrize("mode", CacheMode)
@pytest.mark.parametrize("is_commit", [False, True])
async def test_a_pending_offset_survives_the_view(mode: CacheMode, *, is_commit: bool) -> None:
    """Named case 2: pended, cache saved, killed, restarted, aborted: the old offset is back."""
    bench = Bench(mode=mode)
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(pend(shard, 5))
        await result_of(commit(shard, 9, group="another"))
        if mode is CacheMode.CACHED:
            await bench.save(shard)
    assert await bench.saved_to() == 3
    bench.log.reads.clear()
    async with bench.running() as shard:
        assert bench.log.reads[0] == 1  # from the transaction that is open on
        assert is_unstable(fetch(shard))
        await result_of(end(shard, is_commit=is_commit))
        assert offset_of(fetch(shard)) == (5 if is_commit else 1)
        if mode is CacheMode.CACHED:
            await bench.save(shard)
    bench.log.reads.clear()
    async with bench.running() as shard:
        assert bench.log.reads == []  # all of it is in the view
        assert offset_of(fetch(shard)) == (5 if is_commit else 1)


async def test_a_view_saved_while_the_log_is_read_leaves_out_no_transaction_that_was_open_there() -> None:
    """The log has the marker by then, so that its last stable offset is behind the transaction."""
    bench = Bench(log=(log := StallingLog()))
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(pend(shard, 5))
        await result_of(commit(shard, 9, group="another"))
        await result_of(end(shard))
    log.stalls_at = 3
    async with bench.running() as shard:
        assert not shard.is_loaded
        await bench.save(shard)
    assert await bench.saved_to() == 3
    log.stalls_at = -1
    async with bench.running() as shard:
        assert offset_of(fetch(shard)) == 5


async def test_an_offset_that_a_marker_commits_is_fetched_when_the_marker_is_durable() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(pend(shard, 5))
        bench.log.is_slow = True
        ending, fetching = end(shard), fetch(shard)
        await wait_all_tasks_blocked()
        assert (ending.is_settled, fetching.is_settled) == (False, False)
        bench.log.sync()
        await wait_all_tasks_blocked()
        assert ending.result() is None
        assert offset_of(fetching) == 5


async def test_a_marker_that_is_lost_has_changed_nothing() -> None:
    bench = Bench()
    async with bench.running() as shard:
        await result_of(commit(shard, 1))
        await result_of(pend(shard, 5))
        bench.log.is_slow = True
        ending = end(shard)
        await wait_all_tasks_blocked()
        bench.log.fail()
        await wait_all_tasks_blocked()
        assert error_of(ending) is NotCoordinator
        bench.log.is_slow = False
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert is_unstable(fetch(shard))
        await result_of(end(shard, is_commit=False))
        assert offset_of(fetch(shard)) == 1


async def test_batches_are_in_the_log_as_they_were_asked_for() -> None:
    bench = Bench()
    async with bench.running() as shard:
        bench.log.is_slow = True
        commit(shard, 1)
        await wait_all_tasks_blocked()
        commit(shard, 2)
        pend(shard, 3)
        pend(shard, 4, StateProducer(2, 0))
        commit(shard, 5)
        commit(shard, 6)
        end(shard)
        bench.log.sync()
        await wait_all_tasks_blocked()
        shown = [(len(one.records), one.transaction and one.transaction.producer_id) for one in bench.log.batches]
        assert shown == [(1, None), (1, None), (1, 1), (1, 2), (2, None), (0, 1)]


@pytest.mark.parametrize("is_durable", [False, True])
async def test_an_older_epoch_is_refused_before_anything_is_written(*, is_durable: bool) -> None:
    """The log must not refuse it itself: then the whole partition would be read anew."""
    bench = Bench()
    async with bench.running() as shard:
        bench.log.is_slow = not is_durable
        pend(shard, 5)
        await wait_all_tasks_blocked()
        pend(shard, 6, StateProducer(1, 4))
        if is_durable:
            await wait_all_tasks_blocked()
        for refused in (pend(shard, 7), end(shard)):
            assert error_of(refused) is StaleProducerEpoch
        for _ in range(2):
            await wait_all_tasks_blocked()
            bench.log.sync()
        assert shard.is_loaded
        assert len(bench.log.records) == 2


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_late_marker_does_not_end_the_transaction_that_began_in_its_epoch(*, is_durable: bool) -> None:
    """The marker's transaction was the one before (KIP-890). With nothing open it may be a second try of the same."""
    bench = Bench()
    async with bench.running() as shard:
        bench.log.is_slow = not is_durable
        first = StateMarker(1, 4, 0, is_commit=True, protocol=SECOND_PROTOCOL)
        pend(shard, 5, StateProducer(1, 3))
        end_by_marker(shard, first)
        if is_durable:
            await wait_all_tasks_blocked()
        again = end_by_marker(shard, first)
        pend(shard, 6, StateProducer(1, 4))
        if is_durable:
            await wait_all_tasks_blocked()
        assert error_of(end_by_marker(shard, first)) is StaleProducerEpoch
        end_by_marker(shard, StateMarker(1, 5, 0, is_commit=False, protocol=SECOND_PROTOCOL))
        for _ in range(3):
            await wait_all_tasks_blocked()
            bench.log.sync()
        assert shard.is_loaded
        again.result()
        assert offset_of(fetch(shard)) == 5


@pytest.mark.parametrize("is_appended", [False, True])
async def test_an_older_coordinator_is_refused_before_anything_is_written(*, is_appended: bool) -> None:
    """The log judges only by its content; if it refused the marker, the whole partition would be read anew."""
    bench = Bench()
    bench.log.is_slow = True
    async with bench.running() as shard:
        first = end(shard, coordinator_epoch=7)
        if is_appended:
            await wait_all_tasks_blocked()
        assert error_of(end(shard, coordinator_epoch=3)) is TransactionCoordinatorFenced
        again = end(shard, coordinator_epoch=7)
        for _ in range(2):
            await wait_all_tasks_blocked()
            bench.log.sync()
        await wait_all_tasks_blocked()
        assert (first.result(), again.result()) == (None, None)
        assert shard.is_loaded
        assert len(bench.log.batches) == 2


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("early_count", range(4))
def test_a_round_is_settled_with_all_that_is_written_in_it(order: tuple[int, ...], early_count: int) -> None:
    """A batch that the log refuses is settled at once, though earlier appends are still on their way."""
    written, called = WriteBatch(), list[bool]()
    writes = [FakeWrite(StateMarker(*P, 0, is_commit=True), number + 1) for number in range(3)]
    written.pending += writes
    for number in order[:early_count]:
        writes[number].settle()
    written.call_when_settled(lambda: called.append(all(one.is_settled for one in writes)))
    for number in order[early_count:]:
        assert called == []
        writes[number].settle()
    assert called == [True]


async def test_transactional_requests_are_refused_with_loading_before_the_log_is_read() -> None:
    bench = Bench()
    bench.log.is_broken = True
    async with bench.running() as shard:
        assert error_of(pend(shard, 1)) is CoordinatorLoading
        assert error_of(end(shard)) is CoordinatorLoading


@pytest.mark.parametrize("ask", [lambda shard: pend(shard, 5), end])
async def test_a_log_that_cannot_return_its_producer_state_is_read_again(
    ask: Callable[[Shard[Table]], ReplyFuture],
) -> None:
    """The log dir has failed; simulation seed 43."""
    bench = Bench()
    async with bench.running() as shard:
        await wait_all_tasks_blocked()
        waiting = pend(shard, 4)
        bench.log.is_broken = True
        assert error_of(ask(shard)) is CoordinatorLoading
        assert error_of(waiting) is NotCoordinator
        assert not shard.is_loaded
        bench.log.is_broken = False
        bench.log.fail()
        await trio.sleep(RELOAD_PAUSE_S)
        await wait_all_tasks_blocked()
        assert shard.is_loaded
