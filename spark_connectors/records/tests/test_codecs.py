"""Compression and decompression, compared with the engine's codecs. Memory is limited, and all wrong bytes have one
error.
"""

from __future__ import annotations

import gzip
import random
import sys

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.batches import batch
from engine.batches import codecs as engine_codecs
from spark_connectors.records import codecs
from spark_connectors.records.codecs import Codec, compress, decompress
from spark_connectors.records.errors import MalformedBatch

COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]
NOISE = random.Random(1).randbytes(200_000)
datas = st.binary(max_size=1000) | st.integers(0, 300_000).map(bytes) | st.integers(0, 200_000).map(lambda n: NOISE[:n])


@given(st.sampled_from(Codec), datas)
def test_engine_decompresses_data_that_the_connector_compresses(codec: Codec, data: bytes) -> None:
    assert engine_codecs.decompress(codec, compress(codec, data)) == data


@given(st.sampled_from(Codec), datas)
def test_connector_decompresses_data_that_the_engine_compresses(codec: Codec, data: bytes) -> None:
    assert decompress(codec, engine_codecs.compress(batch.Codec(codec), data)) == data


@given(st.sampled_from(Codec), datas)
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, data))) == data


def test_uncompressed_data_is_not_copied() -> None:
    data = b"as it is"
    assert decompress(Codec.NONE, data) is data
    assert compress(Codec.NONE, data) is data


def zstd_of_window(window_log: int, data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def test_other_forms_that_clients_write() -> None:
    data = b"some text " * 20_000
    forms = [
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))),  # one raw block: librdkafka
        (Codec.GZIP, gzip.compress(data[:1000]) + gzip.compress(data[1000:])),
        (Codec.LZ4, lz4.frame.compress(data, block_linked=True)),
        (Codec.LZ4, lz4.frame.compress(data, content_checksum=True, block_checksum=True, store_size=True)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data)),
        (Codec.ZSTD, zstandard.compress(data[:1000]) + zstandard.compress(data[1000:])),
        (Codec.ZSTD, b"\x50\x2a\x4d\x18\x04\x00\x00\x00meta" + zstandard.compress(data)),  # a skippable frame
        (Codec.ZSTD, zstd_of_window(27, data)),  # Java's level 22
        (Codec.ZSTD, zstd_of_window(27, data[:50])),
    ]
    for codec, packed in forms:
        assert decompress(codec, packed) in (data, data[:50])


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size_bytes", [1 << 20, 50_000])
def test_output_stops_at_the_limit(codec: Codec, size_bytes: int) -> None:
    bomb = compress(codec, bytes(size_bytes))
    assert len(decompress(codec, bomb, size_bytes)) == size_bytes
    with pytest.raises(MalformedBatch, match=f"grow beyond {size_bytes - 1} bytes"):
        decompress(codec, bomb, size_bytes - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [NOISE, bytes(300_000), b"short"], ids=["noise", "runs", "short"])
def test_truncated_data_is_malformed(codec: Codec, data: bytes) -> None:
    whole = compress(codec, data)
    for cut in (0, 1, 8, len(whole) // 2, len(whole) - 3, len(whole) - 1):
        with pytest.raises(MalformedBatch):
            decompress(codec, whole[:cut])


def outcome(found: codecs._Zstandard, packed: bytes, limit_bytes: int) -> bytes | str:
    """Result of the decompression, with `found` in place of the package; or the error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecs, "_zstandard", found)
        try:
            return bytes(decompress(Codec.ZSTD, memoryview(packed), limit_bytes))
        except MalformedBatch as error:
            return str(error)


def missing() -> codecs._Zstandard:
    """The adapter without the package."""
    found = codecs._Zstandard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        assert found.decompress(compress(Codec.ZSTD, b"data")) is None
    assert found.decompress(compress(Codec.ZSTD, b"data")) is None, "it is looked for once"
    return found


WITH, WITHOUT = codecs._Zstandard(), missing()
WRITERS = [
    zstandard.ZstdCompressor(),
    zstandard.ZstdCompressor(write_content_size=False),  # Kafka's Java clients
    zstandard.ZstdCompressor(write_content_size=False, write_checksum=True),
]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_frame_that_is_empty_may_be_cut_too(writer: zstandard.ZstdCompressor) -> None:
    whole = writer.compress(b"")
    assert outcome(WITH, whole, 0) == b""
    for size_bytes in range(1, len(whole)):
        assert isinstance(outcome(WITH, whole[:size_bytes], 0), str)


@given(
    st.lists(st.tuples(st.sampled_from(WRITERS), datas), min_size=1, max_size=2),
    st.integers(0, 1000) | st.integers(0, 300_000),
    st.data(),
)
def test_zstd_frames_come_to_the_same_with_the_package_and_without(
    frames: list[tuple[zstandard.ZstdCompressor, bytes]], limit_bytes: int, data: st.DataObject
) -> None:
    packed = bytearray(b"".join(writer.compress(plain) for writer, plain in frames))
    harm = data.draw(st.sampled_from(["none", "cut", "flip", "more"]))
    if harm == "cut":
        del packed[data.draw(st.integers(1, len(packed))) :]
    elif harm == "flip":
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    elif harm == "more":
        packed += data.draw(st.binary(max_size=20))
    found = outcome(WITH, bytes(packed), limit_bytes)
    assert found == outcome(WITHOUT, bytes(packed), limit_bytes)
    plain = b"".join(plain for _, plain in frames)
    if harm == "none" and len(plain) <= limit_bytes:
        assert found == plain


def test_the_package_reads_small_frames_only() -> None:
    for writer in WRITERS:
        assert WITH.decompress(writer.compress(bytes(1000))) == bytes(1000)
        assert WITH.decompress(writer.compress(NOISE)) is None


@given(st.sampled_from(COMPRESSED), st.binary(max_size=100), st.data())
def test_wrong_bytes_are_malformed_or_something_within_the_limit(
    codec: Codec, noise: bytes, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"some text " * 50))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    for each in (noise, bytes(packed)):
        try:
            assert len(decompress(codec, each, 10_000)) <= 10_000
        except MalformedBatch:
            continue


def test_a_size_that_is_announced_is_not_believed() -> None:
    claims = b"\xff\xff\xff\x7f" + b"\0" * 20
    for packed in (claims, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + len(claims).to_bytes(4, "big") + claims):
        with pytest.raises(MalformedBatch, match="not snappy: 24 bytes cannot become"):
            decompress(Codec.SNAPPY, packed, 1 << 40)
    with pytest.raises(MalformedBatch, match="not snappy: a block is cut"):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\xff\xff\xff\xff1234")


def test_lz4_as_javas_clients_read_it() -> None:
    """Blocks are independent (Lz4BlockInputStream accepts no others), have the size that Kafka writes, and have no
    checksums.
    """
    for size_bytes in (10, 1 << 20):
        found = lz4.frame.get_frame_info(compress(Codec.LZ4, bytes(size_bytes)))
        assert (found["block_linked"], found["block_size"], found["block_checksum"]) == (False, 1 << 16, False)
        assert not found["content_checksum"]


def test_snappy_as_javas_clients_write_it() -> None:
    packed = compress(Codec.SNAPPY, bytes(40_000))
    assert packed[:16] == engine_codecs.compress(batch.Codec.SNAPPY, b"")


def test_codecs_have_the_numbers_that_the_engine_knows_them_by() -> None:
    assert {each.name: each.value for each in Codec} == {each.name: each.value for each in batch.Codec}


def test_nothing_is_no_records_of_any_codec() -> None:
    assert decompress(Codec.NONE, b"") == b""
    for codec in COMPRESSED:
        with pytest.raises(MalformedBatch, match="not there"):
            decompress(codec, b"")
