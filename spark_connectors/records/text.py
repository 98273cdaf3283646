"""Decoding of header keys as by Java's String, for the same text as in Kafka's clients and Spark's own source."""

from __future__ import annotations

import codecs

_HANDLER = "spark_connectors.replace"
_SURROGATE_LEAD = 0xED
_SURROGATE_SIZE_BYTES = 3


def as_java_decodes(octets: bytes) -> str:
    """Decode UTF-8, with U+FFFD for wrong bytes, as often as Java inserts it."""
    codecs.register_error(_HANDLER, _replace)  # at each call: unpickled by value, this function imports no module
    return octets.decode(errors=_HANDLER)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Replace wrong bytes. For an encoded surrogate, Python inserts one character for each byte, and Java one for all
    of them.
    """
    assert isinstance(error, UnicodeDecodeError)
    octets, end = error.object, error.end
    if octets[error.start] == _SURROGATE_LEAD:
        while end < min(len(octets), error.start + _SURROGATE_SIZE_BYTES) and octets[end] & 0xC0 == 0x80:
            end += 1
    return "\N{REPLACEMENT CHARACTER}", end
