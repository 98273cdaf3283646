"""Output of a writer in a process of its own, a JSON document a line: `acked` for each record, `failed`, `ended`."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FINISH_TIMEOUT_S = 60


def numbers(records_per_s: float) -> Iterator[int]:
    """Count at so many numbers a second, until stdin ends."""
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    for number in itertools.count():
        if is_over.wait(1 / records_per_s):
            return
        yield number


def print_acked(partition: int, offset: int, value: str) -> None:
    _print_event(acked=[partition, offset, value])


def print_failed(value: str, error: BaseException) -> None:
    _print_event(failed=f"{value}: {error!r}")


def print_ended(name: str) -> None:
    _print_event(ended=name)


def _print_event(**event: object) -> None:
    """Write an event. The libraries call it from threads of their own."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
