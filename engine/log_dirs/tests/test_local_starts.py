"""Cold segments: reads of a log give the same results as with local files."""

import errno
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import trio

from engine.api import Isolation, OffsetSpec, RecordFilter
from engine.batches.batch import Record, build_batch
from engine.commit.journal_format import Barrier, BarrierKind
from engine.errors import ColdNotLoaded, CorruptMessage, NotLoaded, OffsetOutOfRange, StorageError, TierUnreachable
from engine.log_config import CleanupPolicy, LogConfig
from engine.log_dirs.local_starts import move_local_start, note_tiered
from engine.logs.producers.snapshot import read_snapshot, snapshot_name, snapshot_offsets
from engine.logs.recovery.checkpoints import key_of, read_checkpoint
from engine.logs.segments.segment import segment_name
from engine.offline.repair import repair
from engine.partitions.partition import Partition
from engine.stats import Reason
from engine.testing.simulated_disk import Fault
from engine.upkeep.retention_task import RetentionOptions, RetentionTask
from testkit.cold_logs import COUNT, DIRECTORY, EVERYTHING, ROLLING, Broker, everything_of, lived
from testkit.logs import NOW_MS, ORDERS, append, open_orders, read, read_all, running


@pytest.mark.parametrize("segments", [1, 3, -1])
async def test_reads_of_cold_segments_return_the_same_as_reads_of_local_files(segments: int) -> None:
    broker, full = await lived()
    async with broker.life() as log:
        offset = await broker.drop(segments)
        assert broker.files()[0] == offset
        assert await everything_of(log) == full
        broker.filesystem.drop_cache()
        broker.tier.forget()
        assert await everything_of(log) == full
    assert broker.problems == []


@pytest.mark.parametrize("end", ["clean", "killed", "power cut"])
async def test_nor_after_a_restart(end: str) -> None:
    broker, full = await lived()
    async with broker.life(is_clean=end == "clean"):
        offset = await broker.drop(3)
    if end == "power cut":
        broker.filesystem.crash(random.Random(1))
    async with broker.life() as log:
        assert log.log.local_start_offset == offset
        assert await everything_of(log) == full
    assert broker.problems == []


async def test_a_second_move_goes_on_where_the_first_has_ended() -> None:
    broker, full = await lived()
    async with broker.life() as log:
        await broker.drop(1)
        await broker.drop(2)
        offset = log.log.local_start_offset
        await move_local_start(log.log_dir, log, offset)
        assert (log.log.local_start_offset, broker.files()[0]) == (offset, offset)
        assert len(log.log.cold.segments) == 3
        assert await everything_of(log) == full


async def test_cold_segments_missing_in_a_lost_index_are_learned_from_the_tier() -> None:
    broker, full = await lived()
    async with broker.life():
        offset = await broker.drop(3)
    broker.lose_index()
    broker.config = replace(broker.config, retention_ms=0)
    async with broker.life() as log:
        with pytest.raises(TierUnreachable, match="not known"):
            await read(log, 0)
        with pytest.raises(TierUnreachable, match="not known"):
            await log.offset_for_timestamp(NOW_MS, EVERYTHING)
        await RetentionTask(log.log_dir, RetentionOptions(), lambda: 2 * NOW_MS).check()
        assert log.log_start_offset == 0, "nobody can tell how old the log is"
        assert min([one async for one in values_from(log, offset)]) == offset
        summaries = broker.tier.summaries_of(ORDERS)
        without_first = {base: one for base, one in summaries.items() if base}
        of_others = {**summaries, 0: summaries[0]._replace(leader_epoch=5)}
        for wrong in ({}, without_first, of_others):
            assert not log.log.know_cold(wrong)
        assert log.log.know_cold(summaries)
        assert await everything_of(log) == full


async def values_from(log: Partition, offset: int) -> AsyncIterator[int]:
    while offset < log.high_watermark:
        await read(log, offset)
        yield offset
        offset += 1


