"""A follower ends with its leader's bytes, also after crashes of either broker."""

import random
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from engine.api import AbortedTransaction, Following, Isolation, Leadership, Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, parse_header, stamp
from engine.commit.commit_log import CommitLog
from engine.compaction_horizon import Compacted
from engine.errors import CorruptMessage, NotLeaderOrFollower, OffsetOutOfRange
from engine.log_config import FlushPolicy, LogConfig
from engine.log_dirs.log_starts import move_log_starts
from engine.logs.recovery.checkpoints import PartitionCheckpoint, key_of, read_checkpoint
from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.logs.recovery.recovery import LastKnown
from engine.partitions.opening import Opening, opening_of
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.kept_batches import kept
from testkit.logs import (
    ORDERS,
    append,
    batch,
    batches_in,
    bytes_of,
    open_orders,
    options,
    read,
    read_all,
    running,
)
from testkit.replicas import SMALL, following, marker_at, others, stamped


async def test_only_a_leader_serves_clients_and_roles_change_both_ways() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await following(store, epoch=1)
        with pytest.raises(NotLeaderOrFollower):
            store.get(ORDERS)
        assert store.replica(ORDERS) is log
        assert not list(store.tierable())
        [led] = await store.open_partitions([Leadership(ORDERS, SMALL, 2)])
        assert led is log is store.get(ORDERS)
        await append(log, bytes(batch(b"a")))
        assert log.high_watermark == 1
        [followed] = await store.open_partitions([Following(ORDERS, SMALL, 3)])
        assert followed is log
        with pytest.raises(NotLeaderOrFollower):
            store.get(ORDERS)
        with pytest.raises(NotLeaderOrFollower):
            await append(log, bytes(batch(b"b")))


async def fetched(leader: Partition, offset: int, max_size_bytes: int) -> tuple[bytes, bool]:
    """Whole batches from one segment of the leader, and whether the first batch begins the segment."""
    found = bytes_of((await read(leader, offset, max_size_bytes)).records)
    whole = b"".join(found[at : at + size] for at, size in _batches(found))
    return whole, leader.log.segment_of(offset).base_offset == offset


def _batches(data: bytes) -> Sequence[tuple[int, int]]:
    found, position = [], 0
    for header, _ in batches_in(data):
        found.append((position, header.size_bytes))
        position += header.size_bytes
    return found


async def catch_up(follower: Partition, leader: Partition, max_size_bytes: int = 300) -> None:
    while follower.log_end_offset < leader.high_watermark:
        records, begins_segment = await fetched(leader, follower.log_end_offset, max_size_bytes)
        await follower.replicate(memoryview(bytearray(records)), begins_segment=begins_segment).wait()
        follower.note_leader(leader.high_watermark)


def segments_of(filesystem: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: content for path, content in filesystem.files().items() if path.endswith(".log") and content}


@pytest.mark.parametrize("seed", range(20))
async def test_a_follower_has_the_bytes_of_its_leader_after_crashes_of_either(seed: int) -> None:
    """Leader epochs change, segments roll by size and by config. A follower fetches again the records that a crash
    took."""
    rng = random.Random(seed)
    theirs, ours = SimulatedFileSystem(), SimulatedFileSystem()
    for epoch in range(4):
        config = LogConfig(segment_size_bytes=rng.choice((300, 700)))
        flush_policy = rng.choice(list(FlushPolicy))
        async with running(theirs) as leaders, running(ours) as followers:
            leader = await open_orders(leaders, config, epoch)
            assert isinstance(leader, Partition)
            mine = LogConfig(flush_policy=flush_policy)
            follower = await following(followers, mine, epoch)
            for _ in range(rng.randint(1, 12)):
                await append(leader, *[rng.randbytes(rng.randint(1, 60)) for _ in range(rng.randint(1, 3))])
                if rng.random() < 0.5:
                    await catch_up(follower, leader, rng.choice((200, 500, 5000)))
            if rng.random() < 0.3:
                await followers.close()
        if rng.random() < 0.7:
            ours.crash(rng)
        if rng.random() < 0.7:
            theirs.crash(rng)
    async with running(theirs) as leaders, running(ours) as followers:
        leader, follower = await open_orders(leaders, leader_epoch=4), await following(followers, epoch=4)
        assert isinstance(leader, Partition)
        await append(leader, b"in the epoch of now")
        await catch_up(follower, leader)
        assert await read_all(follower) == await read_all(leader)
        assert follower.log.epochs.below(2**62) == leader.log.epochs.below(2**62)
        await leaders.close()
        await followers.close()
    assert segments_of(ours) == segments_of(theirs)


