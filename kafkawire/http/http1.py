"""HTTP/1.1 between one connection and an ASGI application, without I/O: h11's machine, with bounds around it.

Received bytes go in, and a request comes out when it is complete; messages of the application go in, and bytes come
out. An invalid or too large request raises `Refused`. An offer to upgrade is ignored, as HTTP allows, and HTTP/2 is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import h11

from kafkawire.http.bodies import BODY_BYTES_MAX, Bodies

if TYPE_CHECKING:
    from starlette.types import Message, Scope

    Address = tuple[str, int]

HEAD_BYTES_MAX: Final = 16 * 1024  # of an incomplete head
PORTION_BYTES: Final = 64 * 1024  # of a response's body, at a time
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})


class Refused(Exception):
    """A request that is refused before the application sees it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class PeerClosed(Exception):
    """The peer has ended its stream."""


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request: the ASGI scope, and the whole body."""

    scope: Scope
    body: bytes


class Http1:
    """A connection: requests and responses in turns."""

    def __init__(self, client: Address, server: Address, date: Callable[[], str], bodies: Bodies) -> None:
        """`date` returns the time in the form of a header. Call `close` at the end."""
        self._date = date
        self._bodies = bodies
        self._is_large = False
        self._machine = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._addresses = {"client": client, "server": server}
        self._begin()

    def _begin(self) -> None:
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._unsent = b""  # the head of a response leaves together with the next bytes

    def receive(self, data: bytes) -> None:
        """Receive bytes of the peer; empty bytes are its end. Raises Refused."""
        try:
            self._machine.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise Refused(error.error_status_hint, str(error)) from None

    def interim(self) -> bytes:
        """Bytes to send while the request is incomplete: "continue" to a peer that waits for it."""
        if not self._machine.they_are_waiting_for_100_continue:
            return b""
        return self._machine.send(h11.InformationalResponse(status_code=100, headers=[])) or b""

    def request(self) -> Request | None:
        """The next request, or None if it is incomplete. Raises Refused and PeerClosed."""
        while True:
            try:
                event = self._machine.next_event()
            except h11.RemoteProtocolError as error:
                raise Refused(error.error_status_hint, str(error)) from None
            if isinstance(event, h11.Request):
                self._head = event
                _check(event)
            elif isinstance(event, h11.Data):
                self._take(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert self._head is not None
                return Request(_scope(self._head) | self._addresses, bytes(self._body))
            elif isinstance(event, h11.ConnectionClosed):
                raise PeerClosed
            else:
                return None

    @property
    def has_answered(self) -> bool:
        """Whether a response has begun: another one cannot be sent any more."""
        return self._machine.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def answer(self, message: Message) -> Iterator[bytes]:
        """The bytes of a message of the application, in portions that are made one by one."""
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"date", self._date().encode())]
            self._unsent = self._machine.send(h11.Response(status_code=message["status"], headers=headers)) or b""
            return
        body = message.get("body", b"")
        if self._head is not None and self._head.method == b"HEAD":
            body = b""
        for begin in range(0, len(body), PORTION_BYTES):
            yield self._with_head(h11.Data(data=body[begin : begin + PORTION_BYTES]))
        if not message.get("more_body", False):
            yield self._with_head(h11.EndOfMessage())

    def _with_head(self, event: h11.Data | h11.EndOfMessage) -> bytes:
        unsent, self._unsent = self._unsent, b""
        return unsent + (self._machine.send(event) or b"")

    def refuse(self, status: int, reason: str) -> bytes:
        """A complete error response, the last one of the connection; empty if a response has begun."""
        if self.has_answered:
            return b""
        text = reason.encode() + b"\n"
        headers = [
            ("connection", "close"),
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(text))),
        ]
        start = {"type": "http.response.start", "status": status, "headers": headers}
        return b"".join([*self.answer(start), *self.answer({"type": "http.response.body", "body": text})])

    def _take(self, data: bytes) -> None:
        """Add a part of the body. Raises Refused."""
        assert self._head is not None
        size_bytes = len(self._body) + len(data)
        if size_bytes > self._bodies.bytes_max(self._head.method, self._head.target):
            raise Refused(413, "the body is too large")
        if size_bytes > BODY_BYTES_MAX and not self._is_large:
            self._is_large = self._bodies.take()
            if not self._is_large:
                raise Refused(503, "there are too many large bodies: ask again")
        self._body += data

    def close(self) -> None:
        """Give back the room of a large body. Nothing is received any more."""
        if self._is_large:
            self._bodies.give_back()
        self._is_large = False

    def next_cycle(self) -> bool:
        """Whether another request may follow the response."""
        if self._machine.our_state is not h11.DONE or self._machine.their_state is not h11.DONE:
            return False
        self._machine.start_next_cycle()
        self.close()
        self._begin()
        return True


def _check(head: h11.Request) -> None:
    """Check the head of a request. Raises Refused."""
    if head.http_version not in _VERSIONS:
        raise Refused(505, "only HTTP/1.1 is spoken")
    if not head.target.startswith(b"/"):  # other targets are for proxies, with the name of another host
        raise Refused(400, "not a path")


def _scope(head: h11.Request) -> dict[str, object]:
    """The ASGI scope of a request."""
    path, _, query = head.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": head.http_version.decode(),
        "method": head.method.decode(),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(head.headers),
    }
