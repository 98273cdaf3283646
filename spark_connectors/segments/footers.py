"""Footer of a sealed segment, as far as a reader needs it: docs/formats/footer.md. Pure.

The footer lies beside the segment's file, or behind the records in an object.
"""

from __future__ import annotations

from binascii import crc32
from typing import Final, NamedTuple

from spark_connectors.segments.sealed import Aborted

_VERSIONS: Final = ("1", "2")  # a reader does not need the fields that version 2 adds
_NONE: Final = "-"
_START: Final = b"version="
_CRC: Final = b"\ncrc32="  # followed by eight digits and a line feed
_CRC_LINE_SIZE_BYTES: Final = len(_CRC) + 9


class FooterDamaged(Exception):
    """A damaged footer, or one of another version."""


class Footer(NamedTuple):
    """Parsed footer. `digest`: 64 hexadecimal digits. `aborted`: aborted transactions with offsets in the segment."""

    base: int
    size_bytes: int
    digest: str
    aborted: Aborted


def decode(data: bytes) -> Footer:
    """Parse a footer. Raises FooterDamaged."""
    body, _, checksum = data.rpartition(_CRC[1:])
    if not body or checksum != b"%08x\n" % crc32(body):
        raise FooterDamaged("the footer fails its CRC")
    try:
        values = dict(line.split("=", 1) for line in body.decode().splitlines())
        version = values["version"]
        if version not in _VERSIONS:
            raise FooterDamaged(f"the footer has version {version}: it was written by another version of Kafkawire")
        listed = [] if values["aborted"] == _NONE else values["aborted"].split(",")
        aborted = tuple(_transaction(one) for one in listed)
        return Footer(int(values["base.offset"]), int(values["size.bytes"]), values["digest"], aborted)
    except (KeyError, ValueError) as error:
        raise FooterDamaged(f"the footer makes no sense: {error}") from error


def _transaction(text: str) -> tuple[int, int, int]:
    producer_id, first, last = map(int, text.split(":"))
    return producer_id, first, last


def size_of(data: bytes) -> int | None:
    """Size in bytes of the footer at the beginning of `data`; None: it is incomplete. Raises FooterDamaged if there is
    none.
    """
    if not data.startswith(_START):
        raise FooterDamaged("no footer begins there")
    position = data.find(_CRC)
    if position < 0 or position + _CRC_LINE_SIZE_BYTES > len(data):
        return None
    return position + _CRC_LINE_SIZE_BYTES
