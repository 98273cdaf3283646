"""Deletion of a deleted topic from the tier. The caller knows of the deletion durably; an unknown topic is never
deleted.

The last manifest of a partition stays: it says that the partition is deleted, with a fence above all leaders. So a
broker that still believes that it leads the partition is fenced at its next write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tiering.manifest.manifest import NO_LEADERS_EPOCH, Fence, Manifest
from tiering.manifest.manifest_log import Author, Change, ManifestLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiering.names import Place
    from tiering.object_store import ObjectStore


async def delete_partition(
    store: ObjectStore, place: Place, owner_generation: int, new_nonce: Callable[[], str], now_ms: Callable[[], int]
) -> int:
    """Delete the objects of a partition; returns how many.

    It may be repeated, and has to be when late requests have taken effect. Raises StoreError, Fenced, TierDamaged,
    OtherVersion.
    """
    author = Author(Fence(owner_generation, NO_LEADERS_EPOCH), "deleted", new_nonce, now_ms)
    manifests = ManifestLog(store, place, author)
    last = await manifests.change(_deleted)
    await manifests.close()
    kept = place.manifest(last.version)
    after, count = "", 0
    while found := await store.list_after(place.prefix, after):
        after = found[-1].key
        for one in found:
            if one.key != kept and not one.key.startswith(place.collections):
                await store.delete(one.key)
                count += 1
    return count


async def _deleted(manifest: Manifest) -> Change | None:
    if manifest.is_deleted:
        return None
    return Change(replace(manifest, is_deleted=True, pages=(), entries=(), copying=None, doomed=(), epochs=()))
