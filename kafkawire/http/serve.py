"""The trio shell of the HTTP application: hypercorn's protocols on connections that are accepted and guarded here.

hypercorn's own server ends when a connection makes it fail, takes any number of them, and waits for a peer that does
not read for ever. Here whatever goes wrong on a connection ends that connection alone. Stopped by cancelling.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState

from kafkawire.transport import listening_socket

if TYPE_CHECKING:
    from starlette.applications import Starlette

_log = structlog.get_logger(__name__)

CONNECTIONS_MAX: Final = 100
SEND_TIMEOUT_S: Final = 30.0  # of one portion of an answer


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
            state = ConnectionState(LifespanState())
            await TCPServer(self._app, self._settings, self._context, state, _Bounded(stream))  # type: ignore[arg-type]
        except* Exception as group:  # hypercorn lets errors of its parsers out, over input that anybody may send
            _log.info("HTTP connection closed", reason=repr(group.exceptions[0]))
        finally:
            self._open -= 1
            stream.socket.close()


class _Bounded:
    """A stream as far as hypercorn uses it, for a peer that has to read what it is sent."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose
        self._send_all = stream.send_all

    async def send_all(self, data: bytes) -> None:
        """Errors: BrokenResourceError, ClosedResourceError."""
        try:
            with trio.fail_after(SEND_TIMEOUT_S):
                await self._send_all(data)
        except trio.TooSlowError as error:
            raise trio.BrokenResourceError("the peer does not read") from error