async def test_control_batches_producers_and_several_epochs_in_one_fetch() -> None:
    filesystem = SimulatedFileSystem()
    sent = [
        stamped(0, 0, b"a", producer=(7, 0, 0)),
        stamped(1, 2, b"b", b"c", producer=(7, 0, 1)),
        stamped(3, 2, b"e", attributes=TRANSACTIONAL_BIT, producer=(7, 0, 3)),
        stamped(4, 5, b"d"),
        marker_at(5, 5, Marker(7, 0, 1, Outcome.ABORT)),
    ]
    async with running(filesystem) as store:
        follower = await following(store, epoch=5)
        await follower.replicate(memoryview(bytearray(b"".join(sent)))).wait()
        assert (follower.log_end_offset, follower.high_watermark) == (6, 0)
        follower.note_leader(4)
        assert (follower.high_watermark, follower.last_stable_offset) == (4, 3)
        follower.note_leader(5)
        assert (follower.high_watermark, follower.last_stable_offset) == (5, 3), "its end is not confirmed"
        follower.note_leader(6)
        assert (follower.high_watermark, follower.last_stable_offset) == (6, 6)
        assert follower.log.aborted.active == [AbortedTransaction(7, 3, 5, 6)]
        assert list(follower.log.epochs.below(9)) == [(0, 0), (2, 1), (5, 4)]
        known = follower.log.producers.get(7)
        assert known is not None
        assert (known.last_sequence, known.coordinator_epoch, known.transaction_from) == (3, 1, -1)
        assert segments_of(filesystem) == {"/data/orders-0/00000000000000000000.log": b"".join(sent)}
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=6)
        assert isinstance(log, Partition)
        assert (log.high_watermark, log.last_stable_offset) == (6, 6)
        assert log.log.aborted.active == [AbortedTransaction(7, 3, 5, 6)]
        assert len(await read_all(log)) == 6


@pytest.mark.parametrize("slot_size_bytes", [100, 20_000])
async def test_two_epochs_one_round(slot_size_bytes: int) -> None:
    """Small batches of epochs 6 and 8 in one response go to the journal. Both are back after a power cut."""
    filesystem, sent = SimulatedFileSystem(), stamped(0, 6, b"a") + stamped(1, 8, b"b")
    async with running(filesystem, options(journal_slot_size_bytes=slot_size_bytes)) as store:
        follower = await following(store, LogConfig(), epoch=8)
        await follower.replicate(memoryview(bytearray(sent))).wait()
    filesystem.crash()
    async with running(filesystem) as store:
        follower = await following(store, LogConfig(), epoch=9)
        assert await read_all_of(follower) == sent
        assert list(follower.log.epochs.below(9)) == [(6, 0), (8, 1)]
        assert follower.opening == Opening(8, 2, is_damaged=False, is_short=False, is_clean=False)


async def test_gap_then_power() -> None:
    """A follower copies a compacted log without offsets 37 to 89. A power cut after the sync does no damage."""
    filesystem, sent = SimulatedFileSystem(), stamped(30, 1, *[b"v"] * 7) + stamped(90, 2, b"w")
    async with running(filesystem) as store:
        follower = await following(store, LogConfig(), epoch=2)
        await follower.expect_gaps(91)
        await follower.replicate(memoryview(bytearray(sent))).wait()
    filesystem.crash()
    async with running(filesystem) as store:
        follower = await following(store, LogConfig(), epoch=3)
        assert await read_all_of(follower) == sent
        assert (follower.log_end_offset, follower.log.damaged_from) == (91, None)


