"""Each fault of the proxy does what its name says, shown with a broker that stores its requests and echoes them."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.faults.fault_plan import NO_FAULT, UNTIL_RELEASED_S, Api, Decision, Fault
from compat_tests.faults.faulty_proxy import FaultyProxy
from compat_tests.harness.wire import WireConnection, request_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 3
PLAIN, OTHER = Api.ADD_PARTITIONS_TO_TXN, 3  # the latter is not of transactions
LATER = 2.0  # longer than a test needs meanwhile


class EchoBroker:
    """A broker that answers each request with its correlation id and its own frame."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.came: list[tuple[int, int]] = []  # connection and correlation id, in the order of their coming
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            for number in range(1, 100):
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._answer, args=(number, client))
                self._threads.append(thread)
                thread.start()

    def _answer(self, number: int, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream, suppress(OSError):
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                self.came.append((number, int.from_bytes(frame[4:8], "big")))
                reply = frame[4:8] + frame
                client.sendall(len(reply).to_bytes(4, "big") + reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


class Script:
    """A plan with one fault, for the first request of an API."""

    def __init__(self, fault: Fault, delay_s: float = 0.0, api: int = Api.END_TXN) -> None:
        self._decision = Decision(fault, delay_s)
        self._api = api

    def decide(self, api_key: int, version: int, number: int) -> Decision:
        assert version == VERSION
        return self._decision if (api_key, number) == (self._api, 0) else NO_FAULT


@contextmanager
def scene(fault: Fault, delay_s: float = 0.0) -> Iterator[tuple[EchoBroker, FaultyProxy, WireConnection]]:
    """A broker, a proxy with a fault for the first EndTxn, and a client."""
    threads = threading.active_count()
    broker = EchoBroker()
    try:
        with FaultyProxy(Script(fault, delay_s)) as proxy:
            proxy.serve(broker.port)
            with WireConnection(proxy.port) as client:
                yield broker, proxy, client
            if fault is not Fault.NONE:
                assert proxy.faults() == {(Api.END_TXN, fault): 1}
    finally:
        broker.close()
    assert threading.active_count() == threads


def frame(api: int, correlation_id: int) -> bytes:
    return request_frame(api, VERSION, b"body", correlation_id)


def send(client: WireConnection, *correlation_ids: int, api: int = Api.END_TXN) -> None:
    for correlation_id in correlation_ids:
        client.send_frame(frame(api, correlation_id))


def receive(client: WireConnection) -> int | None:
    """The correlation id of a complete reply; None if the connection was cut."""
    reply = client.receive_frame()
    if reply is None:
        return None
    assert reply[8:12] == reply[:4]
    assert reply.endswith(b"body")
    return int.from_bytes(reply[:4], "big")


def test_without_a_fault_all_goes_through() -> None:
    with scene(Fault.NONE) as (broker, proxy, client):
        send(client, 1, 2, 3)
        assert [receive(client) for _ in range(3)] == [1, 2, 3]
        assert broker.came == [(1, 1), (1, 2), (1, 3)]
        assert not proxy.faults()


def test_a_request_is_delayed_and_all_behind_it() -> None:
    with scene(Fault.REQUEST_DELAYED, LATER) as (broker, _, client):
        send(client, 1, api=PLAIN)
        assert receive(client) == 1
        started = time.monotonic()
        send(client, 2)
        send(client, 3, api=OTHER)
        time.sleep(LATER / 2)
        assert broker.came == [(1, 1)]
        assert [receive(client), receive(client)] == [2, 3]
        assert time.monotonic() - started >= LATER
        assert broker.came == [(1, 1), (1, 2), (1, 3)]


def test_a_connection_is_held_until_its_release_and_its_held_requests_are_recorded() -> None:
    with scene(Fault.REQUEST_DELAYED, UNTIL_RELEASED_S) as (broker, proxy, client):
        send(client, 1, api=PLAIN)
        assert receive(client) == 1
        send(client, 2)
        send(client, 3, api=OTHER)
        with WireConnection(proxy.port) as another:
            send(another, 4)
            assert receive(another) == 4
        assert [number for _, number in broker.came] == [1, 4]
        proxy.release_held()
        assert [receive(client), receive(client)] == [2, 3]
        assert [late_request.frame for late_request in proxy.late_requests()] == [
            frame(Api.END_TXN, 2),
            frame(OTHER, 3),
        ]
        assert all(
            late_request.reply is not None and late_request.reply.endswith(late_request.frame)
            for late_request in proxy.late_requests()
        )


def test_a_reply_is_delayed_and_all_behind_it() -> None:
    with scene(Fault.REPLY_DELAYED, LATER) as (broker, _, client):
        started = time.monotonic()
        send(client, 1)
        send(client, 2, api=OTHER)
        wait_until(lambda: len(broker.came) == 2, "it does not come")
        assert [receive(client), receive(client)] == [1, 2]
        assert time.monotonic() - started >= LATER


def test_a_lost_request_never_comes() -> None:
    with scene(Fault.REQUEST_LOST) as (broker, proxy, client):
        send(client, 1, api=PLAIN)
        assert receive(client) == 1
        send(client, 2)
        assert receive(client) is None
        with WireConnection(proxy.port) as again:
            send(again, 3)
            assert receive(again) == 3
        assert broker.came == [(1, 1), (2, 3)]


def test_of_a_lost_reply_the_request_came() -> None:
    with scene(Fault.REPLY_LOST) as (broker, proxy, client):
        send(client, 1, api=PLAIN)
        send(client, 2)
        assert [receive(client), receive(client)] == [1, None]
        assert broker.came == [(1, 1), (1, 2)]
        wait_until(lambda: proxy.connections == 0, "its connection stays")


def test_a_late_request_arrives_behind_its_retry() -> None:
    with scene(Fault.LATE, LATER) as (broker, proxy, client):
        send(client, 1)
        assert receive(client) is None
        assert proxy.held == 1
        with WireConnection(proxy.port) as again:
            send(again, 2)
            assert receive(again) == 2
            assert broker.came == [(2, 2)]
            wait_until(lambda: proxy.held == 0, "it is not sent")
            send(again, 3)
            assert receive(again) == 3  # the answer to the late request is not sent to this client
        assert broker.came == [(2, 2), (3, 1), (2, 3)]
        [late_request] = proxy.late_requests()
        assert (late_request.fault, late_request.frame) == (Fault.LATE, frame(Api.END_TXN, 1))
        assert late_request.reply is not None
        assert late_request.reply.endswith(late_request.frame)


def test_a_duplicate_comes_once_more() -> None:
    with scene(Fault.DUPLICATED, LATER) as (broker, proxy, client):
        send(client, 1, 2)
        assert [receive(client), receive(client)] == [1, 2]
        wait_until(lambda: proxy.held == 0, "it is not sent")
        assert broker.came == [(1, 1), (1, 2), (2, 1)]
        assert [late_request.fault for late_request in proxy.late_requests()] == [Fault.DUPLICATED]


def test_once_faults_are_over_nothing_is_hit() -> None:
    with FaultyProxy(Script(Fault.REQUEST_LOST)) as proxy:
        broker = EchoBroker()
        try:
            proxy.serve(broker.port)
            proxy.end_faults()
            with WireConnection(proxy.port) as client:
                send(client, 1)
                assert receive(client) == 1
            assert not proxy.faults()
            assert proxy.requests().total() == 1
            assert not proxy.exposed()
        finally:
            broker.close()


def test_the_proxy_closes_while_requests_are_held() -> None:
    with scene(Fault.DUPLICATED, 3600.0) as (broker, proxy, client):
        send(client, 1)
        assert receive(client) == 1
        assert proxy.held == 1
    assert broker.came == [(1, 1)]


def test_a_client_of_a_broker_that_is_away_is_cut_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with FaultyProxy(Script(Fault.NONE)) as proxy:
        proxy.serve(port)
        with WireConnection(proxy.port) as client:
            assert client.receive_frame() is None
