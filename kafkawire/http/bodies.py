"""Limits on the bodies of requests: few requests have one. Pure.

Large bodies are held in memory until they are answered, so their number is limited.
"""

from __future__ import annotations

import re
from typing import Final

BODY_BYTES_MAX: Final = 64 * 1024
LARGE_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
LARGE_AT_ONCE_MAX: Final = 4
_LARGE: Final = re.compile(rb"/v1/topics/[^/?]+/batches(\?.*)?")


class Bodies:
    """Large bodies of all connections of a listener."""

    def __init__(self) -> None:
        self._large = 0

    @staticmethod
    def bytes_max(method: bytes, target: bytes) -> int:
        """Maximum size of the body of a request to `target`."""
        return LARGE_BODY_BYTES_MAX if method == b"POST" and _LARGE.fullmatch(target) else BODY_BYTES_MAX

    def take(self) -> bool:
        """Whether there is room for one more large body. If so, return it by `give_back` later."""
        if self._large == LARGE_AT_ONCE_MAX:
            return False
        self._large += 1
        return True

    def give_back(self) -> None:
        self._large -= 1
