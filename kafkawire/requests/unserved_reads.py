"""Log of reads without records, although these were loaded several times: they left the memory before they were sent.

The client asks again, and such a read may succeed any time. If it never does, an operator has to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from kafkawire.requests.line_limit import LineLimit

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class UnservedReads:
    """Writes a line for the first unserved read of a minute; the next line counts the others."""

    def __init__(self) -> None:
        self._limit = LineLimit(1)

    def note(self, topic: str, partition: int, offset: int) -> None:
        """Note a read that stays without records for now."""
        unlogged = self._limit.admit(trio.current_time())
        if unlogged is not None:
            more = {"unlogged": unlogged} if unlogged else {}
            _log.warning("loaded records not in memory", topic=topic, partition=partition, offset=offset, **more)
