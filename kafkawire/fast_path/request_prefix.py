"""The prefix of requests of a group's members: client id, group, generation, member, instance id.

The prefix is the same in all requests of a member. It is decoded once and then compared as bytes. The lengths of its
strings alone give its end; the decoder has checked the prefix once.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafkawire.fast_path.prefix_cache import SIZE_MAX_BYTES, learn
from kafkawire.requests.dispatch import INLINE_ELEMENTS_MAX
from kafkawire.requests.headers import CLIENT_ID_AT, decode_request_header
from kafkawire.wire.primitives import LONG_LENGTH, DecodeError
from kafkawire.wire.schema import FIXED

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.wire.message import Message

T = TypeVar("T")


_INT16: Final = Struct(">h")


class RequestPrefixes(Generic[T]):
    """Cache of decoded prefixes of one API in one version; `extract` extracts the values from a request."""

    def __init__(self, request: type[Message], version: int, extract: Callable[[Any], T]) -> None:
        self._request = request
        self._version = version
        self._extract = extract
        self._is_flexible = version >= request.FLEXIBLE_FROM
        self.no_tags = b"\0" if self._is_flexible else b""  # the end of a struct without tagged fields
        self._gaps = _gaps(request, version)
        self._learned: dict[bytes, T] = {}

    def end(self, frame: bytearray) -> int:
        """End of the prefix; 0 if the frame has another shape. A frame that is too short may raise struct.error."""
        (size,) = _INT16.unpack_from(frame, CLIENT_ID_AT)
        at = CLIENT_ID_AT + 2 + (size if size > 0 else 0)
        if not self._is_flexible:
            for gap in self._gaps:
                (size,) = _INT16.unpack_from(frame, at)
                at += 2 + gap + (size if size > 0 else 0)
            return at
        if frame[at]:  # tagged fields of the header
            return 0
        at += 1
        for gap in self._gaps:
            length = frame[at]  # compact length: plus one, 0 for null
            if length >= LONG_LENGTH:
                return 0
            at += (length or 1) + gap
        return at

    def find(self, frame: bytearray, end: int) -> T | None:
        """Values of the prefix that ends there; None if the frame is no valid request."""
        if end > CLIENT_ID_AT + SIZE_MAX_BYTES:
            return None
        prefix = bytes(frame[CLIENT_ID_AT:end])
        return self._learned.get(prefix) or self._learn(frame, prefix)

    def _learn(self, frame: bytearray, prefix: bytes) -> T | None:
        try:
            _, body_start = decode_request_header(frame)
            request = self._request.decode(frame, self._version, body_start, cap=INLINE_ELEMENTS_MAX)
        except DecodeError:
            return None
        values = self._extract(request)
        learn(self._learned, prefix, values)
        return values


def _gaps(request: type[Message], version: int) -> tuple[int, ...]:
    """Sizes of the fields behind each string, up to the next string or the first array."""
    gaps: list[int] = []
    for field in request.FIELDS:
        if field.array:
            break
        if field.first <= version <= field.last:
            if field.fixed:
                gaps[-1] += FIXED[field.kind][1]
            else:
                assert field.kind == "string"
                gaps.append(0)
    return tuple(gaps)
