"""The trio shell of the HTTP application: accepts, bounds and guards connections.

A failure on a connection ends only that connection. A peer that does not send or does not read is disconnected. A
cancellation stops at once. The protocol is in `kafkawire.http.http1`.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from kafkawire.http.bodies import Bodies
from kafkawire.http.http1 import HEAD_BYTES_MAX, Http1, PeerClosed, Refused, Request
from kafkawire.requests.failures import FailureLog
from kafkawire.server.transport import listening_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message

_log = structlog.get_logger(__name__)

CONNECTIONS_MAX: Final = 100
IDLE_TIMEOUT_S: Final = 5.0  # until a request is complete
ANSWER_TIMEOUT_S: Final = 120.0  # of a whole response
SEND_TIMEOUT_S: Final = 30.0  # of one portion of a response
LINGER_S: Final = 1.0  # for a refused peer to read the response
RECEIVED_BYTES_MAX: Final = HEAD_BYTES_MAX  # at a time: each portion is checked before the next one


async def serve_http(
    app: ASGIApp, host: str, port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve `app` until cancelled, and report the bound URLs once it listens.

    Errors: OSError when the address cannot be bound.
    """
    bound = await listening_socket(host, port, CONNECTIONS_MAX)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    task_status.started([_url(bound)])
    await trio.serve_listeners(Connections(app).serve, [listener])


def _url(bound: socket.socket) -> str:
    host, port, *_ = bound.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Connections:
    """Connections to one application, at most `CONNECTIONS_MAX` at a time. Further ones are closed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._failures = FailureLog()
        self._bodies = Bodies()
        self._open = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection to its end."""
        if self._open == CONNECTIONS_MAX:
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            await _Connection(stream, self._app, self._bodies).run()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            _log.debug("HTTP connection closed", reason=repr(error))
        except Exception as error:
            self._failures.note(error, trio.current_time(), api="http")
        finally:
            self._open -= 1
            stream.socket.close()


class PeerLost(OSError):
    """The error that ASGI prescribes for a send after the peer has left."""


class _Connection:
    """Requests one after the other: each is received completely, then answered."""

    def __init__(self, stream: trio.SocketStream, app: ASGIApp, bodies: Bodies) -> None:
        self._stream = stream
        self._app = app
        peer, local = _address(stream.socket.getpeername), _address(stream.socket.getsockname)
        self._http = Http1(peer, local, partial(formatdate, usegmt=True), bodies)
        self._lost: PeerLost | None = None

    async def run(self) -> None:
        """Serve until the peer leaves or is disconnected."""
        try:
            while (request := await self._next_request()) is not None:
                await self._answer(request)
                if not self._http.next_cycle():
                    break
        except Refused as refused:
            await self._refuse(refused.status, str(refused))
        except PeerLost as error:
            _log.debug("HTTP connection closed", reason=str(error))
        finally:
            self._http.close()

    async def _next_request(self) -> Request | None:
        """The next request; None if the peer has left or is idle for too long. Raises Refused."""
        with trio.move_on_after(IDLE_TIMEOUT_S):
            try:
                while (request := self._http.request()) is None:
                    if interim := self._http.interim():
                        await self._stream.send_all(interim)
                    self._http.receive(bytes(await self._stream.receive_some(RECEIVED_BYTES_MAX)))
            except PeerClosed:
                return None
            return request
        return None

    async def _answer(self, request: Request) -> None:
        """Answer a request. Raises Refused on a timeout, PeerLost, and all errors of the application."""
        bodies = [request.body]

        async def receive() -> Message:
            if not bodies:  # a lost peer is noticed at the next send
                await trio.sleep_forever()
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}

        with trio.move_on_after(ANSWER_TIMEOUT_S) as patience:
            try:
                await self._app(request.scope, receive, self._send)
            except Exception:
                if self._lost is not None:  # even if the application has suppressed the error
                    raise self._lost from None
                await self._refuse(500, "internal error")
                raise
        if patience.cancelled_caught:
            raise Refused(503, "this takes too long")

    async def _send(self, message: Message) -> None:
        for portion in self._http.answer(message):
            try:
                with trio.fail_after(SEND_TIMEOUT_S):
                    await self._stream.send_all(portion)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
                self._lost = PeerLost(repr(error))
                raise self._lost from error

    async def _refuse(self, status: int, reason: str) -> None:
        """Send an error response, if possible.

        Then read for a while: with unread input, a reset would discard the response.
        """
        if answer := self._http.refuse(status, reason):
            with trio.move_on_after(LINGER_S):
                await self._stream.send_all(answer)
                await self._stream.send_eof()
                while await self._stream.receive_some(RECEIVED_BYTES_MAX):
                    pass


def _address(ask: Callable[[], object]) -> tuple[str, int]:
    """Address of an end of the socket; an empty one if there is none."""
    with suppress(OSError):
        name = ask()
        if isinstance(name, tuple):
            return str(name[0]), int(name[1])
    return "", 0
