"""Keys go to the same partitions as with Java producers, and rows without a key take turns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkawire.client.partitioner import murmur2 as murmur2_of_one
from kafkawire.client.partitioner import partition_of_key
from spark_connectors.records.partitioner import CHUNK_BYTES, Spread, murmur2, partitions_of_keys

# Kafka's own expectations (UtilsTest.testMurmur2), signed as in Java.
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_of_kafkas_tests() -> None:
    assert murmur2(pa.array(KAFKAS, pa.binary())).view(np.int32).tolist() == list(KAFKAS.values())


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=100, max_size=300), max_size=60), st.integers(1, 1000))
@example([b"abcde" * 8] * 20 + [b"x" * 1001], 7)
def test_the_same_as_one_by_one(keys: list[bytes], count: int) -> None:
    array = pa.array([b"before", *keys, b"behind"], pa.binary()).slice(1, len(keys))
    assert murmur2(array).tolist() == [murmur2_of_one(key) for key in keys]
    assert partitions_of_keys(array, count).tolist() == [partition_of_key(key, count) for key in keys]


def test_without_any_byte() -> None:
    assert murmur2(pa.array([], pa.binary())).tolist() == []
    assert murmur2(pa.array([b"", b""], pa.binary())).tolist() == [murmur2_of_one(b"")] * 2


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_rows_without_a_key_stay_together_and_go_round(piece: int) -> None:
    spread = Spread(2)
    size_bytes = CHUNK_BYTES // 8
    found: list[int] = []
    while len(found) < 80:
        found += spread.partitions_of(np.full(min(piece, 80 - len(found)), size_bytes), 3).tolist()
    assert found == [(2 + number // 8) % 3 for number in range(80)]


def test_a_large_row_moves_on() -> None:
    assert Spread(0).partitions_of(np.array([5 * CHUNK_BYTES, 1, 1]), 4).tolist() == [0, 1, 1]
    assert Spread(1).partitions_of(np.array([], np.int64), 4).tolist() == []
