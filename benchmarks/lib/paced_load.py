"""Load that sends requests when they are due, answered or not: how long does a client in no hurry wait?

A load that sends the next request behind an answer (`kafkawire.client.load`) keeps the broker busy all the time: its
requests mostly wait for each other. At a pace well below the broker's maximum, they wait for other work.
"""

from __future__ import annotations

import select
from collections import deque
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING

from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkawire.client.load import Requests

STALL_TIMEOUT_S = 30.0


class PacedConnection:
    """A connection, with the times when its requests in flight were sent."""

    def __init__(self, port: int, requests: Requests) -> None:
        self.wire = WireConnection(port)
        self._requests = requests
        self._sent = 0
        self._sent_at: deque[float] = deque()

    def send(self) -> None:
        frame = bytes(self._requests.prepare(self._sent))
        self._sent += 1
        self._sent_at.append(perf_counter())
        self.wire.send_bytes(frame)

    def receive(self) -> float:
        """Receive an answer. Returns its latency in seconds."""
        answer = self.wire.receive_frame()
        if answer is None:
            raise LoadFailed("the broker closed a connection")
        self._requests.check(answer)
        return perf_counter() - self._sent_at.popleft()


def run_paced(port: int, requests: Sequence[Requests], per_s: float) -> list[float]:
    """Send so many requests a second in all, each connection in its turn, and wait for all answers. Returns their
    latencies."""
    latencies_s: list[float] = []
    with ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        connections = [PacedConnection(port, each) for each in requests]
        for connection in connections:
            stack.enter_context(connection.wire)
            poll.register(connection.wire, select.EPOLLIN)
        by_descriptor = {connection.wire.fileno(): connection for connection in connections}
        total, sent, begun_s = sum(each.count for each in requests), 0, perf_counter()
        while len(latencies_s) < total:
            until_due_s = begun_s + sent / per_s - perf_counter() if sent < total else STALL_TIMEOUT_S
            if until_due_s <= 0:
                connections[sent % len(connections)].send()
                sent += 1
                continue
            events = poll.poll(until_due_s)
            if not events and sent == total:
                raise LoadFailed(f"no reply for {STALL_TIMEOUT_S:g} s")
            latencies_s += [by_descriptor[descriptor].receive() for descriptor, _ in events]
    return latencies_s
