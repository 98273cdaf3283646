"""`kafkawire` with a watch on its event loop: for `loop_lag.py` alone, no part of the product.

A task sleeps for a moment again and again and notes how late it wakes; the notes are written when the broker leaves.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.lib import watched
from kafkawire.cli import main
from kafkawire.process import run

if TYPE_CHECKING:
    import threading

    from kafkawire.config.broker_config import Config

INTERVAL_S = 0.002

_main: Any = run._main


async def watch(notes: list[tuple[float, float]]) -> None:
    while True:
        due_s = time.monotonic() + INTERVAL_S
        await trio.sleep(INTERVAL_S)
        now_s = time.monotonic()
        notes.append((now_s, now_s - due_s))


async def watched_main(config: Config, guard: threading.Timer) -> None:
    notes: list[tuple[float, float]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, notes)
        try:
            await _main(config, guard)
        finally:
            nursery.cancel_scope.cancel()
            watched.write(notes)


if __name__ == "__main__":
    setattr(run, "_main", watched_main)  # noqa: B010 - a name of its own would be a switch in the product
    sys.exit(main())
