"""Fake brokers without a network. They read and write bytes by kafkawire's messages.

A FakeBroker answers each request by the handler of its class, unless `next` has something else for it: to break off, to
be silent, or to answer other bytes. Time is that of a FakeClock, which timeouts move.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kafkawire.messages import MODULES
from kafkawire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafkawire.requests.headers import decode_request_header, request_class, response_header
from kafkawire.wire.message import Message
from spark_connectors.wire.transport import Address

Handler = Callable[[Any], Message]

PIECE_BYTES: Final = 7  # in the first piece of a stream; then all the rest


class FakeClock:
    """A clock that only pauses and timeouts move."""

    def __init__(self) -> None:
        self.moment_s = 1000.0
        self.pauses_s: list[float] = []

    def now_s(self) -> float:
        return self.moment_s

    def sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.pauses_s.append(duration_s)
        self.moment_s += duration_s


class FakeBroker:
    """A broker. `requests` are those it received; `next` has other actions in place of answers."""

    BREAK = "break off"  # before any byte of the request is received
    BREAK_AFTER = "break off behind the request"
    SILENCE = "say nothing"

    def __init__(self, *handlers: tuple[type[Message], Handler]) -> None:
        self.handlers: dict[type[Message], Handler] = {ApiVersionsRequest: supports_everything, **dict(handlers)}
        self.requests: list[Message] = []
        self.next: deque[str | bytes | None] = deque()
        self.is_down = False
        self.connections = 0
        self.rooms_bytes: list[int] = []  # sizes of buffers for pieces of replies

    def asked(self, kind: type[Message]) -> list[Any]:
        return [one for one in self.requests if type(one) is kind]

    def answer(self, frame: bytes) -> bytes:
        """The reply to a request, both without their sizes."""
        header, start = decode_request_header(frame)
        request = request_class(header.api_key).decode(frame, header.api_version, start)
        self.requests.append(request)
        reply = self.handlers[type(request)](request)
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return head + b"".join(bytes(one) for one in reply.encode(header.api_version))


class FakeNetwork:
    """Brokers by their addresses: a `Connect`."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.brokers: dict[Address, FakeBroker] = {}

    def __call__(self, address: Address, timeout_s: float) -> FakeStream:
        broker = self.brokers.get(address)
        if broker is None or broker.is_down:
            raise ConnectionRefusedError(111, "Connection refused")
        broker.connections += 1
        return FakeStream(broker, self.clock, timeout_s)


class FakeStream:
    """A connection to a fake broker, which answers while its request is sent."""

    def __init__(self, broker: FakeBroker, clock: FakeClock, timeout_s: float) -> None:
        self._broker = broker
        self._clock = clock
        self._timeout_s = timeout_s
        self._received = bytearray()
        self._is_over = False
        self._is_first_piece = True

    def settimeout(self, timeout_s: float) -> None:
        assert timeout_s > 0
        self._timeout_s = timeout_s

    def sendall(self, data: bytearray, /) -> None:
        frame = bytes(data)
        assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
        told = self._broker.next.popleft() if self._broker.next else None
        if self._broker.is_down or told == FakeBroker.BREAK:
            raise BrokenPipeError(32, "Broken pipe")
        if told == FakeBroker.SILENCE:
            return
        if isinstance(told, bytes):
            self._received += told
            return
        reply = self._broker.answer(frame[4:])
        if told == FakeBroker.BREAK_AFTER:
            self._is_over = True
        else:
            self._received += struct.pack(">i", len(reply)) + reply
            self._is_first_piece = True

    def recv_into(self, buffer: memoryview, /) -> int:
        self._broker.rooms_bytes.append(len(buffer))
        if not self._received:
            if self._is_over or self._broker.is_down:
                return 0
            self._clock.moment_s += self._timeout_s
            raise TimeoutError("timed out")
        size_bytes = min(len(buffer), len(self._received), PIECE_BYTES if self._is_first_piece else len(self._received))
        self._is_first_piece = False
        buffer[:size_bytes] = self._received[:size_bytes]
        del self._received[:size_bytes]
        return size_bytes

    def close(self) -> None:
        self._is_over = True


def supports_everything(_: Any) -> ApiVersionsResponse:
    """The version ranges of kafkawire's messages."""
    ranges = {key: request_class(key).VERSIONS for key in MODULES}
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    )
