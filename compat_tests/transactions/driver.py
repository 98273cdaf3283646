"""What a transactional producer does in its own process, whatever the client library: it obeys what comes on stdin.

Both directions are JSON, one document a line; producers in other languages (TransactionHost.java, and the folders `go`
and `node`) speak the same language. Whatever the library raises is told in the answer: the test says what it should be.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Producer(Protocol):
    """One library's producer, of a transactional id; `send` returns when the record is acknowledged."""

    def initialise(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None: ...
    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def main(connect: Callable[[str, str, int], Producer]) -> None:
    """Connects with broker, transactional id and time-out (ms) of the command line, and serves until told to close."""
    bootstrap, transactional_id, timeout_ms = sys.argv[1:]
    producer = connect(bootstrap, transactional_id, int(timeout_ms))
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        do = command.pop("do")
        error = ""
        try:
            getattr(producer, do)(**command)
        except Exception as raised:  # each library has its own
            error = f"{type(raised).__name__}: {raised}"
        sys.stdout.write(json.dumps({"event": "done", "do": do, "error": error}) + "\n")
        sys.stdout.flush()
        if do == "close":
            return
