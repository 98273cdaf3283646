"""Proxy between clients and a broker with the faults of a network: requests are delayed, lost, late or sent twice.

Replies are delayed and lost, too. The broker has to advertise the proxy's port to the clients that connect through it.
Frames are never changed, and replies find their request by its correlation id.

A late request is sent over a connection of its own, as if it came out of a switch's buffer while the client uses
another connection already; the broker's answer to it is only remembered. The same holds for the answers to a request
that was held until it was released, and to the requests behind it.

All of it runs on trio in one thread; questions from other threads are answered in that thread.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import trio

from compat_tests.faults.fault_plan import COMES_LATER, NO_FAULT, OF_REPLIES, UNTIL_RELEASED_S, Decision, Fault
from compat_tests.harness.other_thread import ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from compat_tests.faults.fault_plan import Planner

CONNECTIONS_MAX = 200
HELD_MAX = 100
LATE_REQUESTS_MAX = 10_000
FRAME_MAX_BYTES = 100 * 1024 * 1024
ANSWER_WITHIN_S = 10.0
LEAVE_TIMEOUT_S = 10.0
RECEIVE_BYTES = 64 * 1024

_SIZE = struct.Struct(">i")
_START = struct.Struct(">hhi")  # api key, version, correlation id
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
T = TypeVar("T")


class LateRequest(NamedTuple):
    """A request that came late or twice, or was held until its release, or came behind such a one; and the broker's
    reply, None if it closed the connection."""

    at_s: float  # when it was sent, by the clock that batches are stamped with
    fault: Fault
    delay_s: float
    frame: bytes
    reply: bytes | None


class _Sent(NamedTuple):
    """A request whose reply is not just handed on."""

    at_s: float
    frame: bytes
    decision: Decision


class FaultyProxy:
    """Proxy with a plan of faults. Its port is taken at once, connections are accepted from `serve` on, and all ends
    with the `with` block."""

    def __init__(self, plan: Planner) -> None:
        self._plan = plan
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._broker_port = 0
        self._is_calm = False
        self._requests = Counter[tuple[int, int]]()  # by API and version
        self._exposed = Counter[tuple[int, int]]()  # likewise, without the requests after `end_faults`
        self._faults = Counter[tuple[int, Fault]]()
        self._late_requests: deque[LateRequest] = deque(maxlen=LATE_REQUESTS_MAX)
        self._connections = 0
        self._held = 0
        self._is_released = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_serving = threading.Event()
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="proxy")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self, broker_port: int) -> None:
        """Clients may come from now on."""
        self._broker_port = broker_port
        self._thread.start()
        self._is_serving.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._thread.is_alive():
            self._ask(self._scope.cancel)
            self._thread.join(LEAVE_TIMEOUT_S)
            assert not self._thread.is_alive(), "the proxy does not leave"
        self._listener.close()
        if kind is None and self._failure is not None:
            raise self._failure

    def end_faults(self) -> None:
        """Pass requests on unchanged from now on. Requests that are held still arrive, at their time."""
        self._ask(lambda: setattr(self, "_is_calm", True))

    def release_held(self) -> None:
        """Send on all requests that are held until now."""
        self._ask(self._release_held)

    def _release_held(self) -> None:
        self._is_released.set()
        self._is_released = trio.Event()

    @property
    def held(self) -> int:
        """How many requests are still to come late."""
        return self._ask(lambda: self._held)

    @property
    def connections(self) -> int:
        return self._ask(lambda: self._connections)

    def requests(self) -> Counter[tuple[int, int]]:
        """How many came, by API and version."""
        return self._ask(self._requests.copy)

    def exposed(self) -> Counter[tuple[int, int]]:
        """How many of them came before `end_faults`."""
        return self._ask(self._exposed.copy)

    def faults(self) -> Counter[tuple[int, Fault]]:
        """How often each has hit requests of each API."""
        return self._ask(self._faults.copy)

    def late_requests(self) -> list[LateRequest]:
        """The last late requests, in the order of their answers."""
        return self._ask(lambda: list(self._late_requests))

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask in the proxy's thread while it runs."""
        return ask(self._token, question)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as failure:  # it is raised where the proxy is left
            self._failure = failure

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._is_serving.set()
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                await trio.serve_listeners(self._serve_client, [listener], handler_nursery=self._nursery)

    async def _serve_client(self, client: trio.SocketStream) -> None:
        async with client:
            if self._connections >= CONNECTIONS_MAX:
                return
            self._connections += 1
            try:
                with suppress(*_GONE):
                    async with await self._to_broker() as broker:
                        await _Connection(self, client, broker).run()
            finally:
                self._connections -= 1

    async def _to_broker(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self._broker_port)

    def decide(self, api_key: int, version: int) -> Decision:
        """The fault of the next request of an API and a version; none if too many requests are held already."""
        self._requests[api_key, version] += 1
        if self._is_calm:
            return NO_FAULT
        decision = self._plan.decide(api_key, version, self._exposed[api_key, version])
        self._exposed[api_key, version] += 1
        return NO_FAULT if decision.fault in COMES_LATER and self._held >= HELD_MAX else decision

    def count(self, api_key: int, fault: Fault) -> None:
        self._faults[api_key, fault] += 1

    async def delay(self, delay_s: float) -> None:
        if delay_s == UNTIL_RELEASED_S:
            await self._is_released.wait()
        else:
            await trio.sleep(delay_s)

    def remember(self, late_request: LateRequest) -> None:
        self._late_requests.append(late_request)

    def hold(self, frame: bytes, decision: Decision) -> None:
        """And send it later, over a connection of its own."""
        self._held += 1
        self._nursery.start_soon(self._send_later, frame, decision)

    async def _send_later(self, frame: bytes, decision: Decision) -> None:
        try:
            await trio.sleep(decision.delay_s)
            with trio.move_on_after(ANSWER_WITHIN_S), suppress(*_GONE):
                async with await self._to_broker() as broker:
                    at_s = time.time()
                    await broker.send_all(_SIZE.pack(len(frame)) + frame)
                    reply = await Frames(broker).receive()
                    self.remember(LateRequest(at_s, decision.fault, decision.delay_s, frame, reply))
        finally:
            self._held -= 1


