"""An HTTP server with the answers of a test, on one thread for each connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

STALLED_S = 30.0
DRIP_S = 0.01


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server; header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """Raw bytes of a reply, sent one by one if it `drips`. After them the connection stays open, is closed, or is
    silent."""

    data: bytes
    closes: bool = False
    stalls: bool = False
    drips: bool = False


def reply(status: int, body: bytes = b"", *, declared: int | None = None, drips: bool = False, **headers: str) -> Reply:
    """A reply with a Content-Length, of the body unless `declared` is given."""
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body) if declared is None else declared}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    is_a_lie = declared is not None and declared > len(body)
    return Reply("\r\n".join(lines).encode() + b"\r\n\r\n" + body, closes=is_a_lie, drips=drips)


def error(status: int, code: str, message: str = "told so") -> Reply:
    """An error in S3's format."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return reply(status, body.encode(), Content_Type="application/xml")


@dataclass(slots=True)
class ScriptedServer:
    """The server. `answer` makes the reply to each request; `connections` counts the connections."""

    answer: Callable[[Request], Reply]
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                connection.settimeout(0.2)
                self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while (request := self._receive(connection)) is not None:
                self.requests.append(request)
                response = self.answer(request)
                self._send(connection, response)
                if response.stalls:
                    self._over.wait(STALLED_S)
                if response.closes or response.stalls:
                    return

    def _send(self, connection: socket.socket, response: Reply) -> None:
        if not response.drips:
            connection.sendall(response.data)
            return
        for byte in response.data:
            connection.sendall(bytes([byte]))
            if self._over.wait(DRIP_S):
                return

    def _receive(self, connection: socket.socket) -> Request | None:
        """The next request; None if the client has gone, or the test is over."""
        received = b""
        while b"\r\n\r\n" not in received:
            chunk = self._receive_chunk(connection)
            if not chunk:
                return None
            received += chunk
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", "0")):
            chunk = self._receive_chunk(connection)
            if not chunk:
                return None
            body += chunk
        return Request(method, target, headers, body)

    def _receive_chunk(self, connection: socket.socket) -> bytes:
        while not self._over.is_set():
            with suppress(TimeoutError):
                return connection.recv(65536)
        return b""
