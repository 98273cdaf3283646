"""Partitions of keys are those of Java's producers; the hashes are those of Kafka's UtilsTest."""

from __future__ import annotations

import pytest

from kafkawire.client.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32
    assert partition_of_key(key, 7) == (hashed % 2**31) % 7


def test_every_partition_gets_some() -> None:
    assert {partition_of_key(b"%d" % number, 12) for number in range(200)} == set(range(12))
    assert partition_of_key(b"", 1) == 0
