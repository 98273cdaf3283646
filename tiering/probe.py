"""A probe of a store: whether the tier can use it, before anything is put there, and for diagnosis. It leaves no
objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiering.object_store import Content, ObjectExists, StoreError, StoreRefused, StoreUnavailable

if TYPE_CHECKING:
    from tiering.object_store import ObjectStore

SKEW_MAX_MS = 300_000  # S3 refuses requests that are 15 minutes off; old versions are deleted by the store's clock


def probes(root: str) -> str:
    """The prefix of the keys that a probe puts and deletes."""
    return f"{root}probe/"


async def probe(store: ObjectStore, root: str, name: str, now_ms: int) -> str | None:
    """A line on what is wrong with the store, or None. Raises StoreUnavailable.

    `name` is unique; `root` is the prefix of all keys.
    """
    key = f"{probes(root)}{name}"
    try:
        return await _wrong(store, key, now_ms)
    except StoreRefused as refused:
        return f"the store refuses: {refused}"
    except StoreUnavailable:
        raise
    except StoreError as error:
        return f"the store does not carry out a request: {error}"


async def _wrong(store: ObjectStore, key: str, now_ms: int) -> str | None:
    await store.put(key, Content.of(b"first"), if_absent=True)
    try:
        await store.put(key, Content.of(b"second"), if_absent=True)
    except ObjectExists:
        pass
    else:
        await store.delete(key)
        return "the store ignores If-None-Match: two leaders could write the same version"
    try:
        found, data = await store.head(key), await store.get(key)
        listed = [one.key for one in await store.list_after(key.rpartition("/")[0] + "/")]
    finally:
        await store.delete(key)
    if found is None or data != b"first" or key not in listed:
        return "the store does not return the object that was put"
    if await store.head(key) is not None:
        return "the store does not delete"
    if abs(found.modified_ms - now_ms) > SKEW_MAX_MS:
        return f"the clocks of this machine and the store are {abs(found.modified_ms - now_ms) // 1000} s apart"
    return None
