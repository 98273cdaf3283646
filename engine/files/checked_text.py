"""Small text files whose last line is the CRC of all before it (docs/formats)."""

from binascii import crc32

_CRC = b"crc32="


def with_crc(body: bytes) -> bytes:
    """Append the CRC line to `body`, which consists of complete lines."""
    return body + _CRC + b"%08x\n" % crc32(body)


def body_of(content: bytes) -> bytes | None:
    """The content without its CRC line; None if it is damaged or empty."""
    body, _, crc = content.rpartition(_CRC)
    return body if body and crc == b"%08x\n" % crc32(body) else None
