"""Compression and decompression of records sections by pyarrow's codecs, without other packages.

If the package zstandard is installed, it decompresses small zstd frames in two thirds of the time.

An announced size is used as a guess at most: memory grows with the decompressed bytes, up to a limit, so that a small
batch does not become a large allocation. Formats are those of Kafka (package compress): gzip, LZ4 frames of independent
blocks, zstd frames, and snappy in the framing of xerial's snappy-java or as one raw block.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_connectors.records.errors import MalformedBatch

if TYPE_CHECKING:
    from collections.abc import Callable

UNCOMPRESSED_MAX_BYTES = 256 << 20  # of one batch
_GUESSED_RATIO = 4
_READ_MIN_BYTES = 64 << 10

_GZIP_LEVEL = 6  # zlib's default, which Kafka's -1 means
_ZSTD_LEVEL = 3

_ZSTD_WINDOW_MAX_BYTES = 128 << 20  # as in Java's decoder, and pyarrow's
_ZSTD_DESCRIPTOR_AT, _ZSTD_HAS_CHECKSUM, _ZSTD_CHECKSUM_BYTES = 4, 1 << 2, 4
_ZSTD_BLOCK_HEADER_BYTES, _ZSTD_LAST_BLOCK, _ZSTD_ONE_BYTE_REPEATED = 3, 1, 1

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # its version, and the oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 << 10
_XERIAL_SIZE_BYTES = 4
_SNAPPY_RATIO_MAX = 22  # an element of three bytes copies at most 64

# Magic; the descriptor: version 1, independent blocks, no checksums; blocks up to 64 KiB; a byte of its hash.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_NOT_COMPRESSED = 1 << 31
_LZ4_END = bytes(4)


class Codec(IntEnum):
    """Compression codec, numbered as in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(
    codec: int, data: bytes | bytearray | memoryview, limit_bytes: int = UNCOMPRESSED_MAX_BYTES
) -> bytes | bytearray | memoryview:
    """Decompress the data. Raises MalformedBatch if they are damaged or incomplete, or grow beyond the limit."""
    if codec == Codec.NONE:
        return data
    if not data:
        raise MalformedBatch("the records are not there")
    try:
        if codec == Codec.SNAPPY:
            return _unsnappy(memoryview(data), limit_bytes)
        if codec == Codec.ZSTD:
            return _unzstd(data, limit_bytes)
        return _read_all(_STREAMS[Codec(codec)], data, limit_bytes)
    except _TooLarge:
        raise MalformedBatch(f"the records grow beyond {limit_bytes} bytes when decompressed") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MalformedBatch(f"the records are not {Codec(codec).name.lower()}: {error}") from error


class _TooLarge(Exception):
    """The output would exceed the limit."""


_STREAMS = {Codec.GZIP: "gzip", Codec.LZ4: "lz4"}