async def test_a_log_that_ends_below_its_known_high_watermark_is_short() -> None:
    """A disk that loses synced records makes the log shorter than its known high watermark (RULES K18)."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store)
        await follower.replicate(memoryview(bytearray(stamped(0, 0, b"a") + stamped(1, 0, b"b")))).wait()
    for high_watermark, is_short in ((2, False), (3, True)):
        last_known = LastKnown(is_clean=False, checkpoint=PartitionCheckpoint(high_watermark=high_watermark))
        opening = opening_of(follower.log, last_known)
        assert opening == Opening(0, 2, is_damaged=False, is_short=is_short, is_clean=False)


async def test_records_that_do_not_continue_the_log_of_a_follower_are_refused() -> None:
    async with running(SimulatedFileSystem()) as store:
        follower = await following(store, epoch=3)
        await follower.replicate(memoryview(bytearray(stamped(0, 2, b"a")))).wait()
        for offset in (0, 2):
            with pytest.raises(OffsetOutOfRange):
                await follower.replicate(memoryview(bytearray(stamped(offset, 2, b"x")))).wait()
        for epoch in (1, 4):
            with pytest.raises(CorruptMessage, match="leader epoch"):
                await follower.replicate(memoryview(bytearray(stamped(1, epoch, b"x")))).wait()
        right = stamped(1, 2, b"x")
        for wrong in (b"", right[:-1], right + right[:30], right[:-1] + b"?"):
            with pytest.raises(CorruptMessage):
                follower.replicate(memoryview(bytearray(wrong)))
        assert follower.log_end_offset == 1


async def test_a_follower_takes_no_appends_and_a_leader_nothing_from_others() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await following(store)
        with pytest.raises(NotLeaderOrFollower):
            log.append(memoryview(batch(b"x")), acks=1)
        leader = await open_orders(store, leader_epoch=1)
        assert leader is log
        with pytest.raises(NotLeaderOrFollower):
            log.replicate(memoryview(bytearray(stamped(0, 1, b"x"))))
        assert (await append(leader, b"y")).base_offset == 0
        assert parse_header(bytes_of((await read(leader, 0)).records)).leader_epoch == 1


async def test_records_fetched_before_a_follower_became_the_leader_are_refused() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await following(store)
        committer = log.log_dir.commit_log.committer
        async with committer.between_commit_batches():
            pending = log.replicate(memoryview(bytearray(stamped(0, 0, b"x"))))
            log.lead(SMALL, 1)
        with pytest.raises(NotLeaderOrFollower):
            await pending.wait()
        assert log.log_end_offset == 0


async def test_only_client_appends_queued_before_a_leader_became_a_follower_are_refused() -> None:
    """A leader under load loses its session, and becomes a follower."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        async with log.log_dir.commit_log.committer.between_commit_batches():
            of_client = log.append(memoryview(batch(b"x")), acks=-1)
            log.follow(SMALL, 1)
            of_leader = log.replicate(memoryview(bytearray(stamped(0, 1, b"y"))))
        with pytest.raises(NotLeaderOrFollower):
            await of_client.wait()
        await of_leader.wait()
        assert parse_header(await read_all_of(log)).leader_epoch == 1


async def test_between_high_watermark_and_end_there_is_nothing_yet() -> None:
    """A new leader has a lower high watermark than the one that consumers have seen from the leader before it."""
    async with running(SimulatedFileSystem()) as store:
        log = await following(store)
        await log.replicate(
            memoryview(bytearray(stamped(0, 0, b"a") + stamped(1, 0, b"b") + stamped(2, 0, b"c")))
        ).wait()
        log.note_leader(1)
        async with log.log_dir.commit_log.committer.between_commit_batches():
            log.lead(SMALL, 1, others(1, 2))
        for offset in (1, 2, 3):
            found = log.read(offset, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
            assert (found.records, found.high_watermark) == ([], 1)
        with pytest.raises(OffsetOutOfRange):
            log.read(4, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)


async def test_a_gap_is_refused_where_none_is_expected() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, epoch=3)
        await follower.expect_gaps(10)
        checkpoint = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
        assert checkpoint.compacted_to == 10, "a start has to know of them first"
        await follower.replicate(memoryview(bytearray(stamped(3, 2, b"a") + stamped(9, 3, b"b")))).wait()
        with pytest.raises(OffsetOutOfRange):
            await follower.replicate(memoryview(bytearray(stamped(11, 3, b"c")))).wait()
        assert follower.log_end_offset == 10


