"""The uploader with the partitions of a broker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from engine.tier import CopyLag
from engine.upkeep.retention_task import RetentionOptions, RetentionTask
from testkit.cold_logs import ROLLING, Broker
from testkit.logs import NOW_MS, ORDERS
from testkit.tiered_logs import now_ms
from tiering import names
from tiering.manifest import manifest_log
from tiering.manifest.manifest import Fence
from tiering.names import Place
from tiering.object_store import Content
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation
from tiering.tests.test_manifest_log import log_of, write
from tiering.upload import uploader
from tiering.upload.uploader import Identity, Uploader, UploaderDeps, UploaderOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIERED = replace(ROLLING, remote_storage=True)
PLACE = Place("lake/", "cluster", ORDERS.topic_id, ORDERS.partition)
OPTIONS = UploaderOptions(interval_ms=1000)


class Kept:
    """A broker that is stopped and started, its bucket, and an uploader in each life."""

    def __init__(self, options: UploaderOptions = OPTIONS) -> None:
        self.broker = Broker(TIERED)
        self.store = MemoryStore(now_ms)
        self.problems: list[str] = []
        self.keeper: Uploader
        self._options = options

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        async with self.broker.life() as log:
            if not log.log_end_offset:
                await self.broker.fill()
            identity = Identity("lake/", "cluster", 0, f"incarnation {self.broker.epoch}")
            world = UploaderDeps(self.broker.store.tierable, now_ms, Random(1), self.problems.append)
            self.keeper = Uploader(self.store, identity, self._options, world)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.keeper.serve)
                yield
                nursery.cancel_scope.cancel()

    @property
    def is_copied(self) -> bool:
        log = self.broker.log.log
        return log.tiered_to == log.active.base_offset

    @property
    def objects(self) -> list[str]:
        return [key for key in self.store.objects if key.count("/") == PLACE.prefix.count("/")]


async def test_uploader_copies_sealed_segments() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        assert kept.is_copied
        assert kept.keeper.topics.total.copied_segments == len(kept.objects) == len(kept.broker.log.log.segments) - 1
        assert kept.keeper.topics.total.copied_bytes == sum(len(kept.store.objects[key][0]) for key in kept.objects)
        await kept.broker.fill(10, kept.broker.log.log_end_offset)
        await trio.sleep(3)
        assert kept.is_copied
        entries = await kept.keeper.entries(ORDERS)
        assert set(kept.objects) == {kept.keeper.key_of(ORDERS, one) for one in entries.values()}


async def test_uploader_returns_the_lag_of_copies_and_deletions_of_a_partition() -> None:
    kept = Kept()
    kept.store.fault = lambda _operation, _key: Fault(is_lost=True)
    async with kept.life():
        await trio.sleep(100)
        segments = kept.broker.log.log.segments[:-1]
        [figures] = kept.keeper.partitions()
        assert figures.partition == ORDERS
        assert figures.lag == (len(segments), sum(one.size_bytes for one in segments), 0, segments[-1].end_offset)
        assert figures.waiting_s == pytest.approx(100, abs=2)
        assert (figures.segment_count, figures.size_bytes, figures.problem, figures.is_fenced) == (0, 0, None, False)
        assert list(kept.keeper.ailing(50)) == [figures]
        assert not list(kept.keeper.ailing(200))
        kept.store.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(uploader.BACK_OFF_MAX_S * 1.5)
        [figures] = kept.keeper.partitions()
        assert (figures.lag, figures.waiting_s) == (CopyLag(), 0)
        assert (figures.segment_count, figures.size_bytes) == (len(segments), sum(one.size_bytes for one in segments))
        kept.store.fault = lambda operation, _key: Fault(is_lost=operation is Operation.DELETE)
        await kept.broker.log.delete_records(segments[2].base_offset)
        await trio.sleep(100)
        [figures] = kept.keeper.partitions()
        assert (figures.doomed_count, figures.doomed_bytes) == (2, sum(one.size_bytes for one in segments[:2]))
        assert figures.segment_count == len(segments) - 2
        assert kept.keeper.topics.of(ORDERS.topic_id).delete_errors > 0


async def test_waiting_time_counts_from_the_sealing_of_the_oldest_segment_to_copy() -> None:
    """A backlog shows its age, although its first segment changes all the time."""
    kept = Kept(replace(OPTIONS, copiers=1, copy_max_bytes_per_s=lambda: 200))
    async with kept.life():

        def waiting_s() -> float:
            return next(kept.keeper.partitions()).waiting_s

        log = kept.broker.log
        earlier_end = log.log.active.base_offset
        await trio.sleep(10)
        assert 0 < (log.log.tiered_to or 0) < earlier_end
        assert waiting_s() == pytest.approx(10, abs=2)
        await kept.broker.fill(30, log.log_end_offset)
        while (log.log.tiered_to or 0) < earlier_end:
            assert waiting_s() == pytest.approx(trio.current_time(), abs=2)
            await trio.sleep(1)
        assert waiting_s() == pytest.approx(trio.current_time() - 10, abs=3)
        await trio.sleep(300)
        assert kept.is_copied
        assert waiting_s() == 0


async def test_partition_with_disabled_copies_has_no_lag() -> None:
    kept = Kept()
    kept.broker.config = replace(TIERED, remote_copy_disabled=True)
    async with kept.life():
        await trio.sleep(100)
        [figures] = kept.keeper.partitions()
        assert (figures.lag, figures.waiting_s) == (CopyLag(), 0)


async def test_counters_of_a_topic_are_removed_when_it_leaves_the_tier() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        copied = kept.keeper.topics.of(ORDERS.topic_id).copied_segments
        assert copied == len(kept.objects)
        kept.broker.log._state.config = ROLLING
        await trio.sleep(200)  # the copied segments are deleted first
        assert not list(kept.keeper.partitions())
        assert kept.keeper.topics.of(ORDERS.topic_id).copied_segments == 0
        assert kept.keeper.topics.total.copied_segments == copied


async def test_a_topic_that_is_not_tiered_is_left_alone() -> None:
    kept = Kept()
    kept.broker.config = ROLLING
    async with kept.life():
        await trio.sleep(3)
        assert kept.broker.log.log.tiered_to is None
        assert not sum(kept.store.requests.values())


async def test_nothing_is_asked_of_the_store_when_there_is_nothing_to_do() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(5)
        before = sum(kept.store.requests.values())
        await trio.sleep(60)
        assert sum(kept.store.requests.values()) == before


async def test_uploader_with_disabled_copies_deletes_objects_below_the_log_start() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        count = len(kept.objects)
        log = kept.broker.log
        log._state.config = replace(TIERED, remote_copy_disabled=True)
        await kept.broker.fill(20, log.log_end_offset)
        await log.delete_records(log.log.segments[2].base_offset)
        await trio.sleep(100)
        assert len(kept.objects) == count - 2
        assert kept.keeper.topics.total.deleted == 2
        assert not kept.is_copied


async def test_uploader_deletes_old_manifest_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "VERSIONS_PER_BLOCK", 4)
    monkeypatch.setattr(manifest_log, "VERSIONS_PER_BLOCK", 4)
    monkeypatch.setattr(manifest_log, "KEPT_VERSIONS_MIN", 1)
    monkeypatch.setattr(manifest_log, "KEPT_MS", 60_000)  # a day would need too many looks, one each second
    monkeypatch.setattr(uploader, "COLLECT_INTERVAL_S", 60.0)
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        before = len(await kept.store.list_after(PLACE.manifests))
        await trio.sleep(60 + 2 * 60)
        after = len(await kept.store.list_after(PLACE.manifests))
        assert kept.keeper.topics.total.collected == before - after > 3


async def test_a_store_that_is_away_is_asked_again_and_again() -> None:
    kept = Kept()
    kept.store.fault = lambda _operation, _key: Fault(is_lost=True)
    async with kept.life():
        await trio.sleep(600)
        assert 15 < kept.keeper.topics.total.copy_errors < 40
        assert not kept.problems
        kept.store.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(uploader.BACK_OFF_MAX_S * 1.5)
        assert kept.is_copied


async def test_refusal_of_the_store_is_logged_at_most_twice_and_clears_afterwards() -> None:
    kept = Kept()
    kept.store.fault = lambda _operation, _key: Fault(is_refused=True)
    async with kept.life():
        await trio.sleep(600)
        assert len(kept.problems) <= 2
        assert "403" in kept.problems[0]
        [figures] = kept.keeper.partitions()
        assert figures.problem is not None
        assert "403" in figures.problem
        assert list(kept.keeper.ailing(10_000)) == [figures]
        kept.store.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(uploader.BACK_OFF_MAX_S * 1.5)
        assert [one.problem for one in kept.keeper.partitions()] == [None]


async def test_fenced_uploader_sends_no_more_requests() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        other = log_of(kept.store, 9)
        other._place = PLACE
        await write(other, 1)
        await kept.broker.fill(20, kept.broker.log.log_end_offset)
        await trio.sleep(100)
        before = sum(kept.store.requests.values())
        await trio.sleep(100)
        assert sum(kept.store.requests.values()) == before
        assert len(kept.problems) == 1
        assert not kept.is_copied
        [figures] = kept.keeper.partitions()
        assert figures.is_fenced
        assert figures.lag.segments > 0


async def test_a_new_leadership_is_another_author() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        await kept.broker.store.open_partition(ORDERS, TIERED, 7)
        await kept.broker.fill(10, kept.broker.log.log_end_offset)
        await trio.sleep(3)
        assert kept.is_copied
        manifest = await kept.keeper._manifests(ORDERS, Fence(0, 99)).load()
        assert manifest.fence == (0, 7)
        assert not kept.problems


async def test_copies_keep_to_a_rate() -> None:
    kept = Kept(replace(OPTIONS, copiers=1, copy_max_bytes_per_s=lambda: 100))
    async with kept.life():
        await trio.sleep(10)
        assert kept.keeper.topics.total.copied_bytes < 10 * 100 + 1000
        await trio.sleep(100)
        assert kept.is_copied


async def test_a_partition_that_fails_keeps_no_other_waiting() -> None:
    kept = Kept(replace(OPTIONS, copiers=1))
    others = [ORDERS._replace(topic=f"other-{number}", topic_id=bytes([number]) * 16) for number in range(1, 6)]

    def fault(operation: Operation, key: str) -> Fault:
        return Fault(is_lost=True) if operation is Operation.PUT and ORDERS.topic_id.hex() in key else HEALTHY

    kept.store.fault = fault
    async with kept.life():
        for one in others:
            log = await kept.broker.store.open_partition(one, TIERED, 0)
            original, kept.broker.log = kept.broker.log, log
            await kept.broker.fill()
            kept.broker.log = original
        await trio.sleep(5)
        for one in others:
            log = kept.broker.store.get(one)
            assert log.log.tiered_to == log.log.active.base_offset
        assert not kept.is_copied


async def test_cold_segments_are_restored_from_the_tier_after_index_loss() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        [log] = kept.broker.store.tierable()
        await log.drop_local(kept.broker.log.log.segments[3].base_offset)
        before = [(one.base_offset, one.end_offset) for one in kept.broker.log.log.cold.segments]
    kept.broker.lose_index()
    async with kept.life():
        assert not kept.broker.log.log.cold.segments
        await trio.sleep(3)
        assert [(one.base_offset, one.end_offset) for one in kept.broker.log.log.cold.segments] == before


async def test_files_stay_that_another_bucket_has_not() -> None:
    """A checkpoint's word on the tier does not count until the tier has confirmed it."""
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        assert kept.is_copied
    kept.store.objects.clear()
    kept.broker.config = replace(TIERED, local_retention_size_bytes=1)
    async with kept.life():
        log = kept.broker.log
        await RetentionTask(log.log_dir, RetentionOptions(), lambda: NOW_MS).check()
        assert log.log.local_start_offset == 0
        await trio.sleep(10)
        assert kept.is_copied
        entries = await kept.keeper.entries(ORDERS)
        assert min(entries) == 0
        await RetentionTask(log.log_dir, RetentionOptions(), lambda: NOW_MS).check()
        assert log.log.local_start_offset > 0


async def test_bucket_without_the_cold_segments_is_logged_and_gets_no_copies() -> None:
    kept = Kept()
    async with kept.life():
        await trio.sleep(3)
        [log] = kept.broker.store.tierable()
        await log.drop_local(kept.broker.log.log.segments[3].base_offset)
    kept.store.objects.clear()
    async with kept.life():
        await trio.sleep(10)
        assert "which have no files here" in kept.problems[0]
        assert not kept.objects


async def test_foreign_objects_are_no_matter() -> None:
    kept = Kept()
    await kept.store.put("lake/readme", Content.of(b"hello"))
    async with kept.life():
        await trio.sleep(3)
        assert kept.is_copied
