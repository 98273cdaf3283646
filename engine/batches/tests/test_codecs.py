"""Compression and decompression with every codec, a bounded output, and one error for invalid input."""

import contextlib
from collections.abc import Sequence

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Codec
from engine.batches.codecs import ZSTD_WINDOW_MAX_LOG, compress, decompress
from engine.errors import CorruptMessage

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
    with pytest.raises(CorruptMessage):
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


def test_members_of_gzip_are_not_lost() -> None:
    """Java's clients would read the second member, too."""
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"one") + b"anything") == b"one"
    with pytest.raises(CorruptMessage):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two"))


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


def test_zstd_takes_no_window_that_we_do_not_decompress() -> None:
    data = bytes(10 << 20)
    packed = compress(Codec.ZSTD, data, 22)
    assert zstandard.get_frame_parameters(packed).window_size <= 1 << ZSTD_WINDOW_MAX_LOG
    assert decompress(Codec.ZSTD, packed) == data


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
def test_garbage_is_corrupt_or_bytes(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        assert len(decompress(codec, data, max_bytes=1 << 16)) <= 1 << 16
