"""Decompression: every codec both ways, bounded, and one error for whatever is not what it says."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import Codec
from engine.codecs import compress, decompress
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
def test_truncated_data_is_corrupt_or_visibly_short(codec: Codec) -> None:
    """zstd's reader gives what it has; the walk over the records then finds them cut."""
    data = bytes(range(256)) * 400
    whole = compress(codec, data)
    for cut in (1, len(whole) // 2, len(whole) - 1):
        with contextlib.suppress(CorruptMessage):
            assert len(decompress(codec, whole[:cut])) < len(data)
            assert codec == Codec.ZSTD


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
def test_garbage_is_corrupt_or_bytes(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        assert len(decompress(codec, data, max_bytes=1 << 16)) <= 1 << 16