async def test_a_gap_is_refused_until_a_start_knows_which_epochs_began_there() -> None:
    """Another leader may have told of other leader epochs, for records that were never appended."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, epoch=7)
        await follower.replicate(memoryview(bytearray(stamped(0, 2, b"a")))).wait()
        await follower.expect_gaps(10, [EpochStart(3, 2)])
        compacted, sent = Compacted([(2, 1), (4, 3), (5, 8), (6, 9)]), memoryview(bytearray(stamped(8, 5, b"b")))
        with pytest.raises(OffsetOutOfRange):
            await follower.replicate(sent, compacted=compacted).wait()
        await follower.expect_compacted(sent, compacted)
        checkpoint = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
        assert checkpoint.known_epochs == ((2, 0),)
        assert checkpoint.expected_epochs == ((2, 1), (4, 3), (5, 8))
        assert follower.log.epochs.latest == 2, "nothing of it is there yet"
        await follower.replicate(sent, compacted=compacted).wait()
        assert follower.log.epochs.below(100) == ((2, 0), (4, 3), (5, 8))


@pytest.mark.parametrize("record_count", [0, 1, 2])
async def test_a_batch_that_lacks_records_is_refused_until_a_start_knows_that_some_may(record_count: int) -> None:
    """Compaction has removed records of a batch, without a gap before or behind the batch."""
    filesystem, thin = SimulatedFileSystem(), kept(1, *[b"v"] * record_count, last_delta=2)
    stamp(memoryview(thin), 1, 1)
    sent, compacted = stamped(0, 1, b"a") + thin + stamped(4, 1, b"e"), Compacted([(1, 0)])
    async with running(filesystem) as store:
        follower = await following(store, LogConfig(), 7)
        with pytest.raises(OffsetOutOfRange):
            await follower.replicate(memoryview(bytearray(sent)), compacted=compacted).wait()
        await follower.expect_compacted(memoryview(sent), compacted)
        await follower.replicate(memoryview(bytearray(sent)), compacted=compacted).wait()
    filesystem.crash()
    async with running(filesystem) as store:
        follower = await following(store, LogConfig(), 8)
        assert (follower.log_end_offset, follower.log.damaged_from) == (5, None)


async def test_gaps_announced_by_an_earlier_leader_are_refused_and_not_noted() -> None:
    async with running(SimulatedFileSystem()) as store, trio.open_nursery() as nursery:
        follower = await following(store, epoch=7)
        commit_log, refused = follower.log_dir.commit_log, trio.Event()

        async def expect() -> None:
            with pytest.raises(NotLeaderOrFollower):
                await follower.expect_gaps(10, [EpochStart(3, 2)])
            refused.set()

        async with commit_log.between_checkpoints():
            nursery.start_soon(expect)
            await trio.testing.wait_all_tasks_blocked()
            await following(store, epoch=8)
            await expects_nothing(commit_log, follower)
        await refused.wait()
        await expects_nothing(commit_log, follower)


async def expects_nothing(commit_log: CommitLog, follower: Partition) -> None:
    """Check that neither the checkpoint nor the log in memory expects gaps."""
    point = commit_log.points.get(key_of(ORDERS), PartitionCheckpoint())
    assert (point.compacted_to, point.expected_epochs) == (0, ())
    assert follower.log.epochs.expects(())


async def test_a_log_start_within_a_batch_is_taken_over_before_all_of_the_batch_counts() -> None:
    """Otherwise a replica without that log start could be in sync, and be elected."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store)
        await follower.replicate(memoryview(bytearray(stamped(0, 0, *[b"v"] * 10)))).wait()
        follower.note_leader(5)
        for offset in (7, 3):
            move = follower.leaders_log_start(offset)
            assert (move is not None) == (offset == 7)
            await move_log_starts(follower.log_dir, [move] if move is not None else [])
            assert (follower.log_start_offset, follower.high_watermark) == (5, 5)
    filesystem.crash()
    async with running(filesystem) as store:
        [leader] = await store.open_partitions([Leadership(ORDERS, SMALL, 1, others(1, 2))])
        assert isinstance(leader, Partition)
        assert (leader.log_start_offset, leader.high_watermark, leader.log_end_offset) == (5, 5, 10)
        leader.progress.note_replica(2, 10)
        assert leader.high_watermark == 10


