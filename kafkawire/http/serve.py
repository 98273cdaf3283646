"""The trio shell of the HTTP application: hypercorn's HTTP/1.1 on connections that are accepted and guarded here.

hypercorn's own server ends when a connection makes it fail, takes any number of them, and waits for a peer that does
not read for ever, even when it is cancelled. Here whatever goes wrong on a connection ends that connection alone, and
cancelling stops at once. HTTP/2 is not spoken: a peer could have a hundred answers made and held for it there, behind
windows that it never opens and no timeout of a connection sees.
"""

from __future__ import annotations

import socket
from math import inf
from typing import TYPE_CHECKING, Final

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config as HypercornConfig
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr

from kafkawire.server.transport import listening_socket

if TYPE_CHECKING:
    import h11
    from starlette.applications import Starlette

_log = structlog.get_logger(__name__)

CONNECTIONS_MAX: Final = 100
SEND_TIMEOUT_S: Final = 30.0  # of one portion of an answer
IDLE_TIMEOUT_S: Final = 5.0  # until a request is there with all its head
RECEIVED_BYTES_MAX: Final = 64 * 1024  # at a time


async def serve_http(
    app: Starlette, host: str, port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serves `app` until cancelled and reports the bound URLs once it listens.

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
    """Those of one application, at most `CONNECTIONS_MAX` at a time; who comes when they are taken is sent away."""

    def __init__(self, app: Starlette) -> None:
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]  # hypercorn types the scopes of ASGI by itself
        self._settings = HypercornConfig()
        self._settings.errorlog = None
        self._settings.accesslog = None
        self._context = WorkerContext(None)
        self._open = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, to its end."""
        if self._open == CONNECTIONS_MAX:
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            connection = _Connection(stream)
            async with TaskGroup() as tasks:
                await connection.run(self._protocol(stream.socket, tasks, connection))
        except* Exception as group:  # hypercorn lets errors of its parsers out, over input that anybody may send
            _log.info("HTTP connection closed", reason=repr(group.exceptions[0]))
        finally:
            self._open -= 1
            stream.socket.close()

    def _protocol(self, end: trio.socket.SocketType, tasks: TaskGroup, connection: _Connection) -> H11Protocol:
        client, server = (parse_socket_addr(end.family, name) for name in (end.getpeername(), end.getsockname()))
        state = ConnectionState(LifespanState())
        return _Http1(self._app, self._settings, self._context, tasks, state, False, client, server, connection.take)


class _Http1(H11Protocol):
    """hypercorn's, for who wants HTTP/2, too: clients that only offer it, as Java's does, take the answer they get."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """hypercorn's leaves for HTTP/2 from here, by an exception, which would end the connection."""


class _Connection:
    """A stream for hypercorn's protocol: a peer has to ask, and to read what it is sent."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._sending = trio.Lock()
        self._patience = trio.CancelScope()

    async def run(self, protocol: H11Protocol) -> None:
        """Until the peer or the protocol has closed it, or nothing is asked for too long."""
        self._protocol = protocol
        self._patience.deadline = trio.current_time() + IDLE_TIMEOUT_S
        with self._patience:
            await self._receive()
        await protocol.handle(Closed())

    async def _receive(self) -> None:
        data: bytes | None = None
        while data != b"":
            try:
                data = bytes(await self._stream.receive_some(RECEIVED_BYTES_MAX))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            await self._protocol.handle(RawData(data))

    async def take(self, event: Event) -> None:
        """What the protocol has to say."""
        if isinstance(event, RawData):
            async with self._sending:
                await self._send(event.data)
        elif isinstance(event, Closed):
            await self._close()
        elif isinstance(event, Updated):
            self._patience.deadline = trio.current_time() + IDLE_TIMEOUT_S if event.idle else inf

    async def _send(self, data: bytes) -> None:
        try:
            with trio.fail_after(SEND_TIMEOUT_S):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            await self._close()

    async def _close(self) -> None:
        await self._stream.aclose()
        await self._protocol.handle(Closed())
