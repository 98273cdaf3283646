"""Connections to a broker that comes and goes, and requests over them.

A connection can be cut at any moment, by the client in the middle of a frame or by a fault. Nothing here retries: the
clients do. `LOST`: the errors of a cut connection.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import trio

from kafkawire.requests.headers import encode_request
from kafkawire.testing import Client, MemoryDeps
from kafkawire.wire.message import Message

LOST = (EOFError, OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)
ANSWER_WITHIN_S = 40.0  # longer than the slowest disk


class Connection(Client):
    """A client's connection. `number` is unique in a run."""

    number: int = 0

    async def ask(self, request: Message, version: int) -> Message:
        """Send a request, and return its reply, which must come in time. Errors: LOST."""
        with trio.fail_after(ANSWER_WITHIN_S):
            return await self.call(request, version)

    async def ask_all(self, requests: Sequence[Message], version: int) -> list[Message]:
        """Send all requests at once, and return their replies. Errors: LOST."""
        with trio.fail_after(ANSWER_WITHIN_S):
            await self.send(*requests, version=version)
            return [await self.receive() for _ in requests]

    async def send_prefix(self, request: Message, version: int, rng: Random) -> None:
        """Send some bytes of a request; the connection is useless afterwards."""
        frame = encode_request(request, version, 0, self.client_id)
        sized_frame = struct.pack(">i", len(frame)) + frame
        await self.stream.send_all(sized_frame[: rng.randrange(1, len(sized_frame))])

    def close(self) -> None:
        """Close at once, also in the middle of a request."""
        self.stream.close()


@dataclass
class Network:
    """The address for clients. It is up while a broker accepts connections."""

    world: MemoryDeps
    is_up: bool = False
    open: dict[int, Connection] = field(default_factory=dict)
    _last_number: int = 0

    def connect(self, client_id: str) -> Connection:
        """Errors: ConnectionRefusedError, one of LOST."""
        if not self.is_up:
            raise ConnectionRefusedError("no broker")
        connection = Connection(self.world.listeners[9092].connect(), client_id)
        self._last_number += 1
        connection.number = self._last_number
        self.open[connection.number] = connection
        return connection

    def disconnect(self, connection: Connection) -> None:
        """The client hangs up."""
        connection.close()
        self.open.pop(connection.number, None)

    def cut_all(self) -> int:
        """Break all connections now, and return how many there were."""
        count = len(self.open)
        for connection in self.open.values():
            connection.close()
        self.open.clear()
        return count
