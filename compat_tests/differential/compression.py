"""Compressed record bodies without a library for each codec: gzip from the standard one, zstd as a stored block."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compat_tests.harness.batches import Record


def plain_body(records: tuple[Record, ...]) -> bytes:
    return b"".join(record.encode(position) for position, record in enumerate(records))


def gzip_body(records: tuple[Record, ...]) -> bytes:
    """A gzip body with the same bytes each time: the library would put the time into its header."""
    return gzip.compress(plain_body(records), mtime=0)


def zstd_body(records: tuple[Record, ...]) -> bytes:
    """RFC 8878: one frame, its content size in four bytes, one last block that is not compressed."""
    content = plain_body(records)
    frame_header = struct.pack("<IBI", 0xFD2FB528, 0b1010_0000, len(content))
    block_header = (len(content) << 3 | 1).to_bytes(3, "little")
    return frame_header + block_header + content
