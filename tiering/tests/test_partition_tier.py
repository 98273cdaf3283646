"""Uploads of a log step by step, and from each step on, as if it were the last one."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from engine.errors import CorruptMessage
from engine.logs.segments.segment import segment_name
from testkit.cold_logs import COUNT, DIRECTORY
from testkit.logs import append
from testkit.tiered_logs import Tiered, copy_all, stopping_at
from tiering.errors import Fenced, TierDamaged
from tiering.manifest.manifest import Manifest
from tiering.object_store import Content, ObjectInfo, StoreError, StoreUnavailable
from tiering.segment_object import TAIL_SIZE_BYTES, read_tail
from tiering.stores.memory import HEALTHY, Fault, Operation
from tiering.upload.partition_tier import PartitionTier, TierOptions

if TYPE_CHECKING:
    from collections.abc import Callable


OPTIONS = TierOptions()


async def test_sealed_segments_are_copied() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        ends = [end for _, end in tiered.log.to_copy()]
        assert [(await tier.copy_next() or (0,))[0] for _ in ends] == ends
        assert await tier.copy_next() is None
        assert tiered.log.tiered_to == ends[-1]
        manifest = await tiered.manifest()
        assert [one.end for one in manifest.entries] == ends
        assert manifest.epochs == ((0, 0),)
        assert len(tiered.segments()) == len(ends)
        await tiered.check()


async def test_tail_of_an_object_has_the_size_of_its_records() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        [entry] = (await tiered.manifest()).entries
        data = await tiered.store.get(tiered.place.segment(entry), entry.object_size_bytes - TAIL_SIZE_BYTES)
        assert read_tail(data, "object").records == entry.size_bytes


async def test_the_next_life_goes_on() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        await tier.copy_next()
    async with tiered.life() as tier:
        assert tiered.log.tiered_to == tiered.log.to_copy()[0][0]
        await copy_all(tier)
        await tiered.check()
        assert (await tiered.manifest()).fence == (0, 1)
        assert tiered.store.requests[Operation.PUT] == 3 * len(tiered.segments())


def stopping_behind_an_object() -> Callable[[Operation, str], Fault]:
    """Faults of a broker that ends after it has put the object."""
    is_there = False

    def of(operation: Operation, key: str) -> Fault:
        nonlocal is_there
        fault = Fault(is_lost=True) if is_there else HEALTHY
        is_there |= operation is Operation.PUT and "manifest" not in key
        return fault

    return of


def only_at(number: int, fault: Fault) -> Callable[[Operation, str], Fault]:
    """A fault of one request only."""
    requests = itertools.count()
    return lambda _operation, _key: fault if next(requests) == number else HEALTHY


async def requests_of_two_copies() -> int:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        await tier.copy_next()
    return sum(tiered.store.requests.values())


@pytest.mark.parametrize("fault", [Fault(is_lost=True), Fault(is_reply_lost=True)], ids=["request", "reply"])
async def test_whichever_request_was_the_last_the_next_life_goes_on(fault: Fault) -> None:
    for number in range(await requests_of_two_copies()):
        tiered = Tiered()
        async with tiered.life(is_clean=False) as tier:
            tiered.store.fault = stopping_at(number, fault)
            with pytest.raises(StoreError):
                await copy_all(tier)
            await tiered.check()
        tiered.store.fault = lambda _operation, _key: HEALTHY
        async with tiered.life() as tier:
            await copy_all(tier)
            await tiered.check()
            manifest = await tiered.manifest()
            assert not manifest.doomed
            assert len(tiered.segments()) == len(manifest.entries)


@pytest.mark.parametrize("fault", [Fault(is_lost=True), Fault(is_reply_lost=True), Fault(late_s=30.0)])
async def test_whichever_request_fails_the_same_life_goes_on(fault: Fault) -> None:
    for number in range(await requests_of_two_copies()):
        async with trio.open_nursery() as nursery:
            tiered = Tiered()
            tiered.store.nursery = nursery
            async with tiered.life() as tier:
                tiered.store.fault = only_at(number, fault)
                with suppress(StoreError):
                    await copy_all(tier)
                await copy_all(tier)
                await trio.sleep(60)  # late requests arrive
                await tiered.check()
                assert len(tiered.segments()) == len((await tiered.manifest()).entries)


async def test_an_object_that_is_there_is_not_put_again() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        tiered.store.fault = stopping_behind_an_object()
        with pytest.raises(StoreUnavailable):
            await tier.copy_next()
        tiered.store.fault = lambda _operation, _key: HEALTHY
        assert len(tiered.segments()) == 1
        assert await tier.copy_next() == (tiered.log.tiered_to, 0)


@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:9] + b"rot" + data[12:]])
async def test_truncated_object_is_not_taken_for_uploaded(damage: Callable[[bytes], bytes]) -> None:
    """The store has published the part of the object that it got from a client that died."""
    tiered = Tiered()
    async with tiered.life() as tier:
        tiered.store.fault = stopping_behind_an_object()
        with pytest.raises(StoreUnavailable):
            await tier.copy_next()
        tiered.store.fault = lambda _operation, _key: HEALTHY
        [key] = tiered.segments()
        data, moment_ms = tiered.store.objects[key]
        tiered.store.objects[key] = damage(data), moment_ms
        copied = await tier.copy_next()
        assert copied is not None
        assert copied.put_bytes == len(data)
        assert tiered.store.requests[Operation.DELETE] == 0
        await tiered.check()


async def test_a_store_that_keeps_no_checksums_is_read_back() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        head, is_wrong = tiered.store.head, True

        async def without(key: str) -> ObjectInfo | None:
            found = await head(key)
            return None if found is None else found._replace(crc32c=None)

        async def put(key: str, content: Content, *, if_absent: bool = False) -> None:
            await original(key, content, if_absent=if_absent)
            if is_wrong and key in tiered.segments():
                data, moment_ms = tiered.store.objects[key]
                tiered.store.objects[key] = data[:-1] + b"x", moment_ms

        original = tiered.store.put
        tiered.store.head = without  # type: ignore[method-assign]
        tiered.store.put = put  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable, match="its content differs"):
            await tier.copy_next()
        is_wrong = False
        assert await tier.copy_next() is not None
        await tiered.check()


async def test_damaged_local_segment_is_not_copied() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        base, _ = tiered.log.to_copy()[0]
        tiered.broker.filesystem.open(f"{DIRECTORY}/{segment_name(base)}").write_at([b"rot"], 100)
        with pytest.raises(CorruptMessage):
            await tier.copy_next()
        assert await tier.copy_next() is None
        assert len(tiered.segments()) == 1


async def test_an_old_leader_is_fenced() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        await tiered.tier_of(7).copy_next()
        with pytest.raises(Fenced):
            await tier.copy_next()


async def test_other_producers_make_another_object() -> None:
    """The upload of the earlier leader is given up: its late request changes nothing that counts."""
    tiered = Tiered()
    async with tiered.life() as tier:
        tiered.store.fault = stopping_behind_an_object()
        with pytest.raises(StoreUnavailable):
            await tier.copy_next()
        tiered.store.fault = lambda _operation, _key: HEALTHY
        [begun] = tiered.segments()
        tiered.broker.store.producer_id_expiration_ms = -(10**15)
        original = tiered.log.copy

        async def without_producers(base_offset: int) -> object:
            return (await original(base_offset))._replace(producers=b"")

        tiered.log.copy = without_producers  # type: ignore[method-assign, assignment]
        assert await tier.copy_next() is not None
        manifest = await tiered.manifest()
        assert [tiered.place.doomed(one) for one in manifest.doomed] == [begun]
        assert [one.generation for one in manifest.entries] == [1]
        await tiered.check()


# Where the log begins


async def settled(tiered: Tiered, tier: PartitionTier) -> Manifest:
    await tier.shed()
    for _ in range(3):
        await trio.sleep(OPTIONS.late_put_ms / 1000)
        await tier.delete()
    return await tiered.manifest()


async def test_objects_below_the_log_start_are_deleted_after_the_delay() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        entries = (await tiered.manifest()).entries
        await tiered.broker.log.delete_records(entries[1].end + 1)
        await tier.shed()
        manifest = await tiered.manifest()
        assert manifest.log_start == entries[1].end + 1
        assert manifest.entries == entries[2:]
        assert len(tiered.segments()) == len(entries)
        assert await tier.delete() == 0
        await trio.sleep(OPTIONS.delete_delay_ms / 1000)
        assert await tier.delete() == 2
        assert len(tiered.segments()) == len(entries) - 2
        assert not (await tiered.manifest()).doomed
        before = tiered.store.requests[Operation.PUT]
        await tier.shed()
        await tier.delete()
        assert tiered.store.requests[Operation.PUT] == before


async def test_whichever_request_of_a_deletion_was_the_last_the_next_life_goes_on() -> None:
    for number in range(12):
        tiered = Tiered()
        async with tiered.life(is_clean=False) as tier:
            await copy_all(tier)
            entries = (await tiered.manifest()).entries
            await tiered.broker.log.delete_records(entries[1].end)
            tiered.store.fault = stopping_at(number, Fault(is_reply_lost=True))
            try:
                await settled(tiered, tier)
            except StoreError:
                await tiered.check()
        tiered.store.fault = lambda _operation, _key: HEALTHY
        async with tiered.life() as tier:
            manifest = await settled(tiered, tier)
            assert manifest.entries == entries[2:]
            assert not manifest.doomed
            assert tiered.segments() == [tiered.place.segment(one) for one in manifest.entries]


async def test_deletion_waits_for_a_late_put_and_leaves_no_orphan() -> None:
    async with trio.open_nursery() as nursery:
        tiered = Tiered()
        tiered.store.nursery = nursery
        async with tiered.life() as tier:

            def late(operation: Operation, key: str) -> Fault:
                is_object = operation is Operation.PUT and "manifest" not in key
                return Fault(late_s=600.0) if is_object else HEALTHY

            tiered.store.fault = late
            with pytest.raises(StoreUnavailable):
                await tier.copy_next()
            await tiered.broker.log.delete_records(COUNT - 1)
            tiered.store.fault = lambda _operation, _key: HEALTHY
            await tier.shed()
            await trio.sleep(OPTIONS.delete_delay_ms / 1000)
            assert await tier.delete() == 0  # it may yet come
            await trio.sleep(700)
            assert len(tiered.segments()) == 1
            manifest = await settled(tiered, tier)
            assert not tiered.segments()
            assert not manifest.doomed


async def test_log_that_starts_behind_its_tiered_end_is_copied_from_its_log_start() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        await tiered.broker.log.delete_records(tiered.broker.log.log.segments[3].base_offset)
        await copy_all(tier)
        manifest = await settled(tiered, tier)
        assert manifest.first_offset == tiered.log.log_start_offset
        assert tiered.segments() == [tiered.place.segment(one) for one in manifest.entries]
        await tiered.check()


async def test_a_hole_between_tier_and_files_is_told() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        to_copy = tiered.log.to_copy
        tiered.log.to_copy = lambda: to_copy()[1:]  # type: ignore[method-assign]
        with pytest.raises(TierDamaged, match="the files of the log begin at"):
            await tier.copy_next()


async def test_log_truncated_below_its_tiered_end_is_copied_again_from_there() -> None:
    """The log lost segments that another leader had copied: they were never acknowledged, or an operator accepted the
    loss."""
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        manifest = await tiered.manifest()
        cut = manifest.entries[2]
        await tiered.broker.store.truncate_partition(tiered.broker.log.partition, cut.base, below_sealed=True)
        for _ in range(COUNT - cut.base):
            await append(tiered.broker.log, b"another value")
        await trio.sleep(1)
        assert tiered.log.tiered_to == cut.base
        await copy_all(tier)
        await tiered.check()
        after = await settled(tiered, tier)
        assert after.entries[:2] == manifest.entries[:2]
        assert {one.generation for one in after.entries[2:]} == {1}
        assert tiered.segments() == sorted(tiered.place.segment(one) for one in after.entries)


async def test_log_that_lost_all_records_deletes_nothing_in_the_tier() -> None:
    """A disk was lost, and the new leader has no records: the tier may have the only copy."""
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        before = await tiered.manifest()
    other = Tiered()
    other.store = tiered.store
    async with other.life():
        await other.broker.store.truncate_partition(other.broker.log.partition, 0, below_sealed=True)
        for _ in range(COUNT):
            await append(other.broker.log, b"another value")
        await trio.sleep(1)
        with pytest.raises(TierDamaged, match="nothing is deleted"):
            await copy_all(other.tier_of(7))
        assert (await tiered.manifest()).entries == before.entries


async def test_segments_that_a_predecessor_copied_are_not_copied_again() -> None:
    """A crash kept the log from knowing: its checkpoint is written at intervals."""
    tiered = Tiered()
    async with tiered.life(is_clean=False) as tier:
        await copy_all(tier)
        puts = tiered.store.requests[Operation.PUT]
        tiered.broker.log.log.tiered_to = 0
        assert await copy_all(tiered.tier_of(5)) == 0
        assert tiered.store.requests[Operation.PUT] == puts
        assert tiered.log.tiered_to == (await tiered.manifest()).end


async def test_previous_leader_is_fenced_after_the_next_leader_confirms() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        after = tiered.tier_of(tiered.log.leader_epoch + 1)
        await after.confirm()
        version = (await tiered.manifest()).version
        await after.confirm()
        assert (await tiered.manifest()).version == version
        with pytest.raises(Fenced):
            await tier.copy_next()
        assert await after.copy_next() is not None


async def test_a_log_leaves_the_tier() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        second = (await tiered.manifest()).entries[2].base
        await tiered.log.drop_local(second)
        before = tiered.broker.log.log_end_offset
        assert not await tier.leave()
        assert (tiered.log.log_start_offset, tiered.log.local_start_offset) == (second, second)
        await trio.sleep(OPTIONS.late_put_ms / 1000)
        assert await tier.leave()
        assert tiered.segments() == []
        assert tiered.log.tiered_to is None
        assert tiered.broker.log.log_end_offset == before
    async with tiered.life() as tier:
        assert tiered.log.log_start_offset == second
        assert await tier.leave()
        assert await copy_all(tier) > 2  # and comes into it again
        assert (await tiered.manifest()).first_offset == second
        await tiered.check()


async def test_whichever_request_fails_a_log_leaves_the_tier() -> None:
    for number in range(25):
        tiered = Tiered()
        async with tiered.life(is_clean=False) as tier:
            await copy_all(tier)
            tiered.store.fault = stopping_at(number, Fault(is_reply_lost=True))
            for _ in range(2):
                with suppress(StoreError):
                    await tier.leave()
                await trio.sleep(OPTIONS.late_put_ms / 1000)
        tiered.store.fault = lambda _operation, _key: HEALTHY
        async with tiered.life() as tier:
            for _ in range(3):
                await tier.leave()
                await trio.sleep(OPTIONS.late_put_ms / 1000)
            assert tiered.segments() == []
            assert tiered.log.tiered_to is None
