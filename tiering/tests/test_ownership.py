"""Ownership of a cluster's part of a store."""

from __future__ import annotations

import pytest

from tiering.errors import Fenced, TierDamaged
from tiering.object_store import Content, ObjectExists
from tiering.ownership import confirm_owner, newest_owner, owners, take_over
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation


async def test_the_first_is_the_owner_and_stays_so() -> None:
    store = MemoryStore()
    assert await newest_owner(store, "lake/", "cluster") is None
    for _ in range(2):
        await confirm_owner(store, "lake/", "cluster", 0, 1)
        assert await newest_owner(store, "lake/", "cluster") == 0
    assert list(store.objects) == ["lake/cluster/owner/0000000000"]
    assert await newest_owner(store, "lake/", "other") is None


async def test_owner_before_a_restore_is_fenced() -> None:
    store = MemoryStore()
    await confirm_owner(store, "", "cluster", 0, 1)
    await take_over(store, "", "cluster", 1, 2)
    with pytest.raises(ObjectExists):
        await take_over(store, "", "cluster", 1, 2)
    with pytest.raises(Fenced, match="restored"):
        await confirm_owner(store, "", "cluster", 0, 3)
    await confirm_owner(store, "", "cluster", 1, 3)


async def test_lagging_listing_does_not_hide_the_newest_owner() -> None:
    store = MemoryStore()
    await take_over(store, "", "cluster", 0, 1)
    await take_over(store, "", "cluster", 1, 1)
    store.fault = lambda operation, _key: Fault(is_stale=True) if operation is Operation.LIST else HEALTHY
    assert await newest_owner(store, "", "cluster") == 1


async def test_owner_whose_object_is_missing_puts_it_again() -> None:
    store = MemoryStore()
    await confirm_owner(store, "", "cluster", 3, 1)
    assert await newest_owner(store, "", "cluster") == 3


async def test_malformed_owner_key_raises_tier_damaged() -> None:
    store = MemoryStore()
    await store.put(f"{owners('', 'cluster')}notes.txt", Content.of(b""))
    with pytest.raises(TierDamaged, match=r"notes.txt is no owner"):
        await newest_owner(store, "", "cluster")
