"""Listings of all objects below a prefix, and the same work for many objects, several at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tiering.object_store import ObjectInfo, ObjectStore

T = TypeVar("T")


async def objects_below(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    """All objects below a prefix in the order of their keys, as far as listings have them. Raises StoreError."""
    objects: list[ObjectInfo] = []
    while found := await store.list_after(prefix, objects[-1].key if objects else ""):
        objects += found
    return objects


async def keys_below(store: ObjectStore, prefix: str) -> list[str]:
    """The keys of `objects_below`."""
    return [one.key for one in await objects_below(store, prefix)]


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int, *, stops: bool = False
) -> None:
    """Do the work for each item, `at_once` at a time.

    Raises the first error, unwrapped, after all items were tried. With `stops`, no item is begun after an error.
    """
    limit, errors = trio.CapacityLimiter(at_once), list[Exception]()

    async def one_of_them(item: T) -> None:
        async with limit:
            if stops and errors:
                return
            try:
                await work(item)
            except Exception as error:  # raised to the caller, because the nursery would wrap it
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one_of_them, item)
    if errors:
        raise errors[0]
