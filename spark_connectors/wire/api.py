"""A request and its reply as frames: pure, from objects to bytes and back.

Each API has one version here, which Apache Kafka 3.1 to 4.3 and kafkawire share, so that each request is tested in one
version. All are flexible, so a request has header 2 and a reply header 1. But the reply to ApiVersions has header 0,
because its client cannot know the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from spark_connectors.wire.errors import MalformedReply
from spark_connectors.wire.layout import Reader, Struct, layout_of

API_VERSIONS_KEY: Final = 18
SIZE_BYTES: Final = 4  # of the size before a frame

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True)
class Api(Generic[RequestT, ResponseT]):
    """A Kafka API, in the version that is used here."""

    name: str
    key: int
    version: int
    request: type[RequestT]
    response: type[ResponseT]
    _request_layout: Struct = field(init=False, repr=False, compare=False)
    _response_layout: Struct = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_request_layout", layout_of(self.request))
        object.__setattr__(self, "_response_layout", layout_of(self.response))

    def encode(self, request: RequestT, correlation_id: int, client_id: str) -> bytearray:
        """The request as a frame, its size in front."""
        name = client_id.encode()
        head = struct.pack(">hhih", self.key, self.version, correlation_id, len(name))
        frame = bytearray(SIZE_BYTES) + head + name + b"\0"
        self._request_layout.write(frame, request)
        struct.pack_into(">i", frame, 0, len(frame) - SIZE_BYTES)
        return frame

    def decode(self, frame: bytes | bytearray, correlation_id: int) -> ResponseT:
        """Decode the reply in a frame without its size. Bytes after it are ignored, as in Kafka's own client.

        Raises MalformedReply, also for a reply to another request.
        """
        source = Reader(frame)
        answered = source.fixed(">i")
        if answered != correlation_id:
            raise MalformedReply(f"reply {answered} to request {correlation_id}")
        if self.key != API_VERSIONS_KEY:
            source.skip_tags()
        response: Any = self._response_layout.read(source)
        assert isinstance(response, self.response)
        return response
