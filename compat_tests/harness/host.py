"""Programs of clients in any language, in processes of their own that get commands."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from compat_tests.harness.requirements import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 30.0
Event = dict[str, Any]


class Host:
    """A process that prints events and reads commands, one JSON document a line."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._changed = threading.Condition()
        self._complaints: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_complaints, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line) | {"heard_at": f"{datetime.now(UTC):%T.%f}"}  # as brokers' logs tell the time
            with self._changed:
                self._events[event.get("member", "")].append(event)
                self._changed.notify_all()

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaints = [*self._complaints[-50:], line]

    def send(self, command: Event) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def events(self, member: str) -> list[Event]:
        with self._changed:
            return list(self._events[member])

    def wait(self, condition: Callable[[], bool], complaint: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the condition holds; it is evaluated after every event."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, complaint()
            assert self._process.poll() is None, complaint()
            with self._changed:
                self._changed.wait(min(left, 0.1))

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        code: int | None = self._process.poll()
        return code

    def complaints(self) -> str:
        return "".join(self._complaints)

    def kill(self) -> None:
        self._process.kill()
        self._finish()

    def leave(self, timeout_s: float = TIMEOUT_S) -> None:
        """Close stdin and wait for the process; if it does not end in time, kill it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            if not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:  # unsent commands to a process that was killed
                    continue
