"""Pacing of content that is put to a store, on a thread that may wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tiering.object_store import Content

LEAST_BYTES_PER_S: Final = 2_000_000  # if it were slower, a store might give up the connection


def evenly(
    content: Content,
    now_s: Callable[[], float] = time.monotonic,
    sleep_s: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """The slices of a content, each when its share of `spread_s` is over, so that other users of the disk get their
    share.

    Raises ContentUnreadable.
    """
    byte_s = min(content.spread_s / max(1, content.size_bytes), 1 / LEAST_BYTES_PER_S)
    begun_s, given_bytes = now_s(), 0
    for data in content.slices():
        yield data
        given_bytes += len(data)
        early_s = begun_s + given_bytes * byte_s - now_s()
        if early_s > 0:
            sleep_s(early_s)
