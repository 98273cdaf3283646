"""What lanes have learned of requests: dictionaries by the bytes that say it, which no client can make grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import MutableMapping

T = TypeVar("T")

LEARNED_MAX: Final = 4096  # of all clients together; then it is learned anew
SIZE_MAX_BYTES: Final = 512  # of what says it: a client id may have 32 KiB


def learn(learned: MutableMapping[bytes, T], said: bytes, known: T) -> None:
    """Keeps what was said in so many bytes, unless they are too many."""
    if len(said) > SIZE_MAX_BYTES:
        return
    if len(learned) >= LEARNED_MAX:
        learned.clear()
    learned[said] = known
