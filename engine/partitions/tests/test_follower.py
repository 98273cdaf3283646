"""A follower ends with its leader's bytes, whatever they are, and whoever crashes on the way."""

import random
from collections.abc import Sequence

import pytest

from engine.api import FlushPolicy, LogConfig
from engine.batches.batch import Record, build_batch, parse_header, stamp
from engine.errors import CorruptMessage, NotLeaderOrFollower, OffsetOutOfRange
from engine.files.twin import MemoryFileSystem
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.tests.helpers import NOW_MS, append, batch, batches_in, bytes_of, open_orders, read, read_all, running

CONTROL = 1 << 5
SMALL = LogConfig(segment_size_bytes=400)
NOBODY = -1, -1, -1


def stamped(
    offset: int, epoch: int, *values: bytes, attributes: int = 0, producer: tuple[int, int, int] = NOBODY
) -> bytes:
    records = [Record(b"k", value, NOW_MS + offset) for value in values]
    made = build_batch(records, attributes=attributes, producer=producer)
    stamp(memoryview(made), offset, epoch)
    return bytes(made)


async def following(store: SegmentStore, config: LogConfig = SMALL, epoch: int = 0) -> Partition:
    """The orders log as a follower of the leader of that epoch."""
    log = await open_orders(store, config, epoch)
    assert isinstance(log, Partition)
    async with log.log_dir.commit_log.committer.between_rounds():
        log.follow(config, epoch)
    return log


async def fetched(leader: Partition, offset: int, max_size_bytes: int) -> tuple[bytes, bool]:
    """Whole batches from one segment of the leader, and whether the first of them begins it."""
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


def segments_of(filesystem: MemoryFileSystem) -> dict[str, bytes]:
    return {path: content for path, content in filesystem.files().items() if path.endswith(".log") and content}


@pytest.mark.parametrize("seed", range(20))
async def test_its_bytes_are_its_leaders_over_crashes_of_either(seed: int) -> None:
    """Leader epochs change, segments begin by size and by config; what a crash takes of the follower comes again."""
    rng = random.Random(seed)
    theirs, ours = MemoryFileSystem(), MemoryFileSystem()
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
    filesystem = MemoryFileSystem()
    sent = [
        stamped(0, 0, b"a", producer=(7, 0, 0)),
        stamped(1, 2, b"b", b"c", producer=(7, 0, 1)),
        stamped(3, 2, b"\0\0\0\1", attributes=CONTROL, producer=(7, 0, -1)),
        stamped(4, 5, b"d"),
    ]
    async with running(filesystem) as store:
        follower = await following(store, epoch=5)
        await follower.replicate(memoryview(bytearray(b"".join(sent)))).wait()
        assert (follower.log_end_offset, follower.high_watermark) == (5, 0)
        follower.note_leader(4)
        assert follower.high_watermark == 4
        assert list(follower.log.epochs.below(9)) == [(0, 0), (2, 1), (5, 4)]
        known = follower.log.producers.get(7)
        assert known is not None
        assert known.batches[-1].last_sequence == 2
        assert segments_of(filesystem) == {"/data/orders-0/00000000000000000000.log": b"".join(sent)}
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=6)
        assert log.high_watermark == 5
        assert len(await read_all(log)) == 5


async def test_what_does_not_continue_the_log_is_refused() -> None:
    async with running(MemoryFileSystem()) as store:
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
    async with running(MemoryFileSystem()) as store:
        log = await following(store)
        with pytest.raises(NotLeaderOrFollower):
            log.append(memoryview(batch(b"x")), acks=1)
        leader = await open_orders(store, leader_epoch=1)
        assert leader is log
        with pytest.raises(NotLeaderOrFollower):
            log.replicate(memoryview(bytearray(stamped(0, 1, b"x"))))
        assert (await append(leader, b"y")).base_offset == 0
        assert parse_header(bytes_of((await read(leader, 0)).records)).leader_epoch == 1


async def test_what_was_fetched_before_it_became_a_leader_is_refused() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await following(store)
        committer = log.log_dir.commit_log.committer
        async with committer.between_rounds():
            pending = log.replicate(memoryview(bytearray(stamped(0, 0, b"x"))))
            log.lead(SMALL, 1)
        with pytest.raises(NotLeaderOrFollower):
            await pending.wait()
        assert log.log_end_offset == 0
