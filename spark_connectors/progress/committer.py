"""The thread that commits, so that those who tell it something, Spark's listener bus among them, wait for nothing.

It begins with what it is first told, and ends when it is closed or the program ends. What it does next `groups` says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from spark_connectors.progress.groups import Commit, Groups, Metrics, Outcome, Query
from spark_connectors.wire import WireError
from spark_connectors.wire.clock import Clock

THREAD_NAME: Final = "kafkawire-lag"
_log = logging.getLogger(__name__)


class Committer:
    """Any thread may call it. `commit`, which may raise WireError, and at the end `finish` are called by its own."""

    def __init__(
        self, groups: Groups, commit: Callable[[Commit], Outcome], finish: Callable[[], None], clock: Clock
    ) -> None:
        self._groups = groups
        self._commit = commit
        self._finish = finish
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_over = False

    def tell(self, what: Callable[[Groups], None]) -> None:
        """Returns at once; nobody listens any more once it is closed."""
        with self._changed:
            if self._is_closed:
                return
            what(self._groups)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, queries: Collection[Query], timeout_s: float) -> bool:
        """Waits until these, or all if none is named, have ended, and what they told is committed; whether it is.

        What is refused is not waited for. What is lacking is logged.
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
        """What is waiting is tried once more, by the thread, which is waited for so long."""
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._is_over = self._thread is None
                self._groups.hurry()
                self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def metrics(self) -> Metrics:
        """As of now."""
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
        """Waits for it; None at the end."""
        with self._changed:
            while True:
                now_s = self._clock.now_s()
                wanted = self._groups.take(now_s)
                if wanted is not None or self._is_closed:
                    return wanted
                self._changed.wait(self._groups.pause_s(now_s))

    def _attempt(self, wanted: Commit) -> None:
        try:
            outcome: Outcome | None = self._commit(wanted)
            trouble = ""
        except WireError as error:
            outcome, trouble = None, str(error)
        except Exception as error:  # a bug of ours: a thread that died of it would say nothing ever again
            outcome, trouble = None, repr(error)
        with self._changed:
            if outcome is None:
                line = self._groups.failed(wanted, trouble, self._clock.now_s())
            else:
                line = self._groups.done(wanted, outcome)
            if line is not None:
                _log.warning("%s", line)  # said before those go on who wait for the commit
            self._changed.notify_all()