def _read_all(name: str, data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """Decompress a stream. A read allocates at most the bytes that it asks for."""
    parts: list[bytes] = []
    size_bytes = 0
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        asked_bytes = max(_READ_MIN_BYTES, _GUESSED_RATIO * len(data))
        while True:
            asked_bytes = min(asked_bytes, limit_bytes + 1 - size_bytes)
            parts.append(stream.read(asked_bytes))
            size_bytes += len(parts[-1])
            if size_bytes > limit_bytes:
                raise _TooLarge
            if len(parts[-1]) < asked_bytes:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            asked_bytes = size_bytes


def _unzstd(data: bytes | bytearray | memoryview, limit_bytes: int) -> bytes:
    """Decompress a zstd frame by zstandard. If that is not possible, pyarrow reads it, or reports the error."""
    output = _zstandard.decompress(data)
    if output is None:
        return _read_all("zstd", data, limit_bytes)
    if len(output) > limit_bytes:
        raise _TooLarge
    return output


class _Zstandard:
    """Adapter of the package zstandard, if it is installed; it is imported at the first frame.

    To create a decompressor costs a third of a small frame, so they are kept. A decompressor in use is not among them,
    because it must not be used twice at once. The adapter is pickled empty: the package may be missing elsewhere.
    """

    def __init__(self) -> None:
        self._package: Any = None
        self._is_missing = False
        self._idle: list[Any] = []

    def __reduce__(self) -> tuple[type[_Zstandard], tuple[()]]:
        return _Zstandard, ()

    def decompress(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Decompress a small frame. None: the frame is large or wrong, or the package is missing."""
        if self._package is None and not self._find():
            return None
        try:
            size_bytes = self._package.frame_content_size(data)  # negative: not announced
            if not size_bytes or (size_bytes if size_bytes > 0 else _GUESSED_RATIO * len(data)) > _READ_MIN_BYTES:
                return None  # the package ignores further content of a frame that announces 0 bytes
            if _zstd_frame_end(data, self._package.frame_header_size(data)) != len(data):
                return None  # the package ignores data behind the frame
            decompressor = self._take()
            output: bytes = decompressor.decompress(data, max_output_size=_READ_MIN_BYTES)
        except self._package.ZstdError:
            return None
        self._idle.append(decompressor)
        return output

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._package.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES)

    def _find(self) -> bool:
        if not self._is_missing:
            try:
                import zstandard
            except ImportError:
                self._is_missing = True
            else:
                self._package = zstandard
        return self._package is not None


_zstandard = _Zstandard()


def _zstd_frame_end(data: bytes | bytearray | memoryview, position: int) -> int:
    """Position behind a complete frame whose blocks begin there (RFC 8878)."""
    block = 0
    while not block & _ZSTD_LAST_BLOCK and position < len(data):
        block = int.from_bytes(data[position : position + _ZSTD_BLOCK_HEADER_BYTES], "little")
        is_repeated = block >> 1 & 3 == _ZSTD_ONE_BYTE_REPEATED
        position += _ZSTD_BLOCK_HEADER_BYTES + (1 if is_repeated else block >> 3)
    return position + (_ZSTD_CHECKSUM_BYTES if data[_ZSTD_DESCRIPTOR_AT] & _ZSTD_HAS_CHECKSUM else 0)


def _unsnappy(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(data, limit_bytes)
    if len(data) < len(_XERIAL_HEADER):
        raise ValueError("the header is cut")
    position = len(_XERIAL_HEADER)
    output = bytearray()
    while position < len(data):
        begin = position + _XERIAL_SIZE_BYTES
        position = begin + int.from_bytes(data[position:begin], "big")
        if position > len(data) or begin > len(data):
            raise ValueError("a block is cut")
        output += _unsnappy_block(data[begin:position], limit_bytes - len(output))
    return output


def _unsnappy_block(data: memoryview, limit_bytes: int) -> bytes:
    """Decompress a raw block. It begins with the decompressed size as a varint."""
    size_bytes = shift = 0
    for byte in data[:5]:
        size_bytes |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size_bytes > limit_bytes:
        raise _TooLarge
    if size_bytes > _SNAPPY_RATIO_MAX * len(data):
        raise ValueError(f"{len(data)} bytes cannot become {size_bytes}")
    output: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size_bytes, asbytes=True)
    return output


def compress(codec: Codec, data: bytes) -> bytes:
    """Compress in a form that every Kafka client reads, at the default level of Kafka's clients."""
    return data if codec == Codec.NONE else _COMPRESSORS[codec](data)


def _gzip(data: bytes) -> bytes:
    output: bytes = pa.Codec("gzip", compression_level=_GZIP_LEVEL).compress(data, asbytes=True)
    return output


def _snappy(data: bytes) -> bytes:
    codec, parts = pa.Codec("snappy"), [_XERIAL_HEADER]
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = codec.compress(data[position : position + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (len(block).to_bytes(_XERIAL_SIZE_BYTES, "big"), block)
    return b"".join(parts)


def _lz4(data: bytes) -> bytes:
    """Build an LZ4 frame: pyarrow's own frames link their blocks, which Kafka's Java clients refuse."""
    codec, parts = pa.Codec("lz4_raw"), [_LZ4_HEADER]
    for position in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[position : position + _LZ4_BLOCK_BYTES]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_NOT_COMPRESSED).to_bytes(4, "little"), plain)
    return b"".join([*parts, _LZ4_END])


def _zstd(data: bytes) -> bytes:
    output: bytes = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(data, asbytes=True)
    return output


_COMPRESSORS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
