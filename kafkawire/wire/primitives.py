"""The smallest parts of Kafka's encoding, and the two errors of a codec.

Varints are unsigned LEB128 (KIP-482). Varints that are longer than necessary are accepted, as in Java; values beyond 32
bits are refused.
"""

from __future__ import annotations

from typing import Final

UUID_SIZE_BYTES: Final = 16
ZERO_UUID: Final = bytes(UUID_SIZE_BYTES)
UVARINT_MAX: Final = 2**32 - 1
UVARINT_BYTES_MAX: Final = 5
LONG_LENGTH: Final = 128  # a compact length from here on takes more than a byte
STRING_SIZE_MAX: Final = 2**15 - 1  # in either encoding, as in Kafka; names are kept longer than their request


class DecodeError(Exception):
    """The bytes are no message of the given version. The connection cannot go on."""


class TooManyElements(DecodeError):
    """More elements than may be decoded now. The message may be valid otherwise."""


class EncodeError(Exception):
    """A value that the version cannot carry: out of range, null where null has no encoding, a string too long."""


def read_uvarint(buffer: bytes | bytearray, offset: int) -> tuple[int, int]:
    """The unsigned varint at `offset`, and the offset behind it. Raises DecodeError, IndexError at the buffer's end."""
    value = 0
    for shift in range(0, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                raise DecodeError("a varint that needs more than 32 bits")
            return value, offset
    raise DecodeError(f"a varint of more than {UVARINT_BYTES_MAX} bytes")


def uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


ONE_BYTE: Final = tuple(bytes([value]) for value in range(0x80))
