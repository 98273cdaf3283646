"""Time as the rest of this package sees it: a moment, and a pause. Tests put another one in its place."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`now_s` never goes back and means nothing by itself."""

    def now_s(self) -> float: ...

    def sleep(self, duration_s: float) -> None: ...


class SystemClock:
    """The machine's."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)
