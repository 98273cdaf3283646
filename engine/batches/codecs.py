"""Compression and decompression of records sections; the output is bounded, so that no small batch takes much memory.

Only this module uses the compression libraries. Compaction, and topics with a codec of their own, compress in the
broker. Formats, as Kafka's Java decoders read them: the members of gzip, and nothing behind them; one LZ4 frame, and
nothing behind it; the frames of zstd, with skippable ones; snappy in the framing of xerial's snappy-java, as Kafka's
Java clients write it, or as one raw block.
"""

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from engine.batches.batch import Codec
from engine.errors import CorruptMessage, DecompressedTooLarge

DECOMPRESSED_MAX_BYTES = 64 * 1024 * 1024
ZSTD_WINDOW_MAX_LOG = 27  # of what is read: 128 MiB, which Java's decoder supports; only what is decompressed is used
ZSTD_WRITTEN_WINDOW_MAX_LOG = 23  # 8 MiB: each decoder supports it
DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.SNAPPY: 0, Codec.LZ4: 9, Codec.ZSTD: 3}  # Kafka's CompressionType
_GZIP_WBITS = 31
_GZIP_MAGIC = b"\x1f\x8b\x08"
_LZ4_FLAGS_POSITION = 4
_LZ4_INDEPENDENT_BLOCKS_BIT = 1 << 5
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE_BYTES = 16
_XERIAL_BLOCK = struct.Struct(">i")
_XERIAL_BLOCK_BYTES = 32 * 1024
_ZSTD_HEADER_MAX_BYTES = 18
_ZSTD_BLOCK_HEADER_SIZE_BYTES = 3
_ZSTD_CHECKSUM_SIZE_BYTES = 4
_ZSTD_ONE_BYTE_REPEATED = 1  # type of a block
_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # behind a first byte of 0x50 to 0x5f
_SKIPPABLE = struct.Struct("<4xI")


class _TooLarge(Exception):
    """Exception for an output above the limit."""


def decompress(codec_id: int, data: bytes | memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes | memoryview:
    """Decompress a records section. Raises CorruptMessage if it is invalid, DecompressedTooLarge if it is larger than
    `max_bytes`."""
    if codec_id == Codec.NONE:
        return data
    try:
        return _DECOMPRESSORS[Codec(codec_id)](bytes(data), max_bytes)
    except _TooLarge:
        raise DecompressedTooLarge(f"records grow beyond {max_bytes} bytes when decompressed") from None
    except (zlib.error, RuntimeError, EOFError, ValueError, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise CorruptMessage(f"records are not {Codec(codec_id).name.lower()}: {error}") from error


def unreadable_for_java(codec_id: int, data: bytes | memoryview) -> str | None:
    """Why Kafka's Java clients cannot read a records section that `decompress` can; None: they can."""
    if codec_id == Codec.LZ4 and not data[_LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS_BIT:
        return "LZ4 blocks depend on each other"
    return None


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    """Decompress all members; as in Java's GZIPInputStream, other bytes behind a member end the data."""
    members: list[bytes] = []
    room_bytes, rest = max_bytes, data
    while not members or rest.startswith(_GZIP_MAGIC):
        decoder = zlib.decompressobj(_GZIP_WBITS)
        members.append(decoder.decompress(rest, room_bytes + 1))
        room_bytes, rest = room_bytes - len(members[-1]), decoder.unused_data
        if room_bytes < 0:
            raise _TooLarge
        if not decoder.eof:
            raise EOFError("truncated")
    return members[0] if len(members) == 1 else b"".join(members)


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    decoder = lz4.frame.LZ4FrameDecompressor()
    output: bytes = decoder.decompress(data, max_bytes)
    if not decoder.eof:
        if len(output) >= max_bytes:
            raise _TooLarge
        raise EOFError("truncated")
    return output  # what is behind the frame does not count, as in Kafka's Lz4BlockInputStream


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=1 << ZSTD_WINDOW_MAX_LOG)
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        output = reader.read(max_bytes + 1)
    if len(output) > max_bytes:
        raise _TooLarge
    _check_zstd_is_whole(data)
    return output


def _check_zstd_is_whole(data: bytes) -> None:
    """Raise EOFError if a frame is truncated, by the ends of the last blocks (RFC 8878): the reader gives no error."""
    position = 0
    while position < len(data):
        header = data[position : position + _ZSTD_HEADER_MAX_BYTES]
        if header[1:4] == _SKIPPABLE_MAGIC and len(header) >= _SKIPPABLE.size:
            position += _SKIPPABLE.size + _SKIPPABLE.unpack_from(header)[0]
            continue
        position += zstandard.frame_header_size(header)
        is_last = False
        while not is_last:
            if position + _ZSTD_BLOCK_HEADER_SIZE_BYTES > len(data):
                raise EOFError("truncated")
            block = int.from_bytes(data[position : position + _ZSTD_BLOCK_HEADER_SIZE_BYTES], "little")
            is_last = bool(block & 1)
            size_bytes = 1 if block >> 1 & 3 == _ZSTD_ONE_BYTE_REPEATED else block >> 3
            position += _ZSTD_BLOCK_HEADER_SIZE_BYTES + size_bytes
        if zstandard.get_frame_parameters(header).has_checksum:
            position += _ZSTD_CHECKSUM_SIZE_BYTES
    if position > len(data):
        raise EOFError("truncated")


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
    """Decompress a raw block. It begins with its output size, so that is checked before the allocation."""
    if cramjam.snappy.decompress_raw_len(data) > max_bytes:
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(data))


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Compress as Kafka's Java clients and brokers do. `level`: as there; None: the default."""
    if codec == Codec.NONE:
        return data
    return _COMPRESSORS[codec](data, DEFAULT_LEVELS[codec] if level is None else level)


def _gzip(data: bytes, level: int) -> bytes:
    encoder = zlib.compressobj(level, wbits=_GZIP_WBITS)
    return encoder.compress(data) + encoder.flush()


def _snappy(data: bytes, _level: int) -> bytes:
    out = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _XERIAL_BLOCK_BYTES]))
        out += _XERIAL_BLOCK.pack(len(block)) + block
    return bytes(out)


def _lz4(data: bytes, level: int) -> bytes:
    """Compress without linked blocks, which Java clients refuse. Their default level is the fast compressor, each other
    one the high compressor."""
    high = max(level, lz4.frame.COMPRESSIONLEVEL_MINHC)
    return bytes(
        lz4.frame.compress(
            data,
            compression_level=lz4.frame.COMPRESSIONLEVEL_MIN if level == DEFAULT_LEVELS[Codec.LZ4] else high,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


def _zstd(data: bytes, level: int) -> bytes:
    """Compress with a window that decoders support; high levels alone would take a larger one."""
    of_level = zstandard.ZstdCompressionParameters.from_level
    window_log = min(of_level(level, source_size=len(data)).window_log, ZSTD_WRITTEN_WINDOW_MAX_LOG)
    parameters = of_level(level, source_size=len(data), window_log=window_log)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


_COMPRESSORS = {Codec.GZIP: _gzip, Codec.SNAPPY: _snappy, Codec.LZ4: _lz4, Codec.ZSTD: _zstd}
_DECOMPRESSORS = {Codec.GZIP: _gunzip, Codec.SNAPPY: _unsnappy, Codec.LZ4: _unlz4, Codec.ZSTD: _unzstd}
