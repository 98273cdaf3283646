"""Division of the process's file descriptors: connections must not take those of the log dirs.

Log dirs open files all the time: mostly segments, but also checkpoints, footers and the index. Descriptors that are
neither for segments nor for connections are reserved for these files, for HTTP and for the listeners.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

RESERVED_MAX: Final = 1024


class Descriptors(NamedTuple):
    """Maximum numbers of open segment files and of connections. Segments with unsynced data are not counted."""

    segments_max: int
    connections_max: int

    @classmethod
    def divide(cls, count: int) -> Descriptors:
        """Divide `count` descriptors; half of them are for segments."""
        return cls(count // 2, count - count // 2 - min(count // 4, RESERVED_MAX))

    @classmethod
    def of_this_process(cls) -> Descriptors:
        """Divide the descriptors that the process may have now."""
        return cls.divide(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


PLENTY: Final = Descriptors.divide(1 << 20)
