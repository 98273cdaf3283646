"""Partition of a key, the same as in Java's producers, so that a key's records stay together. Pure.

Kafka's BuiltInPartitioner over Utils.murmur2: 32 bits, little-endian words, a fixed seed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORD: Final = Struct("<I")


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key. The sign bit of the hash is ignored."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The hash, unsigned."""
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        mixed = word * _MIX & _MASK
        mixed = (mixed ^ mixed >> 24) * _MIX & _MASK
        hashed = (hashed * _MIX & _MASK) ^ mixed
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MIX & _MASK
    hashed = (hashed ^ hashed >> 13) * _MIX & _MASK
    return hashed ^ hashed >> 15
