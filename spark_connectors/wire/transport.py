"""The door to the network: a stream of bytes to an address, and the sockets that are one; no socket elsewhere."""

from __future__ import annotations

import socket
from typing import NamedTuple, Protocol


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stream(Protocol):
    """To one broker. Every method may raise OSError; TimeoutError, which is one, when the time that was set is over."""

    def settimeout(self, timeout_s: float) -> None: ...

    def sendall(self, data: bytearray, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Raises OSError."""

    def __call__(self, address: Address, timeout_s: float) -> Stream: ...


def connect_tcp(address: Address, timeout_s: float) -> socket.socket:
    """To whichever address of the host answers first. Raises OSError."""
    try:
        stream = socket.create_connection(address, timeout_s)
    except UnicodeError as error:  # of IDNA: an empty label, or one that is too long
        raise OSError(f"not the name of a host: {error}") from error
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream
