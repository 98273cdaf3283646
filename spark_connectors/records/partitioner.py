"""Choice of the partition of each row, for many rows at once, as by Kafka's producers.

A key goes to the same partition as with any Java producer: murmur2, without the sign, modulo the number of partitions
(Kafka's BuiltInPartitioner, Utils.murmur2). Rows without a key go to one partition for a while, and then to the next,
as in KIP-480 and KIP-794: many small batches cost more than large ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Integers = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint32]

CHUNK_BYTES: Final = 64 << 10  # of rows without a key that go to one partition

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORD_BYTES: Final = 4
_TOGETHER_MIN: Final = 16  # keys; with fewer, a step of numpy costs more than a loop in Python


def partitions_of_keys(keys: pa.Array, count: int) -> Integers:
    """Partition of each binary key; there are no nulls."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count


class Spread:
    """Partitions for rows without a key. `begin` is any number, so that several of these can begin at different
    partitions.
    """

    def __init__(self, begin: int) -> None:
        self._passed_bytes = begin * CHUNK_BYTES

    def partitions_of(self, sizes: Integers, count: int) -> Integers:
        """Partitions for rows of these sizes in bytes. The next call continues after them."""
        ends = self._passed_bytes + np.cumsum(sizes)
        partitions: Integers = (ends - sizes) // CHUNK_BYTES % count
        self._passed_bytes = int(ends[-1]) if len(ends) else self._passed_bytes
        return partitions


def murmur2(keys: pa.Array) -> Hashes:
    """Hash of each key as in Kafka: 32 bits, words in little-endian order."""
    first, count = keys.offset, len(keys)
    _, offsets, data = keys.buffers()
    edges = np.frombuffer(offsets, np.int32, first + count + 1)[first:].astype(np.int64) if count else np.zeros(1, int)
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    places, lengths = edges[:-1].copy(), np.diff(edges)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    _mix_words(hashes, octets, places, lengths // _WORD_BYTES)
    _mix_rest(hashes, octets, edges[:-1] + (lengths & ~3), lengths & 3)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(_MIX)
    return hashes ^ hashes >> np.uint32(15)


def _mix_words(hashes: Hashes, octets: npt.NDArray[np.uint8], places: Integers, words: Integers) -> None:
    """Mix the first words of all keys, then the second ones, and so on. The words that few keys have are mixed one by
    one.
    """
    at_any_byte = np.ndarray(max(len(octets) - 3, 0), "<u4", octets.data, strides=(1,))
    active = np.flatnonzero(words)
    step = 0
    while len(active) >= _TOGETHER_MIN:
        mixed = _mixed(at_any_byte[places[active] + _WORD_BYTES * step])
        hashes[active] = hashes[active] * np.uint32(_MIX) ^ mixed
        step += 1
        active = active[words[active] > step]
    for row in active.tolist():
        first, left = int(places[row]) + _WORD_BYTES * step, int(words[row]) - step
        hashed = int(hashes[row])
        for word in _mixed(np.frombuffer(octets.data, "<u4", left, first)).tolist():
            hashed = hashed * _MIX & _MASK ^ word
        hashes[row] = hashed


def _mixed(words: Hashes) -> Hashes:
    mixed = words * np.uint32(_MIX)
    return (mixed ^ mixed >> np.uint32(24)) * np.uint32(_MIX)


def _mix_rest(hashes: Hashes, octets: npt.NDArray[np.uint8], places: Integers, lengths: Integers) -> None:
    """Mix the bytes behind the last whole word."""
    for place in range(_WORD_BYTES - 1):
        some = np.flatnonzero(lengths > place)
        hashes[some] ^= octets[places[some] + place].astype(np.uint32) << np.uint32(8 * place)
    some = np.flatnonzero(lengths)
    hashes[some] *= np.uint32(_MIX)
