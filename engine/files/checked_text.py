"""Small files of lines that end with the CRC of what comes before (docs/formats)."""

from binascii import crc32

_CRC = b"crc32="


def with_crc(body: bytes) -> bytes:
    """`body` is whole lines."""
    return body + _CRC + b"%08x\n" % crc32(body)


def body_of(content: bytes) -> bytes | None:
    """The lines before the last; None: they are damaged, or there are none."""
    body, _, crc = content.rpartition(_CRC)
    return body if body and crc == b"%08x\n" % crc32(body) else None
