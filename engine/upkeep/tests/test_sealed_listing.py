"""Listings of sealed segments, for readers outside of the broker."""

import pytest
import trio

from engine.api import Marker, Outcome
from engine.batches.batch import Record, build_batch
from engine.compaction.tests.test_cleaner import COMPACT, fill, until_compacted
from engine.errors import NotLeaderOrFollower, TierUnreachable, UnknownPartition
from engine.logs.segments.footer import footer_name, read_footer
from engine.logs.segments.segment import segment_name
from engine.sealed import SealedLog, SealedSegment
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.upkeep.sealed_listing import spread
from testkit.cold_logs import COUNT, DIRECTORY, Broker
from testkit.logs import NOW_MS, ORDERS, append, open_orders, running

EVERYTHING = 2**63 - 1
TRANSACTIONAL = 0x10


async def sealed(broker: Broker) -> SealedLog:
    """The listing, after finished segments are sealed."""
    await trio.sleep(1)
    return broker.store.sealed(ORDERS)


async def all_of(listing: SealedLog) -> list[SealedSegment]:
    return list(await listing.sealed_segments(0, EVERYTHING, 1_000))


async def test_a_listing_describes_each_segment_by_its_footer() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing = await sealed(broker)
        segments = log.log.segments
        found = await all_of(listing)
        assert listing.sealed_end == segments[-1].base_offset
        assert [(one.base_offset, one.end_offset) for one in found] == [
            (one.base_offset, one.end_offset) for one in segments[:-1]
        ]
        for one in found:
            footer = read_footer(broker.filesystem, DIRECTORY, one.base_offset)
            assert one.contents == (footer.records, footer.digest, -1, ())
            assert one.path == f"{DIRECTORY}/{segment_name(one.base_offset)}"
            assert (one.size_bytes, one.max_timestamp_ms) == (footer.size_bytes, footer.max_timestamp_ms)


async def test_a_part_of_them_is_told() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing, bases = await sealed(broker), [one.base_offset for one in log.log.segments]
        for first, end, count_max, expected in [
            (bases[1], bases[3], 9, bases[1:3]),
            (bases[1] + 1, bases[3] + 1, 9, bases[1:4]),
            (bases[2] - 1, bases[2], 9, bases[1:2]),
            (0, EVERYTHING, 2, bases[:2]),
            (bases[-1], EVERYTHING, 9, []),
            (bases[2], bases[2], 9, []),
        ]:
            found = await listing.sealed_segments(first, end, count_max)
            assert [one.base_offset for one in found] == expected


async def test_a_listing_omits_segments_below_the_log_start() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing, segments = await sealed(broker), log.log.segments[:]
        await log.delete_records(segments[2].base_offset + 1)
        assert [one.base_offset for one in await all_of(listing)] == [one.base_offset for one in segments[2:-1]]
        await log.delete_records(COUNT)
        assert (listing.sealed_end, await all_of(listing)) == (COUNT, [])


@pytest.mark.parametrize("flaw", ["is_damaged", "unsealed"])
async def test_a_listing_ends_at_an_unsealed_or_damaged_segment(flaw: str) -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing, segments = await sealed(broker), log.log.segments
        segments[2].is_damaged = flaw == "is_damaged"
        segments[2].is_sealed = flaw != "unsealed"
        assert listing.sealed_end == segments[2].base_offset
        assert [one.base_offset for one in await all_of(listing)] == [one.base_offset for one in segments[:2]]


