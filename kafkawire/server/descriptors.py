"""How the descriptors of the process are shared out: those who connect must not take what the log dirs need.

A log dir opens files all the time, segments most of all, but also checkpoints, footers and the index. What is neither
its segments' nor the connections' is kept for these, for HTTP and for the listeners.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

RESERVED_MAX: Final = 1024


class Descriptors(NamedTuple):
    """How many files of segments may be open, not counting what is not durable in them, and how many connections."""

    segments_max: int
    connections_max: int

    @classmethod
    def shared_out(cls, count: int) -> Descriptors:
        """Half of them are for segments."""
        return cls(count // 2, count - count // 2 - min(count // 4, RESERVED_MAX))

    @classmethod
    def of_this_process(cls) -> Descriptors:
        """As many as it may have now."""
        return cls.shared_out(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


PLENTY: Final = Descriptors.shared_out(1 << 20)
