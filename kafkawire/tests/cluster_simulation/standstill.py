"""A process that stands still, as under SIGSTOP, while others on the same loop go on.

A process is a tree of tasks. While it stands still none of them runs: what wakes one of them, a deadline or what
another process does, is kept, and takes effect when it goes on. So time passes for it, and what is sent to it arrives.
What the kernel would do meanwhile for a stopped process, as to end a sync that is under way, is not done before it goes
on; and what was about to run in the very step in which it is stopped still does.
"""

from __future__ import annotations

from typing import Any

import trio
from trio.lowlevel import Task


def _runner() -> Any:
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner


class Standstill(trio.abc.Instrument):
    """Of the process with this task at its root. Life: from `begin` to `end`."""

    def __init__(self, root: Task) -> None:
        self._root = root
        self._kept: list[Task] = []

    def begin(self) -> None:
        queue = _runner().runq
        self._kept = [task for task in queue if self._is_in_process(task)]
        for task in self._kept:
            queue.remove(task)
        trio.lowlevel.add_instrument(self)

    def end(self) -> None:
        """What has come meanwhile happens now, in its order."""
        trio.lowlevel.remove_instrument(self)
        _runner().runq.extend(self._kept)
        self._kept = []

    def task_scheduled(self, task: Task) -> None:
        if self._is_in_process(task):
            assert _runner().runq.pop() is task
            self._kept.append(task)

    def _is_in_process(self, task: Task | None) -> bool:
        while task is not None and task is not self._root:
            nursery = task.parent_nursery
            task = None if nursery is None else nursery.parent_task
        return task is self._root
