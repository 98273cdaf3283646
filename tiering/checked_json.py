"""Small objects of the tier: a line of JSON, and a line with its CRC-32C. docs/formats/tier.md. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from crc32c import crc32c

from tiering.errors import OtherVersion, TierDamaged

FORMAT = 1
_CRC_LINE = b"crc32c=%08x\n"

T = TypeVar("T")


class _Version(msgspec.Struct):
    v: int


def with_checksum(value: msgspec.Struct) -> bytes:
    """Encode a value, which has its format version in `v`."""
    line = msgspec.json.encode(value) + b"\n"
    return line + _CRC_LINE % crc32c(line)


def checked(data: bytes, key: str, kind: type[T]) -> T:
    """Decode an object. Raises TierDamaged and OtherVersion, with `key` in their texts."""
    line, _, checksum = data.rpartition(b"crc32c=")
    if not line or b"crc32c=" + checksum != _CRC_LINE % crc32c(line):
        raise TierDamaged(f"{key} fails its CRC")
    try:
        version = msgspec.json.decode(line, type=_Version).v
        if version != FORMAT:
            raise OtherVersion(f"{key} has format {version}: it was written by another version of Kafkawire")
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise TierDamaged(f"{key} makes no sense: {error}") from error
