"""Reading of DER, as far as the subject of a certificate needs it. Pure.

OpenSSL has parsed and verified a certificate before this module sees it. Java names subjects by the bytes that are
there, so the bytes are read here: a library that decodes names refuses some that Java accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_LONG_FORM: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4
_CONTEXT_0: Final = 0xA0  # [0] EXPLICIT: the version of a certificate


class Element(NamedTuple):
    """A value with its tag. `encoded` has tag, length and value, `content` the value alone."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements of a sequence or set. Raises ValueError for data that are no DER."""
    position = 0
    while position < len(data):
        begin, position = position, position + 2
        if position > len(data):
            raise ValueError("the data end within an element")
        tag, size = data[begin], data[begin + 1]
        if size & _LONG_FORM:
            count = size - _LONG_FORM
            if not 0 < count <= _LENGTH_BYTES_MAX:
                raise ValueError("the length of an element is indefinite or too large")
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("the data end within an element")
        yield Element(tag, data[position:end], data[begin:end])
        position = end


def subject_of(certificate: bytes) -> bytes:
    """The content of the subject's sequence of relative distinguished names. Raises ValueError."""
    (outer,) = elements(certificate)
    signed, *_ = elements(outer.content)
    _, _, _, _, subject, *_ = (one for one in elements(signed.content) if one.tag != _CONTEXT_0)
    return subject.content  # behind serial number, algorithm, issuer and validity


def object_identifier(content: bytes) -> str:
    """An object identifier with dots. Raises ValueError."""
    if not content or content[-1] & _LONG_FORM:
        raise ValueError("the object identifier ends within a number")
    numbers, value = [], 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & _LONG_FORM:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
