"""How large bodies of requests may be: hardly anything here reads one. Pure.

Those that may be large are held in memory while they come and are answered, so there are few at a time.
"""

from __future__ import annotations

import re
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
LARGE_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
LARGE_AT_ONCE_MAX: Final = 4
_LARGE: Final = re.compile(rb"/v1/topics/[^/?]+/batches(\?.*)?")


class Bodies:
    """Of all connections of a listener."""

    def __init__(self) -> None:
        self._large = 0

    @staticmethod
    def bytes_max(method: bytes, target: bytes) -> int:
        """Of one that is sent there."""
        return LARGE_BODY_BYTES_MAX if method == b"POST" and _LARGE.fullmatch(target) else BODY_BYTES_MAX

    def take(self) -> bool:
        """Whether there is room for one more that is large; then it is to be given back."""
        if self._large == LARGE_AT_ONCE_MAX:
            return False
        self._large += 1
        return True

    def give_back(self) -> None:
        self._large -= 1
