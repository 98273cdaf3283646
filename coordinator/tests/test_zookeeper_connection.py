"""A silent ZooKeeper server is left within the read timeout, even while requests are sent: kazoo on a simulated
clock."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.protocol import connection as kazoo_connection
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.states import KeeperState

from coordinator.metadata_store.zookeeper_connection import Handler, ReceiveLimit, ServerConnection

SESSION_S = 18.0
READ_TIMEOUT_S = SESSION_S * 2 / 3
SERVER, REQUESTS = "the server's socket", "the socket that tells of requests"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Line(Handler):
    """Requests are made at an interval; the server answers each of them, or from a moment on nothing."""

    def __init__(self, clock: Clock, request_every_s: float, silent_from_s: float) -> None:
        super().__init__(9.0, ReceiveLimit(clock))
        self.clock = clock
        self.every_s = request_every_s
        self.silent_from_s = silent_from_s
        self.next_request_s = clock.now_s + request_every_s
        self.unread = 0

    def wait_for_sockets(self, *arguments: Any) -> Any:
        reading, _, _, timeout_s = arguments
        if SERVER in reading and self.unread:
            return [SERVER], [], []
        until_s = min(self.clock.now_s + timeout_s, self.next_request_s)
        self.clock.now_s = max(self.clock.now_s, until_s)
        assert self.clock.now_s < 100.0 + 4 * SESSION_S, "the silent server was not left"
        return ([REQUESTS] if self.clock.now_s >= self.next_request_s else []), [], []

    def sent(self) -> None:
        self.unread += self.clock.now_s < self.silent_from_s


def dropped_after_s(
    monkeypatch: pytest.MonkeyPatch, request_every_s: float, silent_after_s: float = 0.0, stopped_at: int | None = None
) -> tuple[float, list[object]]:
    """Runs kazoo's loop until the connection is dropped: the time of it since the beginning, and the states told."""
    clock = Clock()
    line = Line(clock, request_every_s, clock.now_s + silent_after_s)
    states: list[object] = []
    client = SimpleNamespace(
        handler=line,
        _state=KeeperState.CONNECTING,
        _session_callback=states.append,
        _stopped=threading.Event(),
        _queue=deque(),
    )
    made = ServerConnection(client, None)

    def connect(*_: object) -> tuple[float, float]:
        made._socket = SimpleNamespace(close=lambda: None)
        client._state = KeeperState.CONNECTED
        return READ_TIMEOUT_S * 1000, 9_000.0

    def send(*_: object) -> None:
        line.next_request_s = clock.now_s + request_every_s
        line.sent()

    def ping(_: float) -> None:
        made.ping_outstanding.set()
        line.sent()

    def read(*_: object) -> None:
        line.unread -= 1
        made.ping_outstanding.clear()

    monkeypatch.setattr(kazoo_connection, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(ConnectionHandler, "_connect", connect)
    monkeypatch.setattr(made, "_send_request", send)
    monkeypatch.setattr(made, "_send_ping", ping)
    monkeypatch.setattr(made, "_read_socket", read)
    monkeypatch.setattr(made, "_read_sock", REQUESTS)
    original = line.select

    def select(reading: list[Any], *rest: Any) -> Any:
        return original([SERVER if one is made._socket else one for one in reading], *rest)

    def named(reading: list[Any], *rest: Any) -> Any:
        ready, *others = select(reading, *rest)
        return [made._socket if one is SERVER else one for one in ready], *others

    monkeypatch.setattr(line, "select", named)
    made._connect_attempt("host", "127.0.0.1", 2181, SimpleNamespace(reset=lambda: None))
    return clock.now_s - 100.0, states


@pytest.mark.parametrize("request_every_s", [0.1, 1.0, 3.0, 5.0, 1_000.0])
def test_a_server_that_goes_silent_is_left_within_the_read_timeout_however_often_it_is_asked(
    request_every_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped_s, states = dropped_after_s(monkeypatch, request_every_s)
    assert SESSION_S / 3 <= dropped_s <= READ_TIMEOUT_S
    assert states == [KeeperState.CONNECTING]


def test_the_read_timeout_counts_from_the_last_received_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped_s, _ = dropped_after_s(monkeypatch, 1.0, silent_after_s=30.5)
    assert dropped_s == pytest.approx(30 + READ_TIMEOUT_S)


def test_a_server_with_bytes_to_read_is_kept_though_this_process_stood_still() -> None:
    clock = Clock()
    handler = answering(clock, [SERVER])
    handler.receive_limit.begin(READ_TIMEOUT_S)
    clock.now_s += 100
    assert handler.select([SERVER, REQUESTS], [], [], 5.0)[0] == [SERVER]
    assert handler.receive_limit.silent_s == 0


def test_a_wait_to_send_ends_with_the_read_timeout_too() -> None:
    clock = Clock()
    handler = answering(clock, [])
    handler.receive_limit.begin(READ_TIMEOUT_S)
    with pytest.raises(ConnectionDropped):
        handler.select([], [SERVER], [], 60.0)
    assert clock.now_s == 100.0 + READ_TIMEOUT_S


def test_the_read_timeout_does_not_apply_while_connecting() -> None:
    clock = Clock()
    handler = answering(clock, [])
    handler.receive_limit.begin(READ_TIMEOUT_S)
    handler.receive_limit.end()
    assert handler.select([SERVER], [], [], 60.0) == ([], [], [])
    assert clock.now_s == 160.0


def answering(clock: Clock, readable: list[str]) -> Handler:
    """Waits the whole time if nothing is readable."""

    class Scripted(Handler):
        def wait_for_sockets(self, *arguments: Any) -> Any:
            clock.now_s += 0 if readable else arguments[-1]
            return readable, [], []

    return Scripted(9.0, ReceiveLimit(clock))


def test_kazoo_reads_by_the_method_that_is_overridden_and_names_the_servers_socket_first() -> None:
    clock = Clock()
    handler = answering(clock, [])
    handler.receive_limit.begin(READ_TIMEOUT_S)
    made = ConnectionHandler(SimpleNamespace(handler=handler), None)
    made._socket = SERVER
    with pytest.raises(handler.timeout_exception):
        made._read(4, 2.0)
    with pytest.raises(ConnectionDropped):
        made._read(4, READ_TIMEOUT_S)
    assert clock.now_s == 100.0 + READ_TIMEOUT_S
