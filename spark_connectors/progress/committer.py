"""The thread that commits, so that callers, Spark's listener bus among them, do not wait.

It starts with the first event, and ends when it is closed or the program ends. `groups` decides its next step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from spark_connectors.progress.groups import Commit, CommitResult, Groups, Metrics, Query
from spark_connectors.wire import WireError
from spark_connectors.wire.clock import Clock

THREAD_NAME: Final = "kafkawire-lag"
_log = logging.getLogger(__name__)


class Committer:
    """Committer with a thread of its own. Its methods are thread-safe. Its thread calls `commit`, which may raise
    WireError, and at the end `finish`.
    """

    def __init__(
        self, groups: Groups, commit: Callable[[Commit], CommitResult], finish: Callable[[], None], clock: Clock
    ) -> None:
        self._groups = groups
        self._commit = commit
        self._finish = finish
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_over = False

    def submit(self, event: Callable[[Groups], None]) -> None:
        """Apply an event to the groups, and return at once. After `close`, events are ignored."""
        with self._changed:
            if self._is_closed:
                return
            event(self._groups)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, queries: Collection[Query], timeout_s: float) -> bool:
        """Wait until these queries (without any: all) have ended and their offsets are committed; returns whether they
        are.

        It does not wait for refused commits. Missing offsets are logged.
        """
        asked = queries or None
        with self._changed:
            self._groups.hurry()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_over or not any(self._groups.unsettled(asked)), timeout_s)
            lacking = [*self._groups.unsettled(asked), *self._groups.refusals(asked).values()]
        if lacking:
            _log.warning("not all offsets are committed: %s", "; ".join(lacking))
        return not lacking

    def close(self, timeout_s: float) -> None:
        """Let the thread try waiting commits once more, and wait for its end up to the timeout."""
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._is_over = self._thread is None
                self._groups.hurry()
                self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def metrics(self) -> Metrics:
        """Current counts and errors."""
        with self._changed:
            return self._groups.metrics()

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            self._attempt(wanted)
        self._finish()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _next(self) -> Commit | None:
        """Wait for the next commit; None at the end."""
        with self._changed:
            while True:
                now_s = self._clock.now_s()
                wanted = self._groups.take(now_s)
                if wanted is not None or self._is_closed:
                    return wanted
                self._changed.wait(self._groups.pause_s(now_s))

    def _attempt(self, wanted: Commit) -> None:
        try:
            outcome: CommitResult | None = self._commit(wanted)
            trouble = ""
        except WireError as error:
            outcome, trouble = None, str(error)
        except Exception as error:  # a bug: if the thread died of it, nothing would be reported any more
            outcome, trouble = None, repr(error)
        with self._changed:
            if outcome is None:
                line = self._groups.failed(wanted, trouble, self._clock.now_s())
            else:
                line = self._groups.done(wanted, outcome)
            if line is not None:
                _log.warning("%s", line)  # logged before the waiting callers continue
            self._changed.notify_all()
