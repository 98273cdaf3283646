"""Garbage collection, and audits of damaged objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testkit.tiered_logs import Tiered, copy_all, now_ms
from tiering.errors import TierDamaged
from tiering.gc import LEFT_AFTER_MS, Leftover, delete_leftovers, leftovers
from tiering.inventory.audit import Audited, audit
from tiering.inventory.inventory import Part, clusters, holding_of
from tiering.manifest.manifest import Page
from tiering.names import Place
from tiering.object_store import Content
from tiering.stores.memory import MemoryStore, Operation
from tiering.tests.test_topic_deletion import delete

if TYPE_CHECKING:
    from tiering.inventory.inventory import PartitionHolding


def part_of(tiered: Tiered) -> Part:
    return Part(tiered.store, "", "cluster")


async def found_in(tiered: Tiered) -> list[Leftover]:
    """The objects without a use, a day later."""
    return await leftovers(part_of(tiered), now_ms() + LEFT_AFTER_MS)


async def audited(tiered: Tiered, *, reads: bool = False) -> Audited:
    found = Audited()
    await audit(part_of(tiered), await holding(tiered), found, reads=reads)
    return found


async def holding(tiered: Tiered) -> PartitionHolding:
    return await holding_of(part_of(tiered), tiered.place)


async def test_objects_in_use_are_not_garbage() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        await tiered.store.put("cluster/owner/0000000000", Content.of(b""))
        await tiered.store.put("other/thing", Content.of(b""))
        assert await found_in(tiered) == []


async def test_old_object_that_no_manifest_names_is_garbage() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        page = tiered.place.page(Page(0, 10, 7, "digest", 1, 10))
        strange = [f"{tiered.place.prefix}{0:020d}-{9:020d}-{0:010d}-digest", page]
        for key in strange:
            await tiered.store.put(key, Content.of(b"x"))
        assert await leftovers(part_of(tiered), now_ms()) == []
        found = await found_in(tiered)
        assert [one.found.key for one in found] == sorted(strange)
        assert {one.reason for one in found} == {"no manifest names it"}
        before = len(tiered.store.objects)
        assert await delete_leftovers(part_of(tiered), found) == 2
        assert len(tiered.store.objects) == before - 2


async def test_probe_object_of_a_killed_start_is_deleted() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        await tiered.store.put("probe/abc", Content.of(b"first"))
        found = await found_in(tiered)
        assert [(one.found.key, one.reason) for one in found] == [("probe/abc", "of a start that was killed")]
        assert await delete_leftovers(part_of(tiered), found) == 1


async def test_object_of_an_unfinished_copy_is_not_garbage() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        manifest = await tiered.manifest()
        last = manifest.entries[-1]
        del tiered.store.objects[tiered.place.manifest(manifest.version)]  # as if its last version had not come yet
        assert await found_in(tiered) == []
        assert tiered.place.segment(last) in tiered.store.objects


async def test_garbage_that_a_newer_manifest_names_is_not_deleted() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        newest = tiered.place.manifest((await tiered.manifest()).version)
        kept = {key: tiered.store.objects[key] for key in tiered.store.objects if "/manifest/" in key}
        for key in sorted(kept)[1:]:
            del tiered.store.objects[key]
        found = await found_in(tiered)
        assert found
        tiered.store.objects |= kept
        assert await delete_leftovers(part_of(tiered), found) == 0
        assert newest in tiered.store.objects


async def test_objects_of_a_deleted_topic_are_deleted() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        before = dict(tiered.store.objects)
        await delete(tiered)
        kept = set(tiered.store.objects)
        tiered.store.objects |= {key: found for key, found in before.items() if key not in kept}
        found = await found_in(tiered)
        assert {one.reason for one in found} == {"of a deleted topic"}
        assert await delete_leftovers(part_of(tiered), found) == len(before)
        assert set(tiered.store.objects) == kept
        assert (await holding(tiered)).manifest.is_deleted


async def test_unknown_key_in_the_store_raises_tier_damaged() -> None:
    store = MemoryStore()
    await store.put(f"cluster/{'0' * 32}/notes/a", Content.of(b""))
    with pytest.raises(TierDamaged, match="belongs to nothing"):
        await leftovers(Part(store, "", "cluster"), LEFT_AFTER_MS)


async def test_clusters_returns_the_cluster_ids_of_a_store() -> None:
    store = MemoryStore()
    for key in ("lake/a/owner/0", "lake/a/topics/x", "lake/a0/x/y", "lake/probe/z", "lake/zz/1/2", "other/a"):
        await store.put(key, Content.of(b""))
    assert await clusters(store, "lake/") == ["a", "a0", "zz"]
    assert await clusters(store, "nothing/") == []


@pytest.mark.parametrize("reads", [False, True])
async def test_audit_of_undamaged_objects_finds_no_problems(reads: bool) -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        count = await copy_all(tier)
        found = await audited(tiered, reads=reads)
        assert (found.objects, found.problems) == (count, [])
        sizes = [len(tiered.store.objects[key][0]) for key in tiered.segments()]
        assert found.size_bytes == (sum(sizes) if reads else 0)


async def test_audit_lists_missing_shorter_and_changed_objects() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        first, second, third, *_ = tiered.segments()
        objects = tiered.store.objects
        del objects[first]
        objects[second] = objects[second][0][:-1], 0
        data = objects[third][0]
        objects[third] = data[:50] + bytes([data[50] ^ 1]) + data[51:], 0
        problems = (await audited(tiered)).problems
        assert [one.partition(" ")[2] for one in sorted(problems)] == [
            "is missing",
            f"has {len(objects[second][0])} bytes, not {len(objects[second][0]) + 1}",
            "has another CRC than it had",
        ]


async def test_a_store_that_lies_is_found_by_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        key = tiered.segments()[0]
        data, _ = tiered.store.objects[key]
        info = await tiered.store.head(key)
        assert info is not None
        tiered.store.objects[key] = data[:50] + bytes([data[50] ^ 1]) + data[51:], 0
        head = tiered.store.head

        async def lying(asked: str) -> object:
            return info if asked == key else await head(asked)

        monkeypatch.setattr(tiered.store, "head", lying)
        assert not (await audited(tiered)).problems
        assert (await audited(tiered, reads=True)).problems == [f"{key} differs from the object that was uploaded"]


async def test_holding_of_a_partition_comes_from_its_manifest_and_its_last_object() -> None:
    tiered = Tiered()
    async with tiered.life() as tier:
        await copy_all(tier)
        found = await holding(tiered)
        manifest = await tiered.manifest()
        assert (found.log_start, found.end, found.segments) == (0, manifest.end, len(manifest.entries))
        assert found.producers
        puts = tiered.store.requests[Operation.PUT]
        assert await holding_of(part_of(tiered), Place("", "cluster", bytes(16), 9)) is not None
        assert tiered.store.requests[Operation.PUT] == puts
