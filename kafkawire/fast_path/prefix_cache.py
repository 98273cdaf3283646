"""Caches of decoded requests by their bytes, with a bound that clients cannot exceed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import MutableMapping

T = TypeVar("T")

LEARNED_MAX: Final = 4096  # over all clients; beyond it the cache begins empty again
SIZE_MAX_BYTES: Final = 512  # of a key: a client id may have 32 KiB


def learn(learned: MutableMapping[bytes, T], said: bytes, known: T) -> None:
    """Cache `known` by the bytes `said`, unless they are too long."""
    if len(said) > SIZE_MAX_BYTES:
        return
    if len(learned) >= LEARNED_MAX:
        learned.clear()
    learned[said] = known
