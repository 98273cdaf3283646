"""Work beside a measurement, in a process of its own: a thread would take turns from the client that measures."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import SynchronizedArray
    from multiprocessing.synchronize import Event

    from kafkawire.client.load import Requests

Arguments = ParamSpec("Arguments")

ANSWERS_MAX = 1_000_000
START_WITHIN_S = 120.0


class BackgroundWork:
    """Latencies of the answers so far. The process beside writes them, and its parent reads them."""

    def __init__(self, latencies_s: SynchronizedArray[float], is_over: Event) -> None:
        self._latencies_s = latencies_s  # the first entry is their count
        self._is_over = is_over

    def note(self, seconds: float) -> None:
        with self._latencies_s.get_lock():
            self._latencies_s[0] += 1
            self._latencies_s[int(self._latencies_s[0])] = seconds

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most. Returns whether the measurement is over."""
        return self._is_over.wait(max(0.0, seconds))

    @property
    def count(self) -> int:
        return int(self._latencies_s[0])

    @property
    def latencies_s(self) -> list[float]:
        return self._latencies_s[1 : self.count + 1]


@contextmanager
def working(
    work: Callable[Concatenate[BackgroundWork, Arguments], None], *arguments: Arguments.args, **names: Arguments.kwargs
) -> Iterator[BackgroundWork]:
    """Run `work` in a process until the end of the block, which begins with the first answer. `work` notes its
    answers."""
    context = multiprocessing.get_context("spawn")
    is_over = context.Event()
    background = BackgroundWork(context.Array("d", ANSWERS_MAX), is_over)
    process = context.Process(target=work, args=(background, *arguments), kwargs=names)
    process.start()
    try:
        deadline_s = time.monotonic() + START_WITHIN_S
        while not background.count:
            assert process.is_alive(), "the work beside has ended"
            assert time.monotonic() < deadline_s, "the work beside does not begin"
            time.sleep(0.05)
        yield background
        assert process.is_alive(), "the work beside has ended before the measured work"
    finally:
        is_over.set()
        process.join()


def keep_pace(background: BackgroundWork, port: int, requests: Requests, per_s: float) -> None:
    """Send the first request again and again, one at a time and so often at most, until the measurement is over."""
    frame = bytes(requests.prepare(0))
    with WireConnection(port) as connection:
        due_s = time.perf_counter()
        while not background.wait(due_s - time.perf_counter()):
            due_s += 1 / per_s
            begun_s = time.perf_counter()
            connection.send_bytes(frame)
            answer = connection.receive_frame()
            if answer is None:
                raise LoadFailed("the broker closed the connection")
            requests.check(answer)
            background.note(time.perf_counter() - begun_s)


def keep_under_way(background: BackgroundWork, port: int, requests: Requests, in_flight: int) -> None:
    """Send the first request again and again, with so many always in flight, until the measurement is over."""
    frame = bytes(requests.prepare(0))
    sent_at = deque[float]()
    with WireConnection(port) as connection:
        while not background.wait(0):
            while len(sent_at) < in_flight:
                sent_at.append(time.perf_counter())
                connection.send_bytes(frame)
            answer = connection.receive_frame()
            if answer is None:
                raise LoadFailed("the broker closed the connection")
            requests.check(answer)
            background.note(time.perf_counter() - sent_at.popleft())
