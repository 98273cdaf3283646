"""Proxy between a client of S3 and its server, with the faults of a network or of a bad store.

It refuses, loses, truncates, damages or delays requests and replies, or sends them late. Requests go on as they came,
each over a connection of its own. Late ones do so after their sender has gone, as if they came out of a switch's
buffer. In both directions a message is read as a whole before it goes on.

All of it runs on trio in one thread; questions from other threads are answered in that thread.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import h11
import trio
from minio.credentials.providers import StaticProvider
from minio.signer import sign_v4_s3

from compat_tests.features.object_stores.store_faults import (
    ANSWERS,
    COMES_LATER,
    NO_FAULT,
    OF_WHAT_WAS_READ,
    Decision,
    Fault,
    StoreRequest,
    kind_of,
)
from compat_tests.harness.broker import free_port
from compat_tests.harness.other_thread import ask
from compat_tests.harness.s3_server import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.features.object_stores.store_faults import Planner

ANSWER_WITHIN_S = 20.0
LEAVE_TIMEOUT_S = 10.0
RECEIVE_BYTES = 256 * 1024
REGION = "us-east-1"

_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)
_SLICE_BYTES = 256 * 1024
T = TypeVar("T")


class _Request(NamedTuple):
    head: h11.Request
    body: bytes

    @property
    def method(self) -> str:
        return self.head.method.decode() if self._path else "LIST"

    @property
    def key(self) -> str:
        """The key without the bucket; for a listing, its prefix."""
        return self._path or parse_qs(urlsplit(self.head.target.decode()).query).get("prefix", [""])[0]

    @property
    def _path(self) -> str:
        return urlsplit(self.head.target.decode()).path.lstrip("/").partition("/")[2]


class _Reply(NamedTuple):
    head: h11.Response
    body: bytes


class FaultyStore:
    """A proxy that serves within `with`, always on one port, also after it was away."""

    def __init__(self, server: str, plan: Planner) -> None:
        """`server`: the endpoint of one, `http://127.0.0.1:port`."""
        self.port = free_port()
        self._plan = plan
        self._server_port = urlsplit(server).port or 80
        self._is_calm = False
        self._requests = Counter[str]()
        self._faults = Counter[tuple[str, Fault]]()
        self._held = 0
        self._deleted: defaultdict[str, trio.Event] = defaultdict(trio.Event)
        self._listings: dict[bytes, _Reply] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_serving = threading.Event()
        self._here = trio.CancelScope()
        self._come_back = trio.Event()
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="faulty store")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_serving.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._ask(self._scope.cancel)
        self._thread.join(LEAVE_TIMEOUT_S)
        assert not self._thread.is_alive(), "the proxy does not leave"
        if kind is None and self._failure is not None:
            raise self._failure

    def end_faults(self) -> None:
        """Pass requests on unchanged from now on. Requests that are held still arrive, at their time."""
        self._ask(lambda: setattr(self, "_is_calm", True))

    def go_away(self) -> None:
        """Cut all connections and refuse new ones; returns when that is done."""
        self._is_serving.clear()
        self._ask(self._here.cancel)
        self._is_serving.wait()

    def come_back(self) -> None:
        """Returns when connections are taken again."""
        self._is_serving.clear()
        self._ask(self._come_back.set)
        self._is_serving.wait()

    @property
    def held(self) -> int:
        """The number of requests that are still to come late."""
        return self._ask(lambda: self._held)

    def requests(self) -> Counter[str]:
        """How many came, by kind."""
        return self._ask(self._requests.copy)

    def faults(self) -> Counter[tuple[str, Fault]]:
        """How often each has hit requests of each kind."""
        return self._ask(self._faults.copy)

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask in the proxy's thread while it runs."""
        return ask(self._token, question)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as failure:  # it is raised where the proxy is left
            self._failure = failure
        finally:
            self._is_serving.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                while True:
                    with trio.CancelScope() as self._here:
                        await self._be_here()
                    self._come_back = trio.Event()
                    self._is_serving.set()
                    await self._come_back.wait()

    async def _be_here(self) -> None:
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self._is_serving.set()
        await trio.serve_listeners(self._serve_client, listeners)

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        with suppress(*_GONE):
            async with stream:
                client = _Messages(stream, h11.SERVER)
                while (request := await client.receive_request()) is not None:
                    if not await self._answer(client, request):
                        return

    async def _answer(self, client: _Messages, request: _Request) -> bool:
        """Whether the connection lives on."""
        asked, decision = self._decide(request)
        if decision.fault in COMES_LATER:
            await _pass(decision)
            self._held += 1
            self._nursery.start_soon(self._send_later, request, decision)
            return False
        await trio.sleep(decision.delay_s)
        if decision.fault in (Fault.REQUEST_LOST, Fault.REQUEST_CUT):
            await self._cut(request, decision)
            return False
        if decision.fault in ANSWERS:
            return await client.send_reply(_error(decision.fault, request.method))
        reply = await self._asked_of_server(request, is_unconditional=decision.fault is Fault.UNCONDITIONAL)
        if decision.fault is Fault.REPLY_LOST:
            await _pass(decision)
            return False
        if asked.method == "LIST":
            before = self._listings.get(request.head.target, reply)
            self._listings[request.head.target] = reply
            reply = before if decision.fault is Fault.STALE_LIST else reply
        if decision.fault in OF_WHAT_WAS_READ:
            return await client.send_damaged(reply, decision.fault)
        return await client.send_reply(reply)

    def _decide(self, request: _Request) -> tuple[StoreRequest, Decision]:
        kind = kind_of(request.method, request.key)
        self._requests[kind] += 1
        asked = StoreRequest(request.method, request.key, self._requests[kind])
        decision = NO_FAULT if self._is_calm else self._plan.decide(asked)
        if decision.fault is not Fault.NONE:
            self._faults[kind, decision.fault] += 1
        return asked, decision

    async def _cut(self, request: _Request, decision: Decision) -> None:
        """Cut a request in the middle of its body; a request without a body does not reach the server."""
        if decision.fault is Fault.REQUEST_CUT and request.body:
            async with await self._to_server() as stream:
                await _Messages(stream, h11.CLIENT).send_half(request.head, request.body)
                await _pass(decision)
        else:
            await _pass(decision)

    async def _send_later(self, request: _Request, decision: Decision) -> None:
        try:
            if decision.fault is Fault.LATE:
                await trio.sleep(decision.delay_s)
            else:
                await self._deleted[request.key].wait()
            with trio.move_on_after(ANSWER_WITHIN_S), suppress(*_GONE):
                await self._asked_of_server(request)
        finally:
            self._held -= 1

    async def _asked_of_server(self, request: _Request, *, is_unconditional: bool = False) -> _Reply:
        if is_unconditional:
            request = _unconditional(request)
        async with await self._to_server() as stream:
            server = _Messages(stream, h11.CLIENT)
            await server.send(request.head, request.body)
            reply = await server.receive_reply()
        if request.method == "DELETE":
            self._deleted.pop(request.key, trio.Event()).set()
        return reply

    async def _to_server(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self._server_port)


