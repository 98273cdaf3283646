"""How clients frame the records that they compress, for the libraries' other forms; the same bytes each time."""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_XERIAL_BLOCK_BYTES = 1000
_SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"meta"


def zstd(data: bytes, *, window_log: int = 20, checksum: bool = False) -> bytes:
    """A frame without its content size, as Java's clients stream it."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=window_log, write_content_size=False, write_checksum=checksum
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def gzip(data: bytes, level: int = 6) -> bytes:
    stream = zlib.compressobj(level, wbits=31)
    return stream.compress(data) + stream.flush()


def xerial(data: bytes, version: int = 1) -> bytes:
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", version, 1)
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        framed += struct.pack(">i", len(block)) + block
    return framed


def lz4_frame(data: bytes, *, block_linked: bool = False, **options: bool | int) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=block_linked, **options))


def framings(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Codec and records section of each framing, by name."""
    half = len(data) // 2
    first, second = data[:half], data[half:]
    return {
        "zstd, size unknown": (ZSTD, zstd(data)),
        "zstd, size known": (ZSTD, zstandard.compress(data)),
        "zstd, checksum": (ZSTD, zstd(data, checksum=True)),
        **{f"zstd, window {log}": (ZSTD, zstd(data, window_log=log)) for log in (23, 24, 25, 26, 27)},
        "zstd, two frames": (ZSTD, zstd(first) + zstd(second)),
        "zstd, skippable frame in front": (ZSTD, _SKIPPABLE + zstd(data)),
        "zstd, skippable frame behind": (ZSTD, zstd(data) + _SKIPPABLE),
        "zstd, cut": (ZSTD, zstd(data)[:-3]),
        "gzip, one member": (GZIP, gzip(data)),
        "gzip, two members": (GZIP, gzip(first) + gzip(second)),
        "gzip, stored": (GZIP, gzip(data, 0)),
        "gzip, zeros behind": (GZIP, gzip(data) + bytes(8)),
        "gzip, cut": (GZIP, gzip(data)[:-12]),
        "lz4, independent blocks": (LZ4, lz4_frame(data)),
        "lz4, linked blocks": (LZ4, lz4_frame(data, block_linked=True)),
        "lz4, sizes and checksums": (
            LZ4,
            lz4_frame(data, content_checksum=True, block_checksum=True, store_size=True),
        ),
        "lz4, blocks of 4 MB": (LZ4, lz4_frame(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        "lz4, two frames": (LZ4, lz4_frame(first) + lz4_frame(second)),
        "lz4, an empty frame behind": (LZ4, lz4_frame(data) + lz4_frame(b"")),
        "lz4, cut": (LZ4, lz4_frame(data)[:-6]),
        "snappy, xerial": (SNAPPY, xerial(data)),
        "snappy, xerial of version 2": (SNAPPY, xerial(data, 2)),
        "snappy, raw block": (SNAPPY, bytes(cramjam.snappy.compress_raw(data))),
        "snappy, framed": (SNAPPY, bytes(cramjam.snappy.compress(data))),
    }
