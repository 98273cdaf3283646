"""What is done to many objects of a store: all that there are, and the same work for each of many, some at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tiering.object_store import ObjectInfo, ObjectStore

T = TypeVar("T")


async def objects_below(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    """In the order of their keys, as far as listings tell. Raises what a store does."""
    objects: list[ObjectInfo] = []
    while found := await store.list_after(prefix, objects[-1].key if objects else ""):
        objects += found
    return objects


async def keys_below(store: ObjectStore, prefix: str) -> list[str]:
    """Their keys alone."""
    return [one.key for one in await objects_below(store, prefix)]


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], at_once: int, *, stops: bool = False
) -> None:
    """So many at a time. Raises the first of what went wrong, as it is, when all have been tried; with `stops`, when no
    more of them are under way, and none is begun behind it."""
    limit, errors = trio.CapacityLimiter(at_once), list[Exception]()

    async def one_of_them(item: T) -> None:
        async with limit:
            if stops and errors:
                return
            try:
                await work(item)
            except Exception as error:  # told to whoever asked, not to the nursery, which would wrap it
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for item in items:
            nursery.start_soon(one_of_them, item)
    if errors:
        raise errors[0]
