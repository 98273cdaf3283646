"""Log of reads without records, although these were loaded several times: they left the memory before they were sent.

The client asks again, and such a read may succeed any time. If it never does, an operator has to know.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import structlog
import trio

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LINE_EVERY_S: Final = 60.0

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class UnservedReads:
    """Writes a line for the first unserved read of a minute; the next line counts the others."""

    def __init__(self) -> None:
        self._next_line_s = -inf
        self._unlogged = 0

    def note(self, topic: str, partition: int, offset: int) -> None:
        """Note a read that stays without records for now."""
        now_s = trio.current_time()
        if now_s < self._next_line_s:
            self._unlogged += 1
            return
        unlogged = {"unlogged": self._unlogged} if self._unlogged else {}
        _log.warning("loaded records not in memory", topic=topic, partition=partition, offset=offset, **unlogged)
        self._next_line_s, self._unlogged = now_s + LINE_EVERY_S, 0
