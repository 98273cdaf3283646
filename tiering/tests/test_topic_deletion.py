"""Deletion of a deleted topic from the tier."""

from __future__ import annotations

import itertools

import pytest
import trio

from testkit.tiered_logs import Tiered, copy_all, now_ms, stopping_at
from tiering import names
from tiering.errors import Fenced
from tiering.manifest import manifest_log
from tiering.manifest.manifest import Manifest
from tiering.manifest.manifest_log import Change
from tiering.object_store import Content, StoreError
from tiering.stores.memory import HEALTHY, Fault
from tiering.topic_deletion import delete_partition

NONCES = itertools.count()


async def delete(tiered: Tiered) -> int:
    return await delete_partition(tiered.store, tiered.place, 0, lambda: f"of deletion {next(NONCES)}", now_ms)


async def test_deletion_keeps_only_the_last_manifest_and_its_collected_block() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        await tiered.store.put("cluster/other", Content.of(b"x"))
        assert await delete(tiered) > 10
        manifest = await tiered.manifest()
        assert manifest.is_deleted
        kept = {tiered.place.manifest(manifest.version), tiered.place.collected(0)}
        assert set(tiered.store.objects) == {*kept, "cluster/other"}
        assert await delete(tiered) == 0


async def test_leader_of_a_deleted_topic_is_fenced() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        await delete(tiered)
        with pytest.raises(Fenced):
            await tier.copy_next()
        with pytest.raises(Fenced):
            await tiered.tier_of(9).copy_next()


async def again(manifest: Manifest) -> Change:
    return Change(manifest)


async def test_slow_writer_whose_next_version_was_deleted_is_fenced() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await tier.copy_next()
        stood_still = tier.manifests.newest
        assert stood_still is not None
        await copy_all(tiered.tier_of(tiered.log.leader_epoch + 1))
        await delete(tiered)
        tier.manifests.newest = stood_still  # its next version was deleted meanwhile
        with pytest.raises(Fenced):
            await tier.manifests.change(again)


async def test_deleted_topic_without_copies_accepts_no_copy() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        assert await delete(tiered) == 0
        with pytest.raises(Fenced):
            await tier.copy_next()


async def test_object_that_arrives_after_a_deletion_is_deleted_by_the_next_deletion() -> None:
    async with trio.open_nursery() as nursery:
        tiered = Tiered()
        tiered.store.nursery = nursery
        async with tiered.life() as tier:
            tiered.store.fault = lambda _operation, key: Fault(late_s=60) if key in objects else HEALTHY
            objects: set[str] = set()
            await tier.copy_next()
            tiered.store.fault = lambda _operation, key: HEALTHY if "/manifest/" in key else Fault(late_s=60)
            with pytest.raises(StoreError):
                await tier.copy_next()
            tiered.store.fault = lambda _operation, _key: HEALTHY
            await delete(tiered)
            await trio.sleep(100)
            assert len(tiered.segments()) == 1
            assert await delete(tiered) == 1
            assert not tiered.segments()


async def test_deletion_continues_after_a_crash_at_any_request() -> None:
    for number in itertools.count():
        tiered = Tiered()
        async with tiered.life() as tier:
            await tier.copy_next()
            await tier.copy_next()
            tiered.store.fault = stopping_at(number, Fault(is_reply_lost=True))
            try:
                await delete(tiered)
            except StoreError:
                tiered.store.fault = lambda _operation, _key: HEALTHY
                await delete(tiered)
            else:
                assert number > 10
                return
            assert len(tiered.store.objects) == 2


async def test_collected_blocks_stay_after_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "VERSIONS_PER_BLOCK", 4)
    monkeypatch.setattr(manifest_log, "VERSIONS_PER_BLOCK", 4)
    monkeypatch.setattr(manifest_log, "KEPT_VERSIONS_MIN", 1)
    monkeypatch.setattr(manifest_log, "KEPT_MS", 60_000)  # a day would need too many looks, one each second
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        await trio.sleep(60)
        assert await tier.manifests.collect() > 3
        collected = {key for key in tiered.store.objects if key.startswith(tiered.place.collections)}
        await delete(tiered)
        assert collected
        assert collected <= set(tiered.store.objects)
