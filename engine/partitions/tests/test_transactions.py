"""Transactions in a partition: begin and end, the last stable offset, and the state after a crash."""

import dataclasses
import random
from collections.abc import Sequence

import pytest
import trio.testing

from engine.api import (
    SECOND_PROTOCOL,
    AbortedTransaction,
    Isolation,
    Marker,
    OffsetSpec,
    Outcome,
    PendingAppend,
)
from engine.compaction.cleaning_pass import CleanerOptions
from engine.errors import (
    CorruptMessage,
    EngineError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from engine.log_config import FlushPolicy, LogConfig
from engine.logs.producers import state
from engine.logs.segments.footer import footer_name, read_footer
from engine.logs.transactions import aborted_indexes
from engine.logs.transactions.aborted import aborted_index_name
from engine.offline.repair import repair
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, HeldPool, batches_in, bytes_of, options, read, running
from testkit.transactional_logs import COMPACT, DIRECTORY, SMALL, append, end, now_ms, opened, send, values


async def refused(error: type[EngineError], pending: PendingAppend) -> None:
    with pytest.raises(error):
        await pending.wait()


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_lso_waits_for_durable_marker(is_power_cut: bool) -> None:
    """A commit batch with a marker crashes before its sync: no reader saw the records, and the transaction is open
    again after a power cut."""
    filesystem, pool = SimulatedFileSystem(), HeldPool()
    async with running(filesystem, pool=pool) as store:
        log = await opened(store)
        await append(log, b"taken back, perhaps", (7, 0, 0))
        pool.is_holding = True
        marker = log.end_transaction(Marker(7, 0, 0, Outcome.COMMIT))
        await trio.testing.wait_all_tasks_blocked()
        assert not marker.is_settled
        assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
        assert await values(log) == []
        if is_power_cut:
            filesystem.crash()
    async with running(filesystem) as store:
        log = await opened(store, epoch=1)
        if is_power_cut:
            assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
            await end(log, 7, Outcome.ABORT)
            assert await values(log) == []
        else:
            assert (log.log_end_offset, log.last_stable_offset) == (2, 2), "what was written is there after a kill"


async def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """A late marker of the second protocol (KIP-890) has the epoch of the next transaction. If no transaction is open,
    it may be a retry of the same marker (KAFKA-19999)."""
    async with running(SimulatedFileSystem()) as store:
        log = await opened(store)
        await append(log, b"of the first", (7, 3, 0))
        first = Marker(7, 4, 0, Outcome.COMMIT, SECOND_PROTOCOL)
        await refused(InvalidProducerEpoch, log.end_transaction(first._replace(producer_epoch=3)))
        for _ in range(2):
            await log.end_transaction(first).wait()
        await append(log, b"of the next", (7, 4, 0))
        await refused(InvalidProducerEpoch, log.end_transaction(first))
        assert log.last_stable_offset == 3
        assert await values(log) == [b"of the first"]
        await log.end_transaction(first._replace(producer_epoch=5)).wait()
        assert await values(log) == [b"of the first", b"of the next"]


async def test_a_marker_of_the_last_producer_epoch_ends_its_open_transaction() -> None:
    """No producer gets the last epoch, and a producer that has it cannot go on
    (ProducerAppendInfo.checkProducerEpoch)."""
    async with running(SimulatedFileSystem()) as store:
        log = await opened(store)
        await append(log, b"v", (7, 2**15 - 1, 0))
        await log.end_transaction(Marker(7, 2**15 - 1, 0, Outcome.ABORT, SECOND_PROTOCOL)).wait()
        assert log.last_stable_offset == 2


async def test_aborted_newer_key_compacted() -> None:
    """A key is committed, then aborted, then compacted: the committed record stays, the aborted one goes."""
    filesystem = SimulatedFileSystem()
    cleaner = CleanerOptions(backoff_ms=1000)
    chosen = dataclasses.replace(options(), cleaner=cleaner)
    async with running(filesystem, chosen, clock=now_ms) as store:
        log = await opened(store, COMPACT)
        await append(log, b"committed", (7, 0, 0), key=b"wanted")
        await end(log, 7, Outcome.COMMIT)
        await append(log, b"aborted", (7, 0, 1), key=b"wanted")
        marker = await end(log, 7, Outcome.ABORT)
        for number in range(8):
            await append(log, b"%d" % number, key=b"other")
        await trio.sleep(5)
        assert log.log.compacted_to > marker
        assert (await values(log))[0] == b"committed"
        assert b"aborted" not in filesystem.content(log.log.path_of(0))
        before = await markers_in(log)
        assert marker in before, "whoever has read the beginning has to meet it"
        for number in range(8):
            await append(log, b"%d" % number, key=b"other")
        await trio.sleep(5)
        assert marker in await markers_in(log), "it has a delete horizon now"
        await trio.sleep(61)
        for number in range(8):
            await append(log, b"%d" % number, key=b"other")
        await trio.sleep(5)
        assert marker not in await markers_in(log) or marker == log.log.producers.get(7).last_offset  # type: ignore[union-attr]
        assert (await values(log))[0] == b"committed"


async def markers_in(log: Partition) -> Sequence[int]:
    found, offset = list[int](), 0
    while offset < log.high_watermark:
        for header, records in batches_in(bytes_of((await read(log, offset)).records)):
            found += [header.base_offset] if header.is_control and records else []
            offset = header.next_offset
    return found


async def test_misplaced_batches_and_markers_of_transactions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await opened(store)
        await append(log, b"begins", (7, 3, 0))
        await refused(InvalidTxnState, send(log, b"outside of it", (7, 3, 1), plain=True))
        await refused(InvalidProducerEpoch, log.end_transaction(Marker(7, 2, 5, Outcome.COMMIT)))
        await end(log, 7, Outcome.ABORT, epoch=4, coordinator_epoch=5)
        await refused(InvalidProducerEpoch, send(log, b"of a producer that was fenced", (7, 3, 1)))
        await refused(TransactionCoordinatorFenced, log.end_transaction(Marker(7, 4, 4, Outcome.ABORT)))
        await refused(OutOfOrderSequence, send(log, b"does not begin the epoch", (7, 4, 1)))
        assert log.last_stable_offset == log.log_end_offset == 2
        assert await end(log, 7, Outcome.ABORT, epoch=4, coordinator_epoch=5) == 2, "a marker may come again"
        assert log.log.aborted.active == [AbortedTransaction(7, 0, 1, 2)], "and aborts nothing then"
        monkeypatch.setattr(state, "OPEN_MAX", 1)
        await append(log, b"begins", (7, 4, 0))
        for number in (8, 9):
            await refused(InvalidTxnState, send(log, b"one too many", (number, 0, 0)))
        await append(log, b"goes on", (7, 4, 1))


async def test_open_transactions_neither_expire_nor_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PRODUCERS_MAX", 1)
    async with running(SimulatedFileSystem()) as store:
        log = await opened(store)
        await append(log, b"open", (7, 0, 0))
        for number in (8, 9):
            await append(log, b"plain", (number, 0, 0), plain=True)
        assert [producer_id for producer_id, _ in log.log.producers] == [7]
        log.log.producers.expire(NOW_MS + 1)
        assert [producer_id for producer_id, _ in log.log.producers] == [7]


async def test_a_commit_marker_is_durable_in_an_async_topic() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store, LogConfig(flush_policy=FlushPolicy.ASYNC))
        await append(log, b"committed", (7, 0, 0))
        await end(log, 7, Outcome.COMMIT)
        filesystem.crash()
    async with running(filesystem) as store:
        log = await opened(store, epoch=1)
        assert await values(log) == [b"committed"]