async def test_epochs_announced_by_an_earlier_leader_and_never_appended_are_forgotten() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store, epoch=7)
        await follower.replicate(memoryview(bytearray(stamped(0, 2, b"a")))).wait()
        await follower.expect_gaps(10, [EpochStart(3, 2), EpochStart(4, 8)])
    filesystem.crash()
    async with running(filesystem) as store:
        follower = await following(store, epoch=8)
        assert follower.log.epochs.expects(())
        sent = stamped(1, 2, b"a") + stamped(2, 5, b"b")
        await follower.replicate(memoryview(bytearray(sent))).wait()
    filesystem.crash()
    async with running(filesystem) as store:
        follower = await following(store, epoch=9)
        assert follower.log.epochs.below(100) == ((2, 0), (5, 2)), "there is no gap in which any of it could be right"


@pytest.mark.parametrize("seed", range(30))
async def test_a_follower_keeps_its_copy_of_a_compacted_log_over_crashes(seed: int) -> None:
    """Several leader epochs and gaps in one Fetch, journaled or not; a gap at the begin of a segment. Some epochs have
    lost their first batches, or all."""
    rng = random.Random(seed)
    filesystem, sent, offset, leader_epoch = SimulatedFileSystem(), list[bytes](), 0, 0
    epochs = EpochHistory()
    for _ in range(30):
        for _ in range(rng.choice((0, 0, 1, 3))):
            leader_epoch += rng.choice((0, 0, 1, 3))
            epochs.note(leader_epoch, offset)
            offset += rng.choice((1, 1, 5))
        leader_epoch += rng.choice((0, 0, 0, 1, 3))
        epochs.note(leader_epoch, offset)
        sent.append(stamped(offset, leader_epoch, *[rng.randbytes(30)] * rng.randint(1, 3)))
        offset = parse_header(sent[-1]).next_offset
    done = 0
    for life in range(4):
        config = LogConfig(flush_policy=FlushPolicy.SYNC)
        async with running(filesystem, options(journal_slot_size_bytes=rng.choice((100, 20_000)))) as store:
            follower = await following(store, config, leader_epoch + life)
            found = await read_all_of(follower)
            assert found == b"".join(sent[:done]), "what was answered is there, and nothing was made up"
            assert follower.log.epochs.below(offset) == epochs.below(follower.log_end_offset)
            while done < 7 * (life + 1):
                chunk = sent[done : done + rng.randint(1, 5)]
                records = memoryview(bytearray(b"".join(chunk)))
                compacted = Compacted(epochs.since(follower.log_end_offset).below(offset))
                await follower.expect_compacted(records, compacted)
                await trio.sleep(rng.choice((0, 0, 5, 70)))
                if rng.random() < 0.1:
                    break  # crash in between
                begins_segment = rng.random() < 0.3
                await follower.replicate(records, begins_segment=begins_segment, compacted=compacted).wait()
                done += len(chunk)
            if rng.random() < 0.3:
                await store.close()
        filesystem.crash(rng)


async def read_all_of(log: Partition) -> bytes:
    """The bytes of all segments, also above the high watermark."""
    segments = log.log.segments
    return b"".join(
        log.log_dir.disk.filesystem.open(log.log.path_of(one.base_offset)).read_at(0, one.size_bytes)
        for one in segments
    )


async def test_a_start_begins_from_the_high_watermark() -> None:
    """A leader with other replicas in sync starts from the checkpoint's high watermark; a single replica from its log
    end."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        follower = await following(store)
        for offset in range(6):
            await follower.replicate(memoryview(bytearray(stamped(offset, 0, b"%d" % offset)))).wait()
        follower.note_leader(3)
        await trio.sleep(70)
        follower.note_leader(4)
    filesystem.crash()
    image = SimulatedFileSystem.replayed(filesystem.operations)
    async with running(filesystem) as store:
        [leader] = await store.open_partitions([Leadership(ORDERS, SMALL, 1, others(1, 2, 3))])
        assert isinstance(leader, Partition)
        assert (leader.high_watermark, leader.log_end_offset) == (3, 6)
        assert list(await read_all(leader)) == [0, 1, 2]
        pending = leader.append(memoryview(batch(b"waits for both")), acks=-1)
        assert not leader.progress.note_replica(2, 7)
        for end, expected in ((4, 4), (5, 5), (7, 7)):
            await trio.testing.wait_all_tasks_blocked()
            assert leader.progress.note_replica(3, end)
            assert leader.high_watermark == expected
        assert list(await read_all(leader)) == list(range(7))
        assert not pending.is_settled, "whoever moves the progress settles nothing"
    async with running(image) as store:
        alone = await open_orders(store, leader_epoch=1)
        assert alone.high_watermark == 6