async def test_a_move_with_cold_segments_not_known_leaves_them_so() -> None:
    broker, full = await lived()
    async with broker.life():
        await broker.drop(2)
    broker.lose_index()
    async with broker.life() as log:
        await broker.drop(1)
        assert log.log.cold.segments == []
        assert log.log.know_cold(broker.tier.summaries_of(ORDERS))
        assert await everything_of(log) == full


async def test_a_tier_out_of_reach_costs_nothing_but_the_reads_of_it() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        offset = await broker.drop(3)
        broker.tier.is_unreachable = True
        for _ in range(2):
            with pytest.raises(TierUnreachable, match="cannot be reached"):
                await read(log, 0)
        with pytest.raises(TierUnreachable, match="cannot be reached"):
            await log.find_records(RecordFilter(b"key 1"), 0, 10)
        assert log.log_dir.disk.offline_reason is None
        await read(log, offset)
        assert (await append(log, b"v")).base_offset == COUNT
        broker.tier.is_unreachable = False
        await read(log, 0)
    assert broker.problems == []


async def test_a_cold_read_raises_cold_not_loaded_and_a_local_read_not_loaded() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        offset = await broker.drop(3)
        broker.filesystem.drop_cache()
        for isolation in Isolation:
            with pytest.raises(ColdNotLoaded):
                log.read(0, 1000, isolation, at_least_one=True)
            with pytest.raises(NotLoaded) as missing:
                log.read(offset, 1000, isolation, at_least_one=True)
            assert missing.type is NotLoaded


async def test_an_error_of_a_cold_file_is_not_the_disks() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(3)
        await read(log, 0)
        broker.tier.opened[-1].fails = True
        with pytest.raises(StorageError, match="cannot be read"):
            await read(log, 0)
        assert log.log_dir.disk.offline_reason is None


async def test_a_segment_missing_in_the_tier_is_no_damage_and_a_rotten_segment_is_logged() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(3)
        second = log.log.cold.segments[1].base_offset
        broker.tier.rot(ORDERS, second, 70)
        del broker.tier.segments[ORDERS.topic_id, ORDERS.partition, 0]
        with pytest.raises(StorageError, match="remote tier, is gone"):
            await read(log, 0)
        assert broker.problems == []
        for _ in range(2):
            with pytest.raises(CorruptMessage):
                await read(log, second)
        assert len(broker.problems) == 1
        assert "in the remote tier, is damaged" in broker.problems[0]
        await read(log, second + 1)


async def test_a_read_of_a_cold_segment_without_a_tier_raises_storage_error() -> None:
    broker, _ = await lived()
    async with broker.life():
        await broker.drop(3)
    async with running(broker.filesystem, problems=broker.problems) as store:
        log = await open_orders(store, ROLLING, broker.epoch)
        with pytest.raises(StorageError, match="this broker has none"):
            await read(log, 0)
        await store.close()
    async with broker.life() as log:
        assert min(await read_all(log)) == 0


async def test_list_offsets_knows_both_tiers() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        assert (await log.offset_for_timestamp(OffsetSpec.LATEST_TIERED, EVERYTHING)).offset == -1
        offset = await broker.drop(3)
        earliest_local = await log.offset_for_timestamp(OffsetSpec.EARLIEST_LOCAL, EVERYTHING)
        assert (earliest_local.offset, earliest_local.leader_epoch) == (offset, log.log.epochs.epoch_of(offset))
        assert (await log.offset_for_timestamp(OffsetSpec.EARLIEST, EVERYTHING)).offset == 0
        latest = await log.offset_for_timestamp(OffsetSpec.LATEST_TIERED, EVERYTHING)
        assert latest.offset == log.log.active.base_offset - 1
        pending = await log.offset_for_timestamp(OffsetSpec.EARLIEST_PENDING_UPLOAD, EVERYTHING)
        assert pending.offset == -1, "as the topic is configured nothing is"
        log._state.config = replace(log.config, remote_storage=True)
        pending = await log.offset_for_timestamp(OffsetSpec.EARLIEST_PENDING_UPLOAD, EVERYTHING)
        assert pending.offset == latest.offset + 1
        await log.delete_records(COUNT - 1)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
            assert (await log.offset_for_timestamp(spec, EVERYTHING)).offset == COUNT - 1


