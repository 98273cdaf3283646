"""Decompression of a batch's records, streamed and bounded: a small batch must not become a large allocation.

The one door to compression libraries. What compresses, but for clients, is compaction. Formats: gzip, LZ4 frames, zstd
frames, and snappy in the framing of xerial's snappy-java, as Kafka's Java clients write it, or as one raw block.
"""

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from engine.batch import Codec
from engine.errors import CorruptMessage

DECOMPRESSED_MAX_BYTES = 64 * 1024 * 1024
ZSTD_WINDOW_MAX_BYTES = 8 * 1024 * 1024  # what a decoder must support; larger windows are a memory trap
_GZIP_WBITS = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE_BYTES = 16
_XERIAL_BLOCK = struct.Struct(">i")
_XERIAL_BLOCK_BYTES = 32 * 1024


class _TooLarge(Exception):
    """The output would pass the cap."""


def decompress(codec_id: int, data: bytes | memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes | memoryview:
    """The records section; CorruptMessage when it is not what the codec says or grows beyond `max_bytes`."""
    if codec_id == Codec.NONE:
        return data
    try:
        return _DECOMPRESSORS[Codec(codec_id)](bytes(data), max_bytes)
    except _TooLarge:
        raise CorruptMessage(f"records grow beyond {max_bytes} bytes when decompressed") from None
    except (zlib.error, RuntimeError, EOFError, ValueError, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise CorruptMessage(f"records are not {Codec(codec_id).name.lower()}: {error}") from error


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    decoder = zlib.decompressobj(_GZIP_WBITS)
    output = decoder.decompress(data, max_bytes)
    if decoder.unconsumed_tail:
        raise _TooLarge
    if not decoder.eof:
        raise EOFError("truncated")
    return output


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    decoder = lz4.frame.LZ4FrameDecompressor()
    output: bytes = decoder.decompress(data, max_bytes)
    if not decoder.eof:
        if len(output) >= max_bytes:
            raise _TooLarge
        raise EOFError("truncated")
    return output


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        output = reader.read(max_bytes + 1)
    if len(output) > max_bytes:
        raise _TooLarge
    return output


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, max_bytes)
    position = _XERIAL_HEADER_SIZE_BYTES
    output = bytearray()
    while position < len(data):
        if position + _XERIAL_BLOCK.size > len(data):
            raise EOFError("truncated")
        (size_bytes,) = _XERIAL_BLOCK.unpack_from(data, position)
        position += _XERIAL_BLOCK.size
        if not 0 <= size_bytes <= len(data) - position:
            raise EOFError("truncated")
        output += _unsnappy_block(data[position : position + size_bytes], max_bytes - len(output))
        position += size_bytes
    return bytes(output)


def _unsnappy_block(data: bytes, max_bytes: int) -> bytes:
    """A raw block names its output size in front, so it is known before anything is allocated."""
    if cramjam.snappy.decompress_raw_len(data) > max_bytes:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(data))


def _snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        out += _XERIAL_BLOCK.pack(len(block)) + block
    return bytes(out)


def compress(codec: Codec, data: bytes) -> bytes:
    """What a client does; with the libraries' default levels."""
    if codec == Codec.GZIP:
        encoder = zlib.compressobj(wbits=_GZIP_WBITS)
        return encoder.compress(data) + encoder.flush()
    if codec == Codec.SNAPPY:
        return _snappy(data)
    if codec == Codec.LZ4:
        return bytes(lz4.frame.compress(data))
    if codec == Codec.ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    return data


_DECOMPRESSORS = {Codec.GZIP: _gunzip, Codec.SNAPPY: _unsnappy, Codec.LZ4: _unlz4, Codec.ZSTD: _unzstd}