class _Messages:
    """A stream, a message at a time."""

    def __init__(self, stream: trio.SocketStream, role: type[h11.CLIENT | h11.SERVER]) -> None:
        self._stream = stream
        self._http = h11.Connection(role)

    async def receive_request(self) -> _Request | None:
        """The next request; None if the client has gone, or will not ask again on this connection."""
        if self._http.our_state is h11.DONE:
            if self._http.their_state is not h11.DONE:
                return None
            self._http.start_next_cycle()
        head = await self._event()
        return _Request(head, await self._body()) if isinstance(head, h11.Request) else None

    async def receive_reply(self) -> _Reply:
        head = await self._event()
        while isinstance(head, h11.InformationalResponse):
            head = await self._event()
        if not isinstance(head, h11.Response):
            raise h11.RemoteProtocolError("no reply")
        return _Reply(head, await self._body())

    async def _body(self) -> bytes:
        parts = []
        while isinstance(event := await self._event(), h11.Data):
            parts.append(event.data)
        return b"".join(parts)

    async def _event(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))
        assert isinstance(event, h11.Event)
        return event

    async def send(self, head: h11.Request | h11.Response, body: bytes) -> None:
        await self._send(head)
        for position in range(0, len(body), _SLICE_BYTES):
            await self._send(h11.Data(body[position : position + _SLICE_BYTES]))
        await self._send(h11.EndOfMessage())

    async def send_half(self, head: h11.Request | h11.Response, body: bytes) -> None:
        await self._send(head)
        await self._send(h11.Data(body[: len(body) // 2]))

    async def _send(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")

    async def send_reply(self, reply: _Reply) -> bool:
        """Whether the connection lives on."""
        await self.send(*reply)
        return self._http.our_state is h11.DONE

    async def send_damaged(self, reply: _Reply, fault: Fault) -> bool:
        """Send a reply with that fault, as `send_reply`. A reply without a body is sent as it is."""
        if not reply.body:
            return await self.send_reply(reply)
        if fault is Fault.FLIPPED_BODY:
            middle = len(reply.body) // 2
            wrong = bytes([reply.body[middle] ^ 1])
            return await self.send_reply(reply._replace(body=reply.body[:middle] + wrong + reply.body[middle + 1 :]))
        await self.send_half(*reply)
        if fault is Fault.STALLED_BODY:
            await self._stream.receive_some(1)  # until the client has had enough
        return False


async def _pass(decision: Decision) -> None:
    if decision.gate is not None:
        await decision.gate.come()


def _error(fault: Fault, method: str) -> _Reply:
    """An error in S3's format; without a body for a HEAD."""
    status, code = ANSWERS[fault]
    body = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>told so</Message></Error>" % code
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    return _Reply(h11.Response(status_code=status, headers=headers), b"" if method == "HEAD" else body)


def _unconditional(request: _Request) -> _Request:
    """The same request without its condition, signed again: the signature covered the condition."""
    headers: dict[str, str | list[str] | tuple[str]] = {
        name.decode(): value.decode() for name, value in request.head.headers
    }
    for name in ("if-none-match", "authorization"):
        headers.pop(name, None)
    target = request.head.target.decode()
    signed = sign_v4_s3(
        method=request.head.method.decode(),
        url=urlsplit(f"http://{headers['host']}{target}"),
        region=REGION,
        headers=headers,
        credentials=StaticProvider(ACCESS_KEY, SECRET_KEY).retrieve(),
        content_sha256=str(headers["x-amz-content-sha256"]),
        date=datetime.strptime(str(headers["x-amz-date"]), "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
    )
    head = h11.Request(method=request.head.method, target=target, headers=[(key, str(signed[key])) for key in signed])
    return _Request(head, request.body)