async def test_a_transaction_from_below_the_log_start_on() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await opened(store)
        await append(log, b"open", (7, 0, 0))
        await append(log, b"plain")
        await log.delete_records(1)
        assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 2)
        latest = await log.offset_for_timestamp(OffsetSpec.LATEST, Isolation.READ_COMMITTED)
        assert latest.offset == 1
        assert await values(log, 1) == []
        await end(log, 7, Outcome.ABORT)
        assert await values(log, 1) == [b"plain"]


async def test_a_segment_rolls_when_its_aborted_index_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_indexes, "ENTRIES_MAX", 2)
    async with running(SimulatedFileSystem()) as store:
        log = await opened(store)
        for number in range(5):
            await append(log, b"taken back", (7, 0, number))
            await end(log, 7, Outcome.ABORT)
        await append(log, b"there")
        assert [one.base_offset for one in log.log.segments] == [0, 4, 8]
        assert await values(log) == [b"there"]


async def filled(filesystem: SimulatedFileSystem) -> None:
    """Fill several segments; aborted transactions reach from one into the next."""
    async with running(filesystem) as store:
        log = await opened(store, SMALL)
        for number in range(10):
            await append(log, b"taken back %d" % number, (7, 0, number))
            await append(log, b"there %d" % number, (8, 0, number))
            if number % 3 == 2:
                await end(log, 7, Outcome.ABORT)
                await end(log, 8, Outcome.COMMIT)
        await end(log, 7, Outcome.ABORT)
        await end(log, 8, Outcome.COMMIT)
        await trio.sleep(100)
        await store.close()