async def test_a_move_of_the_local_start_beyond_the_tier_or_into_a_segment_is_refused() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        second, third = (segment.base_offset for segment in log.log.segments[1:3])
        with pytest.raises(OffsetOutOfRange, match="up to offset None"):
            await move_local_start(log.log_dir, log, second)
        note_tiered(log.log_dir, log, second)
        with pytest.raises(OffsetOutOfRange, match="not to"):
            await move_local_start(log.log_dir, log, third)
        note_tiered(log.log_dir, log, third)
        with pytest.raises(OffsetOutOfRange, match="no segment"):
            await move_local_start(log.log_dir, log, third - 1)
        for wrong in (COUNT + 1, -1):
            with pytest.raises(OffsetOutOfRange):
                note_tiered(log.log_dir, log, wrong)
        assert broker.files()[0] == 0
        await broker.store.delete_partitions([ORDERS])
        with pytest.raises(StorageError, match="not open"):
            await move_local_start(log.log_dir, log, second)


async def test_a_failed_checkpoint_leaves_the_local_start_and_the_files_unchanged() -> None:
    broker, full = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        await trio.sleep(3)
        broker.filesystem.faults.append(Fault("write", errno.ENOSPC, "checkpoint.tmp"))
        with pytest.raises(StorageError):
            await move_local_start(log.log_dir, log, log.log.segments[2].base_offset)
        assert (log.log.local_start_offset, broker.files()[0]) == (0, 0)
        assert log.log_dir.commit_log.points[key_of(ORDERS)].local_start_offset == 0
        assert await everything_of(log) == full
        assert await broker.drop(2) == log.log.local_start_offset > 0


# Producers


