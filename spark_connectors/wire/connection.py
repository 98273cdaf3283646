"""Connection to a broker, for one request and its reply at a time.

It blocks: a Spark task has a thread of its own and nothing else to do. After any error the connection is closed, and
its owner opens another one; there are no retries here. If a broker throttles (KIP-219), the next request waits as long
as the broker says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from spark_connectors.wire.api import SIZE_BYTES, Api, RequestT, ResponseT
from spark_connectors.wire.clock import Clock
from spark_connectors.wire.errors import ConnectionLost, MalformedReply, ReplyTooLarge, Unsupported, WireError
from spark_connectors.wire.layout import Reader
from spark_connectors.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from spark_connectors.wire.tls import TlsSettings, secured
from spark_connectors.wire.transport import Address, Connect, Stream, is_lasting

CLIENT_NAME: Final = "kafkawire-spark"
CLIENT_VERSION: Final = "1"
FIRST_BUFFER_BYTES: Final = 1 << 20  # memory grows with received bytes, now or earlier, not with announced ones
GROWTH: Final = 4
THROTTLE_MAX_S: Final = 60.0


@dataclass(frozen=True)
class Settings:
    """Client settings. The defaults are those of Kafka's consumer, which has no limit for replies, though."""

    client_id: str = CLIENT_NAME
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    patience_s: float = 60.0  # for an answer in all, with all brokers and retries
    retry_first_s: float = 0.1
    retry_max_s: float = 1.0
    reply_max_bytes: int = 256 << 20
    tls: TlsSettings | None = None  # None: the connection is not encrypted


class Connection:
    """Connection to one broker, for one request at a time. `open` creates it."""

    def __init__(self, stream: Stream, address: Address, settings: Settings, clock: Clock) -> None:
        self.address = address
        self.is_broken = False
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._correlation_id = 0
        self._buffer_bytes = FIRST_BUFFER_BYTES
        self._quiet_until_s = 0.0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    def open(cls, address: Address, connect: Connect, settings: Settings, clock: Clock, deadline_s: float) -> Self:
        """Connect and ask for the broker's API versions. Raises WireError."""
        timeout_s = min(settings.connect_timeout_s, deadline_s - clock.now_s())
        try:
            if timeout_s <= 0:
                raise TimeoutError
            stream = connect(address, timeout_s)
            if settings.tls is not None:
                stream = secured(stream, address.host, settings.tls)
        except OSError as error:
            is_refused = is_lasting(error)
            text = f"cannot connect to {address}: {_reason(error)}"
            raise ConnectionLost(text, was_sent=False, is_refused=is_refused) from error
        connection = cls(stream, address, settings, clock)
        asked = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=CLIENT_VERSION)
        connection._versions = {API_VERSIONS.key: (API_VERSIONS.version, API_VERSIONS.version)}
        answer = connection.call(API_VERSIONS, asked, deadline_s)
        connection._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        return connection

    def call(self, api: Api[RequestT, ResponseT], request: RequestT, deadline_s: float) -> ResponseT:
        """Send a request and return its reply, before the deadline and within the request timeout. Raises WireError."""
        lowest, highest = self._versions.get(api.key, (0, -1))
        if not lowest <= api.version <= highest:
            raise Unsupported(f"{self.address} does not support {api.name} {api.version}")
        self._wait_until_welcome(api.name, deadline_s)
        self._correlation_id += 1
        frame = api.encode(request, self._correlation_id, self._settings.client_id)
        try:
            reply = self._exchange(api.name, frame, deadline_s)
            response = api.decode(reply, self._correlation_id)
        except MalformedReply as error:
            self.close()
            raise MalformedReply(f"{self.address} does not answer {api.name} as Kafka does: {error}") from error
        except WireError:
            self.close()
            raise
        self._heed(response)
        return response

    def close(self) -> None:
        """Close the connection at once."""
        self.is_broken = True
        self._stream.close()

    def _wait_until_welcome(self, name: str, deadline_s: float) -> None:
        now_s = self._clock.now_s()
        if self._quiet_until_s >= deadline_s:
            raise ConnectionLost(f"{self.address} throttles {name} beyond the deadline", was_sent=False)
        if self._quiet_until_s > now_s:
            self._clock.sleep(self._quiet_until_s - now_s)

    def _heed(self, response: Any) -> None:
        throttle_s = min(response.throttle_time_ms / 1000, THROTTLE_MAX_S)
        self._quiet_until_s = self._clock.now_s() + throttle_s

    def _exchange(self, name: str, frame: bytearray, deadline_s: float) -> bytearray:
        end_s = min(deadline_s, self._clock.now_s() + self._settings.request_timeout_s)
        was_sent = False
        try:
            self._set_timeout(end_s)
            was_sent = True  # even if sending fails, a part may have arrived, and the part may be the whole
            self._stream.sendall(frame)
            size_bytes = Reader(self._receive(SIZE_BYTES, end_s)).fixed(">i")
            if size_bytes > self._settings.reply_max_bytes:
                limit_bytes = self._settings.reply_max_bytes
                raise ReplyTooLarge(f"{self.address} answers {name} with {size_bytes} bytes, allowed {limit_bytes}")
            if size_bytes < SIZE_BYTES:
                raise MalformedReply(f"{size_bytes} bytes announced")
            return self._receive(size_bytes, end_s)
        except OSError as error:
            text = f"no answer of {self.address} to {name}: {_reason(error)}"
            raise ConnectionLost(text, was_sent, is_refused=is_lasting(error)) from error

    def _receive(self, size_bytes: int, end_s: float) -> bytearray:
        buffer = bytearray(min(size_bytes, self._buffer_bytes))
        filled = 0
        while filled < size_bytes:
            if filled == len(buffer):
                buffer.extend(bytes(min(size_bytes, GROWTH * filled) - filled))
            self._set_timeout(end_s)
            with memoryview(buffer) as view, view[filled:] as place:
                received = self._stream.recv_into(place)
            if received == 0:
                raise ConnectionResetError("closed by the broker")
            filled += received
        self._buffer_bytes = max(self._buffer_bytes, size_bytes)
        return buffer

    def _set_timeout(self, end_s: float) -> None:
        left_s = end_s - self._clock.now_s()
        if left_s <= 0:
            raise TimeoutError
        self._stream.settimeout(left_s)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "the time for it is over"
    return error.strerror or str(error) or type(error).__name__
