"""The process of a transactional producer, for all client libraries: it obeys commands from stdin.

Both directions are JSON, one document a line; producers in other languages (TransactionHost.java, and the folders `go`
and `node`) use the same protocol. An error that the library raises is a part of the answer: the test checks it.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Producer(Protocol):
    """The producer of a library, with a transactional id; `send` returns when the record is acknowledged."""

    def initialise(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None: ...
    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def main(connect: Callable[[str, str, int], Producer]) -> None:
    """Connect with broker, transactional id and time-out (ms) of the command line, and obey commands until told to
    close."""
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
