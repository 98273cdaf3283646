"""Caches of decoded requests by their bytes, with a bound that clients cannot exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import MutableMapping

T = TypeVar("T")

CACHED_MAX: Final = 4096  # over all clients; beyond it the cache begins empty again
SIZE_MAX_BYTES: Final = 512  # of a key: a client id may have 32 KiB


def learn(cache: MutableMapping[bytes, T], key: bytes, value: T) -> None:
    """Cache `value` by the bytes `key`, unless they are too long."""
    if len(key) > SIZE_MAX_BYTES:
        return
    if len(cache) >= CACHED_MAX:
        cache.clear()
    cache[key] = value
