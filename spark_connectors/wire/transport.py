"""Network access: a stream of bytes to an address, and its implementation by sockets. No other module opens sockets."""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple, Protocol


class Address(NamedTuple):
    """Host and port of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Stream(Protocol):
    """A stream to one broker. Each method may raise OSError; TimeoutError, a subclass, after the set timeout."""

    def settimeout(self, timeout_s: float) -> None: ...

    def sendall(self, data: bytearray, /) -> None: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Opens a stream. Raises OSError."""

    def __call__(self, address: Address, timeout_s: float) -> Stream: ...


def connect_tcp(address: Address, timeout_s: float) -> socket.socket:
    """Connect to the first address of the host that answers. Raises OSError."""
    try:
        stream = socket.create_connection(address, timeout_s)
    except UnicodeError as error:  # from IDNA: an empty label, or one that is too long
        raise OSError(f"not the name of a host: {error}") from error
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def is_lasting(error: OSError) -> bool:
    """Whether the error will come again: no process listens at the port, the host is not known, or TLS refuses. The end
    of a stream is none of these."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return False
    return isinstance(error, (ConnectionRefusedError, socket.gaierror, ssl.SSLError))
