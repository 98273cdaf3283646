"""Connection to a broker: sends a request and receives its reply, in a version that both sides know.

Only this module of the command line opens and reads streams. Every failure is raised as a ClientError that names the
broker. It does not retry, and does not know the meaning of requests.
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
CONNECT_TIMEOUT_S: Final = 5  # after it, the next bootstrap server is tried

_SIZE: Final = Struct(">i")
_ReplyT = TypeVar("_ReplyT", bound=Message)


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Connect = Callable[[Address], Awaitable[trio.abc.Stream]]  # raises OSError


async def connect_tcp(address: Address) -> trio.abc.Stream:
    """Connect over the network. Raises OSError."""
    try:
        return await trio.open_tcp_stream(address.host, address.port)
    except UnicodeError as error:  # a label of the name is empty or too long for IDNA
        raise OSError(f"not the name of a host: {error}") from error


def parse_bootstrap(text: str) -> list[Address]:
    """Parse `host:port,…`, like Kafka's bootstrap.servers; the default port is 9092. Raises ClientError."""
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
    """Connection to one broker, for one request at a time. Made by `open`."""

    def __init__(self, stream: trio.abc.Stream, address: Address) -> None:
        self.address = address
        self._stream = stream
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, address: Address, connect: Connect) -> Self:
        """Connect, and ask for the broker's API versions. Raises ClientError."""
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
        """Send the request in the highest version within these bounds that both sides know. Raises ClientError."""
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        ours_lowest, ours_highest = request.VERSIONS
        version = min(highest, ours_highest, at_most)
        if version < max(lowest, ours_lowest, at_least):
            name = _name(request)
            wanted = f"{name} {at_least} or later" if highest >= lowest and at_least > highest else name
            raise NotSupported(f"{self.address} does not support {wanted}")
        return await self._exchange(request, reply, version)

    def supports(self, request: type[Message]) -> bool:
        """Whether the broker serves the API."""
        return request.API_KEY in self._versions

    async def aclose(self) -> None:
        """Close at once, even during a request."""
        await trio.aclose_forcefully(self._stream)

    async def _learn_versions(self) -> None:
        """Ask for the broker's API versions. Every broker answers version 0, which is sufficient."""
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
    """Kafka's name of the API, such as ListGroups."""
    return "".join(word.capitalize() for word in MODULES[request.API_KEY].split("_"))


def _reason(error: BaseException) -> str:
    """The system's text for the innermost cause: trio wraps the errors of all addresses of a host."""
    while (inner := error.__cause__) is not None or isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else inner  # type: ignore[assignment]
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error) or type(error).__name__
