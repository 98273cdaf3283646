"""Proxy between clients and a broker that passes on all bytes and stores the requests.

The broker has to advertise the proxy's port, or clients would connect to the broker after their first request. Replies
are not stored: they are the broker's work.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = struct.Struct(">i")


class Proxy:
    """Listens on a port of its own, from `with` on; two threads a connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._broker_port = 0
        self._lock = threading.Lock()
        self._connections = 0
        self._frames: list[tuple[int, bytes]] = []

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self, broker_port: int) -> None:
        """Accept clients from now on."""
        self._broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def taken(self) -> list[tuple[int, bytes]]:
        """The requests since the last call, in the order in which they came: (connection, frame without size)."""
        with self._lock:
            frames, self._frames = self._frames, []
            numbers = {number: place for place, number in enumerate(dict.fromkeys(number for number, _ in frames), 1)}
            return [(numbers[number], frame) for number, frame in frames]

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._connections += 1
                for run, arguments in (
                    (self._hand_on_requests, (self._connections, client, broker)),
                    (_hand_on, (broker, client)),
                ):
                    threading.Thread(target=run, args=arguments, daemon=True).start()

    def _hand_on_requests(self, connection: int, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            for frame in _frames(client):
                with self._lock:
                    self._frames.append((connection, frame))
                broker.sendall(_SIZE.pack(len(frame)) + frame)
            broker.shutdown(socket.SHUT_WR)


def _frames(client: socket.socket) -> Iterator[bytes]:
    """Each frame without its size, until the client leaves."""
    with client.makefile("rb") as stream:
        while len(size := stream.read(_SIZE.size)) == _SIZE.size:
            yield stream.read(_SIZE.unpack(size)[0])


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(64 * 1024):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
