"""Compression and decompression with every codec, a bounded output, and one error for invalid input."""

import contextlib
import struct
from collections.abc import Sequence

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Codec
from engine.batches.codecs import ZSTD_WRITTEN_WINDOW_MAX_LOG, compress, decompress, unreadable_for_java
from engine.errors import CorruptMessage, DecompressedTooLarge

COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]


@given(st.sampled_from(Codec), st.binary(max_size=100_000) | st.integers(0, 200_000).map(bytes))
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


def test_snappy_as_one_raw_block_as_some_clients_write_it() -> None:
    framed = compress(Codec.SNAPPY, b"abc" * 100)
    assert decompress(Codec.SNAPPY, framed[20:]) == b"abc" * 100


@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_stops_at_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(1 << 20))
    assert len(decompress(codec, bomb, max_bytes=1 << 20)) == 1 << 20
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, max_bytes=(1 << 20) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [bytes(range(256)) * 2000, bytes(300_000)], ids=["blocks", "runs"])
def test_truncated_data_is_corrupt(codec: Codec, data: bytes) -> None:
    whole = compress(codec, data)
    for cut in (1, len(whole) // 2, len(whole) - 3, len(whole) - 1):
        with pytest.raises(CorruptMessage):
            decompress(codec, whole[:cut])


def test_frames_of_zstd_follow_each_other() -> None:
    with_checksum = zstandard.ZstdCompressor(write_checksum=True).compress(b"one")
    both = with_checksum + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, both) == b"onetwo"
    for cut in (both[:-1], with_checksum[:-1], with_checksum[:-5]):
        with pytest.raises(CorruptMessage):
            decompress(Codec.ZSTD, cut)


def skippable(content: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A53, len(content)) + content


def test_skippable_frames_of_zstd_are_skipped() -> None:
    frame = compress(Codec.ZSTD, b"one")
    for whole in (skippable(b"meta") + frame, frame + skippable(b""), frame + skippable(b"meta") + frame):
        assert decompress(Codec.ZSTD, whole) == b"one" * whole.count(frame)
        with pytest.raises(CorruptMessage):
            decompress(Codec.ZSTD, whole[:-1])


@pytest.mark.parametrize("window_log", range(10, 28))
def test_zstd_windows_as_large_as_javas_decoder_supports(window_log: int) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert decompress(Codec.ZSTD, stream.compress(b"one") + stream.flush()) == b"one"


def test_a_larger_window_of_zstd_is_refused() -> None:
    header = struct.pack("<IBB", 0xFD2FB528, 0, (28 - 10) << 3)  # RFC 8878: the exponent of the window's size
    block = (3 << 3 | 1).to_bytes(3, "little") + b"one"
    assert decompress(Codec.ZSTD, header[:-1] + bytes([(27 - 10) << 3]) + block) == b"one"
    with pytest.raises(CorruptMessage):
        decompress(Codec.ZSTD, header + block)


def test_members_of_gzip_follow_each_other() -> None:
    """Other bytes behind a member end the data, as in Java's decoder."""
    one, two = compress(Codec.GZIP, b"one"), compress(Codec.GZIP, b"two")
    for behind in (b"", bytes(8), b"anything", one[:2]):
        assert decompress(Codec.GZIP, one + behind) == b"one"
    assert decompress(Codec.GZIP, one + two) == b"onetwo"
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"") + two) == b"two"
    with pytest.raises(CorruptMessage):
        decompress(Codec.GZIP, one + two[:-1])


def test_the_members_of_gzip_share_the_limit() -> None:
    member = compress(Codec.GZIP, bytes(1000))
    assert len(decompress(Codec.GZIP, member * 3, max_bytes=3000)) == 3000
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, member * 3, max_bytes=2999)


def test_an_lz4_frame_ends_the_data() -> None:
    """Kafka's Lz4BlockInputStream reads no further."""
    one, two = compress(Codec.LZ4, b"one"), compress(Codec.LZ4, b"two")
    for behind in (b"", two, b"anything"):
        assert decompress(Codec.LZ4, one + behind) == b"one"


def test_lz4_blocks_that_javas_clients_cannot_read_are_named() -> None:
    data = bytes(range(256)) * 1000  # more than one block
    linked = lz4.frame.compress(data, block_linked=True)
    assert decompress(Codec.LZ4, linked) == data
    assert unreadable_for_java(Codec.LZ4, linked) == "LZ4 blocks depend on each other"
    assert unreadable_for_java(Codec.LZ4, compress(Codec.LZ4, data)) is None
    assert unreadable_for_java(Codec.GZIP, compress(Codec.GZIP, b"one")) is None


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, [-1, *range(1, 10)]), (Codec.LZ4, range(1, 18)), (Codec.ZSTD, [-131_072, -1, 0, *range(1, 23)])],
)
def test_every_level(codec: Codec, levels: Sequence[int]) -> None:
    data = b" ".join(b"%d" % (number * number) for number in range(20_000))
    for level in levels:
        assert decompress(codec, compress(codec, data, level)) == data


@pytest.mark.parametrize("level", [1, 9, 12])
def test_lz4_as_javas_clients_read_it(level: int) -> None:
    """Blocks are independent, for any input: KafkaLZ4BlockInputStream accepts no others."""
    for size_bytes in (10, 1 << 20):
        found = lz4.frame.get_frame_info(compress(Codec.LZ4, bytes(size_bytes), level))
        assert (found["block_linked"], found["block_size"]) == (False, 1 << 16)


def test_a_written_zstd_window_is_one_that_each_decoder_supports() -> None:
    data = bytes(10 << 20)
    packed = compress(Codec.ZSTD, data, 22)
    assert zstandard.get_frame_parameters(packed).window_size <= 1 << ZSTD_WRITTEN_WINDOW_MAX_LOG
    assert decompress(Codec.ZSTD, packed) == data


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
def test_garbage_is_corrupt_or_bytes(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        assert len(decompress(codec, data, max_bytes=1 << 16)) <= 1 << 16
