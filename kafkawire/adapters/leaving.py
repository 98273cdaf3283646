"""Bounds of an orderly stop: no step waits for a disk that hangs longer than the whole stop can afford.

A stop has 30 s (`kafkawire.process.run.STOP_MAX_S`): up to 17 s in which other brokers take over, up to 10 s in which
requests are answered, and the rest to sync the log dirs and to mark them clean.
"""

from typing import Final

import trio

LEAVE_MAX_S: Final = 17.0  # more than a controlled shutdown takes (`coordinator.cluster_manager`)


async def close_when_overdue(stop: trio.Event, closing: trio.Event) -> None:
    """Set `closing` if, `LEAVE_MAX_S` after `stop`, the controlled shutdown still waits for a disk that hangs."""
    await stop.wait()
    await trio.sleep(LEAVE_MAX_S)
    closing.set()