async def check_producers(broker: Broker, count: int = COUNT) -> None:
    """Assert that all producers can go on, and that their retries are duplicates."""
    for number in range(max(0, count - 10), count):
        batch = build_batch([Record(None, b"again", NOW_MS)], producer=(7 + number % 2, 0, number // 2))
        assert (await broker.log.append(memoryview(batch), acks=-1).wait()).base_offset == number
    await broker.fill(2, count)


@pytest.mark.parametrize("end", ["clean", "killed", "power cut"])
@pytest.mark.parametrize("others", ["kept", "lost"])
async def test_producers_are_known_by_the_snapshot_at_the_local_start(end: str, others: str) -> None:
    broker, _ = await lived()
    async with broker.life(is_clean=end == "clean"):
        offset = await broker.drop(-1)
    if end == "power cut":
        broker.filesystem.crash(random.Random(1))
    if others == "lost":
        for one in snapshot_offsets(broker.filesystem, DIRECTORY):
            if one != offset:
                broker.filesystem.unlink(f"{DIRECTORY}/{snapshot_name(one)}")
    async with broker.life():
        await check_producers(broker)


async def test_a_snapshot_is_made_from_the_log_where_there_is_none() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        offset = log.log.segments[2].base_offset
        assert offset not in snapshot_offsets(broker.filesystem, DIRECTORY), (
            "only the last ones are kept without a tier"
        )
        await broker.drop(2)
        table = dict(read_snapshot(broker.filesystem, DIRECTORY, offset).producers)
        assert {one.batches[-1].last_offset for one in table.values()} == {offset - 1, offset - 2}


async def test_no_producers_is_written_down_too() -> None:
    broker = Broker(LogConfig(segment_size_bytes=200))
    async with broker.life() as log:
        note_tiered(log.log_dir, log, 0)
        for _ in range(8):
            await append(log, b"v" * 50)
        bases = [segment.base_offset for segment in log.log.segments]
        assert snapshot_offsets(broker.filesystem, DIRECTORY) == bases[1:], "each goes to the tier with its segment"
        assert read_snapshot(broker.filesystem, DIRECTORY, bases[1]).is_empty
        offset = await broker.drop(2)
        await append(log, b"v" * 100)
        assert snapshot_offsets(broker.filesystem, DIRECTORY)[0] == offset, "nobody asks for older ones"


async def rotten_snapshots(segments: int) -> tuple[Broker, int]:
    """A broker with damaged producer snapshots, and the offset where its files begin."""
    broker, _ = await lived()
    async with broker.life():
        offset = await broker.drop(segments)
    broker.rot_snapshots()
    return broker, offset


async def test_a_damaged_snapshot_keeps_the_files_behind_it_and_is_logged() -> None:
    broker, offset = await rotten_snapshots(-2)
    async with broker.life():
        assert any(f"below offset {offset} are not known" in one for one in broker.problems)
        with pytest.raises(CorruptMessage, match="are not known"):
            await broker.drop(1)
        assert broker.files()[0] == offset


async def test_a_snapshot_that_is_damaged_does_not_matter_once_all_producers_went_on() -> None:
    broker, _ = await rotten_snapshots(1)
    async with broker.life():
        assert not any("is not known" in one for one in broker.problems)
        await broker.drop(1)
    async with broker.life():
        await check_producers(broker)


async def test_a_batch_that_cannot_be_read_keeps_its_file() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        broker.filesystem.faults.append(Fault("read", errno.EIO, segment_name(0)))
        with pytest.raises(CorruptMessage):
            await move_local_start(log.log_dir, log, log.log.segments[1].base_offset)
        assert (broker.files()[0], log.log_dir.disk.offline_reason) == (0, None)


# Truncation


async def test_a_log_is_not_truncated_below_its_local_start() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        offset = await broker.drop(3)
        with pytest.raises(OffsetOutOfRange, match="local start"):
            await broker.store.truncate_partition(ORDERS, offset - 1, below_sealed=True)
        assert await broker.store.truncate_partition(ORDERS, offset, below_sealed=True) == offset
        assert log.log.tiered_to == offset, "the tier has more, but not of this log"
        assert max(await read_all(log)) == offset - 1
        await check_producers(broker, offset)
    async with broker.life() as log:
        assert max(await read_all(log)) == offset + 1
        assert min(await read_all(log)) == 0


async def test_a_log_that_is_reset_has_nothing_in_the_tier() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        await broker.drop(3)
        await broker.store.reset_partition(ORDERS, 5)
        assert (log.log.cold.segments, log.log.tiered_to, log.log.local_start_offset) == ([], None, 5)
    point = read_checkpoint(broker.filesystem, "/data").partitions[key_of(ORDERS)]
    assert (point.local_start_offset, point.tiered_to) == (0, 0)
    async with broker.life() as log:
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert await read_all(log) == {}


# Retention


def check(broker: Broker, now_ms: int) -> RetentionTask:
    return RetentionTask(broker.log.log_dir, RetentionOptions(), lambda: now_ms)


async def test_records_of_cold_segments_are_deleted_as_others() -> None:
    broker, _ = await lived()
    async with broker.life() as log:
        offset = await broker.drop(3)
        second = log.log.cold.segments[1].base_offset
        assert await log.delete_records(second + 1) == second + 1
        assert log.log.cold.segments[0].base_offset == second
        assert min(await read_all(log)) == second + 1
        await log.delete_records(offset + 1)
        assert log.log.cold.segments == []
        assert broker.files()[0] == offset
    async with broker.life() as log:
        assert log.log_start_offset == log.log.local_start_offset == offset + 1


async def test_retention_by_time_and_size_sees_both_tiers() -> None:
    broker, _ = await lived()
    broker.config = replace(ROLLING, retention_ms=1000)
    async with broker.life() as log:
        await broker.drop(3)
        first, second, *_ = log.log.cold.segments
        await check(broker, NOW_MS + (first.end_offset - 1) * 10 + 1001).check()
        assert log.log_start_offset == second.base_offset
        log._state.config = replace(
            ROLLING, retention_size_bytes=sum(one.size_bytes for one in log.log.all_segments[1:])
        )
        await check(broker, NOW_MS).check()
        assert log.log_start_offset == second.end_offset
        removed = broker.store.stats.removed_segments
        assert (removed[Reason.TIME], removed[Reason.SIZE]) == (1, 1)
        assert broker.files()[0] == log.log.local_start_offset


@pytest.mark.parametrize("is_led", [True, False])
async def test_a_full_disk_costs_files_and_no_records_of_a_log_in_the_tier(*, is_led: bool) -> None:
    broker, full = await lived()
    async with broker.life() as log:
        broker.tier.upload(broker.filesystem, log)
        note_tiered(log.log_dir, log, log.log.segments[2].base_offset)
        if not is_led:
            log.follow(broker.config, broker.epoch)
        broker.filesystem.capacity_bytes = broker.filesystem.usage("/data").used_bytes
        keeper = RetentionTask(log.log_dir, RetentionOptions(disk_max_used_ratio=0.1), lambda: NOW_MS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.watch_space)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert log.log.local_start_offset == log.log.tiered_to
        log.lead(broker.config, broker.epoch + 1)
        assert await everything_of(log) == full


async def test_a_compacted_log_with_cold_segments_is_left_alone() -> None:
    broker, _ = await lived()
    policy = frozenset({CleanupPolicy.COMPACT})
    broker.config = replace(ROLLING, cleanup_policy=policy, min_cleanable_dirty_ratio=0.01)
    async with broker.life() as log:
        await broker.drop(1)
        await trio.sleep(100)
        assert log.log.compacted_to == 0
        await log.delete_records(log.log.local_start_offset)
        await trio.sleep(100)
        assert log.log.compacted_to > 0


# Starts and repairs


async def test_a_missing_first_file_is_damage_all_the_same() -> None:
    broker, _ = await lived()
    async with broker.life():
        offset = await broker.drop(3)
        broker.filesystem.unlink(f"{DIRECTORY}/{segment_name(offset)}")
    async with broker.life(is_clean=False) as log:
        assert log.log.damaged_from == offset
        assert any("is damaged from offset" in one for one in broker.problems)


@pytest.mark.parametrize("is_tiered", [True, False])
async def test_repair_gives_no_tier_up(is_tiered: bool) -> None:
    broker, full = await lived()
    async with broker.life() as log:
        await broker.drop(1)
        lost, after = (segment.base_offset for segment in log.log.segments[:2])
        note_tiered(log.log_dir, log, after if is_tiered else lost)
    broker.filesystem.unlink(f"{DIRECTORY}/{segment_name(lost)}")
    outcome = repair(broker.filesystem, "/data", accept_loss=not is_tiered)
    async with broker.life(is_clean=False) as log:
        assert log.log_start_offset == 0
        if is_tiered:
            assert outcome.unrepaired == []
            assert log.log.local_start_offset == after
            assert log.log.know_cold(broker.tier.summaries_of(ORDERS))
            assert await everything_of(log) == full
        else:
            assert any("the remote tier ends before it" in one for one in outcome.unrepaired)
            assert log.log.damaged_from == lost


async def test_files_set_aside_are_not_those_of_a_log_that_was_reset_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reset comes between the barrier of the log start and the work on the files."""
    broker, _ = await lived()
    async with broker.life() as log:
        first, second = log.log.segments[0].base_offset, log.log.segments[1].base_offset
        announce = log.log_dir.commit_log.announce
        asked = trio.Event()

        async def noting_announce(barriers: Sequence[Barrier]) -> None:
            await announce(barriers)
            if barriers[0].kind is BarrierKind.LOG_START:
                asked.set()

        async def reset() -> None:
            await asked.wait()
            await broker.store.reset_partition(ORDERS, second)

        monkeypatch.setattr(log.log_dir.commit_log, "announce", noting_announce)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reset)
            await log.delete_records(log.log.segments[2].base_offset)
        assert first not in broker.files()
        assert broker.files() == [second]
        await append(log, b"v")
    async with broker.life() as log:
        assert await read_all(log) == {second: b"v"}
        assert log.log.damaged_from is None
