"""Ownership of a cluster's part of a store: one object for each restore of the cluster. docs/formats/tier.md.

A broker from before a restore finds a newer owner, and has to stop: its writes would not count any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tiering.checked_json import FORMAT
from tiering.errors import Fenced, TierDamaged
from tiering.object_store import Content, ObjectExists
from tiering.parallel import keys_below

if TYPE_CHECKING:
    from tiering.object_store import ObjectStore

_GENERATION_DIGITS = 10


class _Owner(msgspec.Struct):
    generation: int
    since_ms: int
    v: int = FORMAT


def owners(root: str, cluster_id: str) -> str:
    """The prefix of the keys of owners."""
    return f"{root}{cluster_id}/owner/"


async def newest_owner(store: ObjectStore, root: str, cluster_id: str) -> int | None:
    """The newest owner generation; None without any. Raises StoreError and TierDamaged."""
    prefix = owners(root, cluster_id)
    generations = [_generation_of(key, prefix) for key in await keys_below(store, prefix)]
    generation = generations[-1] if generations else None
    following = 0 if generation is None else generation + 1
    while await store.head(_key(root, cluster_id, following)) is not None:  # a listing may lag behind
        generation, following = following, following + 1
    return generation


async def take_over(store: ObjectStore, root: str, cluster_id: str, generation: int, now_ms: int) -> None:
    """Become the owner of `generation`, the first of all, or the one behind the newest.

    Raises ObjectExists if there is one already, and StoreError.
    """
    content = Content.of(msgspec.json.encode(_Owner(generation, now_ms)) + b"\n")
    await store.put(_key(root, cluster_id, generation), content, if_absent=True)


async def confirm_owner(store: ObjectStore, root: str, cluster_id: str, generation: int, now_ms: int) -> None:
    """Take ownership, if this generation does not have it yet. Raises Fenced if there is a newer owner, and
    StoreError."""
    newest = await newest_owner(store, root, cluster_id)
    if newest is None or newest < generation:
        try:
            await take_over(store, root, cluster_id, generation, now_ms)
        except ObjectExists:
            return  # a reply was lost, or another broker of the cluster was faster
    elif newest > generation:
        raise Fenced(f"{owners(root, cluster_id)} has generation {newest}: the cluster was restored from there")


def _key(root: str, cluster_id: str, generation: int) -> str:
    return f"{owners(root, cluster_id)}{generation:0{_GENERATION_DIGITS}d}"


def _generation_of(key: str, prefix: str) -> int:
    digits = key.removeprefix(prefix)
    if len(digits) != _GENERATION_DIGITS or not digits.isascii() or not digits.isdigit():
        raise TierDamaged(f"{key} is no owner")
    return int(digits)