THERE = [b"there %d" % number for number in range(10)]


async def test_a_footer_lists_the_aborted_transactions_of_its_segment() -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    async with running(filesystem) as store:
        log = await opened(store, SMALL, 1)
        sealed = [one for one in log.log.segments if one.is_sealed]
        assert len(sealed) > 3
        aborted = {(7, 0, 6), (7, 8, 14), (7, 16, 22), (7, 24, 26)}
        for one in sealed:
            touching = {each for each in aborted if each[1] < one.end_offset and each[2] >= one.base_offset}
            listed = read_footer(filesystem, DIRECTORY, one.base_offset).aborted
            assert list(listed) == sorted(touching)
        assert await values(log) == THERE


@pytest.mark.parametrize("has_footer", [True, False])
async def test_an_index_that_is_damaged(has_footer: bool) -> None:
    """The footer has the same content. Without it, no record that may be aborted is returned until the repair."""
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    indexes = [name for name in filesystem.list_dir(DIRECTORY) if name.endswith(".txnindex")]
    base_offset = int(indexes[0].partition(".")[0])
    assert indexes[0] == aborted_index_name(base_offset)
    filesystem.open(f"{DIRECTORY}/{indexes[0]}").write_at([b"\xff"], 0)
    if not has_footer:
        filesystem.unlink(f"{DIRECTORY}/{footer_name(base_offset)}")
        problems: list[str] = []
        async with running(filesystem, problems=problems) as store:
            log = await opened(store, SMALL, 1)
            with pytest.raises(CorruptMessage):
                await values(log)
            assert len(await log.offset_for_timestamp(0, Isolation.READ_UNCOMMITTED)) == 3
            await store.close()
        outcome = repair(filesystem, "/data")
        assert outcome.unrepaired == []
        assert any(indexes[0] in line for line in outcome.done)
    async with running(filesystem) as store:
        log = await opened(store, SMALL, 2)
        assert await values(log) == THERE


@pytest.mark.parametrize("seed", range(3))
async def test_a_crash_loses_no_index(seed: int) -> None:
    filesystem = SimulatedFileSystem()
    await filled(filesystem)
    async with running(filesystem) as store:
        log = await opened(store, SMALL, 1)
        for number in range(10, 13):
            await append(log, b"taken back", (7, 0, number))
        await end(log, 7, Outcome.ABORT)
        filesystem.crash(random.Random(seed))
    async with running(filesystem) as store:
        log = await opened(store, SMALL, 2)
        assert await values(log) == THERE
        assert log.last_stable_offset == log.log_end_offset