class _Connection:
    """A client's, and the one to the broker that stands for it. If one is over, so is the other."""

    def __init__(self, proxy: FaultyProxy, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._unanswered: dict[int, _Sent] = {}  # by correlation id
        self._is_remembered = False  # whether answers are remembered instead of sent

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:

            async def until_it_is_over(hand_on: Callable[[], Awaitable[None]]) -> None:
                with suppress(*_GONE):
                    await hand_on()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_it_is_over, self._hand_on_requests)
            nursery.start_soon(until_it_is_over, self._hand_on_replies)

    async def _hand_on_requests(self) -> None:
        frames = Frames(self._client)
        while (frame := await frames.receive()) is not None:
            if not await self._hand_on_request(frame):
                return

    async def _hand_on_request(self, frame: bytes) -> bool:
        """Whether the connection lives on."""
        api_key, version, correlation_id = _START.unpack_from(frame)
        decision = self._proxy.decide(api_key, version)
        if decision.fault is not Fault.NONE and decision.fault not in OF_REPLIES:
            self._proxy.count(api_key, decision.fault)
        if decision.fault in COMES_LATER:
            self._proxy.hold(frame, decision)
        if decision.fault is Fault.REQUEST_DELAYED:
            self._is_remembered |= decision.delay_s == UNTIL_RELEASED_S
            await self._proxy.delay(decision.delay_s)
        if decision.fault in (Fault.REQUEST_LOST, Fault.LATE):
            return False
        if self._is_remembered or decision.fault in OF_REPLIES:
            self._unanswered[correlation_id] = _Sent(time.time(), frame, decision)
        await self._broker.send_all(_SIZE.pack(len(frame)) + frame)
        return True

    async def _hand_on_replies(self) -> None:
        frames = Frames(self._broker)
        while (reply := await frames.receive()) is not None:
            sent = self._unanswered.pop(_correlation_id(reply), None)
            if sent is not None and not await self._lets_through(sent, reply):
                return
            await self._client.send_all(_SIZE.pack(len(reply)) + reply)

    async def _lets_through(self, sent: _Sent, reply: bytes) -> bool:
        """When it is time for it."""
        fault, delay_s = sent.decision
        if self._is_remembered:
            self._proxy.remember(LateRequest(sent.at_s, fault, delay_s, sent.frame, reply))
        if fault in OF_REPLIES:
            self._proxy.count(_START.unpack_from(sent.frame)[0], fault)
            await trio.sleep(delay_s)
        return fault is not Fault.REPLY_LOST


def _correlation_id(reply: bytes) -> int:
    return int.from_bytes(reply[:4], "big", signed=True)


class Frames:
    """A stream, a frame at a time."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def receive(self) -> bytes | None:
        """Receive a frame without its size prefix; None at the end of the stream."""
        size = await self._take(_SIZE.size)
        if size is None:
            return None
        size_bytes = _SIZE.unpack(size)[0]
        assert 0 <= size_bytes <= FRAME_MAX_BYTES, f"a frame of {size_bytes} bytes"
        return await self._take(size_bytes)

    async def _take(self, size_bytes: int) -> bytes | None:
        while len(self._buffer) < size_bytes:
            piece = await self._stream.receive_some(RECEIVE_BYTES)
            if not piece:
                return None
            self._buffer += piece
        taken = bytes(self._buffer[:size_bytes])
        del self._buffer[:size_bytes]
        return taken
