"""One connection to one broker: a request out, its reply in, in a version that both sides know.

The door of the command line to the network: only here a stream is opened and read. Every failure leaves as a
ClientError that names the broker. It refuses to retry and to know what a request is about.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, NamedTuple, Self, TypeVar

import trio

from kafkawire.client.errors import CannotConnect, ClientError, NotSupported
from kafkawire.messages import MODULES
from kafkawire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.wire.message import Message
from kafkawire.wire.primitives import DecodeError, EncodeError

CLIENT_ID: Final = "kafkawire"
DEFAULT_PORT: Final = 9092
REPLY_SIZE_MAX_BYTES: Final = 100 * 1024 * 1024
ANY_VERSION: Final = 2**15 - 1
CONNECT_TIMEOUT_S: Final = 5  # then the next bootstrap server is tried

_SIZE: Final = Struct(">i")
_ReplyT = TypeVar("_ReplyT", bound=Message)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Connect = Callable[[Address], Awaitable[trio.abc.Stream]]  # raises OSError


async def connect_tcp(address: Address) -> trio.abc.Stream:
    """The network. Raises OSError."""
    try:
        return await trio.open_tcp_stream(address.host, address.port)
    except UnicodeError as error:  # of IDNA: an empty label, or one that is too long
        raise OSError(f"not the name of a host: {error}") from error


def parse_bootstrap(text: str) -> list[Address]:
    """Of `host:port,…`, as Kafka's bootstrap.servers; without a port it is 9092. Raises ClientError."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ClientError("no bootstrap server is named")
    return addresses


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClientError(f"not host:port: {text}")
    return Address(host, int(port))


class Connection:
    """To one broker; one request at a time. `open` makes it."""

    def __init__(self, stream: trio.abc.Stream, address: Address) -> None:
        self.address = address
        self._stream = stream
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, address: Address, connect: Connect) -> Self:
        """Connects and asks what the broker speaks. Raises ClientError."""
        try:
            with trio.fail_after(CONNECT_TIMEOUT_S):
                connection = cls(await connect(address), address)
                await connection._learn_versions()
        except OSError as error:
            raise CannotConnect(f"cannot connect to {address}: {_reason(error)}") from error
        except trio.TooSlowError as error:
            raise CannotConnect(f"cannot connect to {address}: no answer in {CONNECT_TIMEOUT_S} s") from error
        return connection

    async def call(
        self, request: Message, reply: type[_ReplyT], *, at_least: int = 0, at_most: int = ANY_VERSION
    ) -> _ReplyT:
        """Asks in the highest version both sides know within these bounds. Raises ClientError."""
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        ours_lowest, ours_highest = request.VERSIONS
        version = min(highest, ours_highest, at_most)
        if version < max(lowest, ours_lowest, at_least):
            name = _name(request)
            wanted = f"{name} {at_least} or later" if highest >= lowest and at_least > highest else name
            raise NotSupported(f"{self.address} does not support {wanted}")
        return await self._exchange(request, reply, version)

    def supports(self, request: type[Message]) -> bool:
        """Whether the broker has the API at all."""
        return request.API_KEY in self._versions

    async def aclose(self) -> None:
        """At once, whatever is under way."""
        await trio.aclose_forcefully(self._stream)

    async def _learn_versions(self) -> None:
        """Version 0 of the question every broker answers, and it tells all that is needed."""
        try:
            answer = await self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0)
        except BaseException:
            await self.aclose()
            raise
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    async def _exchange(self, request: Message, reply: type[_ReplyT], version: int) -> _ReplyT:
        self._correlation_id += 1
        try:
            frame = encode_request(request, version, self._correlation_id, CLIENT_ID)
            await self._stream.send_all(_SIZE.pack(len(frame)) + frame)
            (size_bytes,) = _SIZE.unpack(await self._receive(_SIZE.size))
            if not _SIZE.size <= size_bytes <= REPLY_SIZE_MAX_BYTES:
                raise DecodeError(f"{size_bytes} bytes announced")
            correlation_id, answer = decode_response(await self._receive(size_bytes), request.API_KEY, version)
        except EncodeError as error:
            raise ClientError(f"{_name(request)} cannot carry this: {error}") from error
        except DecodeError as error:
            raise ClientError(f"{self.address} does not answer {_name(request)} as Kafka does: {error}") from error
        except (OSError, trio.BrokenResourceError) as error:
            raise CannotConnect(f"lost the connection to {self.address}: {_reason(error)}") from error
        if correlation_id != self._correlation_id or not isinstance(answer, reply):
            raise ClientError(f"{self.address} answered another request than {_name(request)}")
        return answer

    async def _receive(self, size_bytes: int) -> bytearray:
        received = bytearray()
        while len(received) < size_bytes:
            data = await self._stream.receive_some(min(size_bytes - len(received), 65536))
            if not data:
                raise ConnectionResetError("closed by the broker")
            received += data
        return received


def _name(request: Message) -> str:
    """As Kafka writes it: ListGroups."""
    return "".join(word.capitalize() for word in MODULES[request.API_KEY].split("_"))


def _reason(error: BaseException) -> str:
    """In the system's words, of the innermost cause: trio wraps what each address of a host said."""
    while (inner := error.__cause__) is not None or isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else inner  # type: ignore[assignment]
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or type(error).__name__
