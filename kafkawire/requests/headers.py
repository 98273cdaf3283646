"""Request and response headers, and the class, header version and encoding of each (API key, version).

The header of a request has version 2 if the body is flexible, else 1; that of a response has 1 or 0. One exception:
ApiVersions is answered with header 0 in every version, because its client does not know the served versions yet
(KIP-511). The client id stays a legacy string in every header.
"""

from __future__ import annotations

import importlib
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, cast

from kafkawire.messages import MODULES
from kafkawire.wire.message import ELEMENT_CAP, RESPONSE_ELEMENT_CAP, Message
from kafkawire.wire.primitives import DecodeError, read_uvarint

API_VERSIONS_KEY: Final = 18

# Positions in every request.
CORRELATION_ID_AT: Final = 4
CLIENT_ID_AT: Final = 8

_REQUEST_START: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_CORRELATION_ID: Final = Struct(">i")


class RequestHeader(NamedTuple):
    """Header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@cache
def request_class(api_key: int) -> type[Message]:
    """The request class of an API. Raises KeyError for an unknown key."""
    return _message_class(api_key, "Request")


@cache
def response_class(api_key: int) -> type[Message]:
    """The response class of an API. Raises KeyError for an unknown key."""
    return _message_class(api_key, "Response")


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """Whether the version uses compact lengths and tagged fields (KIP-482).

    Raises DecodeError for an API key or version that has no message.
    """
    if api_key not in MODULES:
        raise DecodeError(f"unknown API key {api_key}")
    message = request_class(api_key)
    if not message.VERSIONS[0] <= version <= message.VERSIONS[1]:
        raise DecodeError(f"unknown version {version} of API key {api_key}")
    return version >= message.FLEXIBLE_FROM


def decode_request_header(buffer: bytes | bytearray) -> tuple[RequestHeader, int]:
    """The header of the request in `buffer`, and the position of its body.

    Raises DecodeError: too short, bad client id, an API key or version that has no message.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_START.unpack_from(buffer)
        flexible = is_flexible(api_key, version)
        offset = _REQUEST_START.size
        client_id = None
        if size >= 0:
            stop = offset + size
            if stop > len(buffer):
                raise DecodeError("the client id is longer than its request")
            client_id = buffer[offset:stop].decode()
            offset = stop
        elif size != -1:
            raise DecodeError("the client id has a negative length")
        if flexible:
            offset = offset + 1 if buffer[offset] == 0 else _skip_tags(buffer, offset)
    except IndexError:
        raise DecodeError("a request ends within its header") from None
    except (struct_error, UnicodeDecodeError) as error:
        raise DecodeError(f"no request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id), offset


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """A whole request without its size: header and body. For clients, tests and tools."""
    name = None if client_id is None else client_id.encode()
    start = _REQUEST_START.pack(request.API_KEY, version, correlation_id, -1 if name is None else len(name))
    tags = b"\0" if version >= request.FLEXIBLE_FROM else b""
    return b"".join([start, name or b"", tags, *request.encode(version)])


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of a response."""
    start = _CORRELATION_ID.pack(correlation_id)
    return start + b"\0" if api_key != API_VERSIONS_KEY and is_flexible(api_key, version) else start


def decode_response(buffer: bytes | bytearray, api_key: int, version: int) -> tuple[int, Message]:
    """The correlation id and body of a response without its size. Raises DecodeError. For clients and tests."""
    if len(buffer) < _CORRELATION_ID.size:
        raise DecodeError("a response too short for its header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(buffer)
    offset = _CORRELATION_ID.size
    if api_key != API_VERSIONS_KEY and is_flexible(api_key, version):
        offset = _skip_tags(buffer, offset)
    return correlation_id, response_class(api_key).decode(buffer, version, offset, cap=RESPONSE_ELEMENT_CAP)


def _message_class(api_key: int, side: str) -> type[Message]:
    name = MODULES[api_key]
    module = importlib.import_module(f"kafkawire.messages.{name}")
    wanted = name.replace("_", "") + side.lower()
    found: Any = next(value for key, value in vars(module).items() if key.lower() == wanted)
    assert issubclass(found, Message)
    return cast("type[Message]", found)


def _skip_tags(buffer: bytes | bytearray, offset: int) -> int:
    """Skip the tagged fields of a header; none are known."""
    try:
        count, offset = read_uvarint(buffer, offset)
        if count > ELEMENT_CAP or count * 2 > len(buffer) - offset:
            raise DecodeError("too many tagged fields in a header")
        for _ in range(count):
            _, offset = read_uvarint(buffer, offset)
            size, offset = read_uvarint(buffer, offset)
            offset += size
            if offset > len(buffer):
                raise DecodeError("a tagged field is longer than its request")
    except IndexError:
        raise DecodeError("tagged fields end behind the request") from None
    return offset