async def test_a_listing_ends_at_an_open_transaction() -> None:
    broker = Broker()
    async with broker.life() as log:
        for _ in range(4):
            await append(log, b"value")
        record = Record(None, b"of a transaction", NOW_MS)
        open_one = build_batch([record], producer=(99, 0, 0), attributes=TRANSACTIONAL)
        await log.append(memoryview(open_one), acks=-1).wait()
        for _ in range(8):
            await append(log, b"value")
        listing = await sealed(broker)
        assert listing.sealed_end <= 4
        await log.end_transaction(Marker(99, 0, 0, Outcome.ABORT)).wait()
        for _ in range(8):
            await append(log, b"value")
        await trio.sleep(1)
        assert listing.sealed_end > 5
        [of_it] = await listing.sealed_segments(4, 5, 1)
        assert of_it.contents is not None
        assert of_it.contents.aborted == ((99, 4, 13),)


async def test_a_listing_ends_at_a_damaged_footer_until_it_is_rewritten() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing, segments = await sealed(broker), log.log.segments
        broker.filesystem.open(f"{DIRECTORY}/{footer_name(segments[1].base_offset)}").write_at([b"rot"], 20)
        assert [one.base_offset for one in await all_of(listing)] == [0]
        await trio.sleep(1)
        assert listing.sealed_end == segments[-1].base_offset
        assert len(await all_of(listing)) == len(segments) - 1


async def test_a_listing_has_cold_segments_without_path_and_contents() -> None:
    broker = Broker()
    async with broker.life() as log:
        await broker.fill()
        listing, segments = await sealed(broker), log.log.segments[:]
        await broker.drop(2)
        found = await all_of(listing)
        assert [one.base_offset for one in found] == [one.base_offset for one in segments[:-1]]
        assert [one.path is None for one in found] == [True, True] + [False] * (len(found) - 2)
        assert [one.contents is None for one in found] == [True, True] + [False] * (len(found) - 2)
        assert [one.size_bytes for one in found] == [one.size_bytes for one in segments[:-1]]
        assert listing.sealed_end == segments[-1].base_offset


async def test_a_listing_of_unknown_cold_segments_raises_tier_unreachable() -> None:
    broker = Broker()
    async with broker.life():
        await broker.fill()
        await trio.sleep(1)
        start = await broker.drop(3)
    broker.lose_index()
    async with broker.life():
        listing = await sealed(broker)
        with pytest.raises(TierUnreachable):
            await all_of(listing)
        assert (await listing.sealed_segments(start, EVERYTHING, 1))[0].base_offset == start


async def test_segments_that_are_replaced_meanwhile_are_looked_at_again() -> None:
    """No segment is missing, or listed beside the one that replaced it."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        await trio.sleep(1)
        listing = store.sealed(ORDERS)
        before = await all_of(listing)
        compacted = trio.Event()

        async def look() -> None:
            while not compacted.is_set():
                for _ in range(100):
                    found = await all_of(listing)
                    assert [one.base_offset for one in found[1:]] == [one.end_offset for one in found[:-1]]
                    assert found[-1].end_offset == listing.sealed_end
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await until_compacted(log)
            await trio.sleep(1)  # the new segments are sealed, too
            compacted.set()
        after = await all_of(listing)
        assert sum(one.size_bytes for one in after) < sum(one.size_bytes for one in before)
        assert [after[0].base_offset, after[-1].end_offset] == [before[0].base_offset, before[-1].end_offset]


async def test_a_listing_of_a_deleted_or_closed_partition_is_refused() -> None:
    broker = Broker()
    async with broker.life():
        await append(broker.log, b"value")
        listing = await sealed(broker)
        await broker.store.delete_partitions([ORDERS])
        with pytest.raises(UnknownPartition):
            await all_of(listing)
        with pytest.raises(UnknownPartition):
            broker.store.sealed(ORDERS)
    with pytest.raises((NotLeaderOrFollower, UnknownPartition)):
        broker.store.sealed(ORDERS)


def test_positions_lie_apart() -> None:
    places = [(offset, offset * 3) for offset in range(35)]
    assert spread(places, 30) == [(10, 30), (20, 60), (30, 90)]
    assert spread([(0, 0), (5, 45), (6, 46), (9, 80)], 30) == [(5, 45), (9, 80)]
    assert spread([], 30) == []
