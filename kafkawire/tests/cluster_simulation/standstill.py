"""A process that stands still, as under SIGSTOP, while others on the same event loop go on.

A process is a tree of tasks. While it stands still none of them runs: events that wake one of them, such as a deadline
or data of another process, are kept, and take effect when it goes on. So its time passes, and data that are sent to it
arrive. Work that the kernel would finish meanwhile for a stopped process, such as a sync, is finished only when it goes
on; and a task that was to run in the very step of the stop still runs.
"""

from __future__ import annotations

from typing import Any

import trio
from trio.lowlevel import Task


def _runner() -> Any:
    return trio._core._run.GLOBAL_RUN_CONTEXT.runner


class Standstill(trio.abc.Instrument):
    """The standstill of the process with this root task, from `begin` to `end`."""

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
        """Let the process go on: the kept events take effect in their order."""
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
