"""`kafkawire` that counts conflicts and waits: for `contention.py` alone, no part of the product.

It counts changes of the metadata and those that another broker overtook, checkpoints, and the waits for the one lock
that a log dir has for checkpoints and for the work that excludes them. The notes are written when the broker leaves.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import trio

from benchmarks.lib import watched
from coordinator.metadata.change_log import ChangeLog, Overtaken
from engine.commit.commit_log import CommitLog
from kafkawire.cli import main

if TYPE_CHECKING:
    from types import FrameType

OUTSIDE = ("commit_log.py", "contextlib.py", "contention_broker.py")

notes: dict[str, Any] = {"changes_s": [], "overtaken": 0, "checkpoints_s": [], "waits_s": defaultdict(list)}
_commit, _checkpoint, _init = ChangeLog.commit, CommitLog.checkpoint_alone, CommitLog.__init__


async def commit(self: ChangeLog, *arguments: Any) -> Any:
    begun_s = time.monotonic()
    try:
        image = await _commit(self, *arguments)
    except Overtaken:
        notes["overtaken"] += 1
        raise
    notes["changes_s"].append(time.monotonic() - begun_s)
    return image


async def checkpoint_alone(self: CommitLog, *arguments: Any) -> None:
    begun_s = time.monotonic()
    await _checkpoint(self, *arguments)
    notes["checkpoints_s"].append(time.monotonic() - begun_s)


class WatchedLock:
    """Notes each wait for it: the function that wanted it, and for how long."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> Self:
        kind, begun_s = _wanted_by(sys._getframe(1)), time.monotonic()
        await self._lock.acquire()
        notes["waits_s"][kind].append(time.monotonic() - begun_s)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._lock.release()


def _wanted_by(frame: FrameType | None) -> str:
    while frame is not None and Path(frame.f_code.co_filename).name in OUTSIDE:
        if frame.f_code.co_name in ("keep_checkpoints", "expect_gaps"):
            return frame.f_code.co_name
        frame = frame.f_back
    return "no function" if frame is None else f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


def init(self: CommitLog, *arguments: Any) -> None:
    _init(self, *arguments)
    vars(self)["_checkpointing"] = WatchedLock()


if __name__ == "__main__":
    for where, name, instead in (
        (ChangeLog, "commit", commit),
        (CommitLog, "checkpoint_alone", checkpoint_alone),
        (CommitLog, "__init__", init),
    ):
        setattr(where, name, instead)
    try:
        main()
    finally:
        watched.write(notes)
