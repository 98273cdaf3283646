"""Bytes as text, as Java's String decodes them: what Kafka's clients, and the stock source, make of a header's key."""

from __future__ import annotations

import codecs

_HANDLER = "spark_connectors.replace"
_SURROGATE_LEAD = 0xED
_SURROGATE_SIZE_BYTES = 3


def as_java_decodes(octets: bytes) -> str:
    """UTF-8, with U+FFFD for what is wrong, as often as Java puts it there."""
    codecs.register_error(_HANDLER, _replace)  # not once for all: who gets this function pickled imports no module
    return octets.decode(errors=_HANDLER)


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Python counts each byte of a surrogate that was encoded as if it were a character; Java, what there is of it."""
    assert isinstance(error, UnicodeDecodeError)
    octets, end = error.object, error.end
    if octets[error.start] == _SURROGATE_LEAD:
        while end < min(len(octets), error.start + _SURROGATE_SIZE_BYTES) and octets[end] & 0xC0 == 0x80:
            end += 1
    return "\N{REPLACEMENT CHARACTER}", end
