"""Digest of a set of rows, independent of their batches and order: the number of rows and the sum of their hashes.

A log and its table have the same digest, unless their rows differ. The digest finds lost, doubled and damaged rows. It
does not withstand an attacker with rows of the same hash.

A row's hash has 64 bits, and is made from one word for each column: each word is XORed into the result of the columns
before, and then all bits are mixed (the last step of splitmix64), which keeps different words different. The word of a
number is the number itself. The word of bytes b is `b[0] + b[1] p + b[2] p² + …` modulo 2^64, plus their length times
another constant. As p is odd, division by p is possible: sums from the beginning of a buffer to the edges of its values
give the sum of each value. So numpy goes over the bytes once, without a Python object for each row. The word of a list
is made in the same way from the words of its elements. Null has a word of its own, so it is neither empty nor 0.

A value has the same word in all types that can hold it: integers, floats, text and bytes of any width, and times, which
count as µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

Words: TypeAlias = npt.NDArray[np.uint64]
Integers: TypeAlias = npt.NDArray[np.int64]

LOG_COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
_MODULUS: Final = 1 << 64
_ROWS: Final = 16_384  # hashed at a time: the arrays of numpy stay in the cache of a processor
_BLOCK: Final = 1 << 16  # bytes hashed at a time
_START: Final = 0x9E3779B97F4A7C15  # the constants here are those of splitmix64
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))
_LENGTH: Final = np.uint64(0xD6E8FEB86659FD93)
_NULL: Final = np.uint64((1 << 63) + 123)  # as a time, it exceeds the ms of any record
_BASE: Final = 0x2545F4914F6CDD1B  # p: odd; p - 1 has one factor 2, so that swapped neighbours change the sum


@dataclass(frozen=True)
class Digest:
    """Digest of a set of rows. The digest of two sets together is their sum."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.total:016x}"


def digest_of(rows: pa.RecordBatch | pa.Table, columns: Sequence[str] = LOG_COLUMNS) -> Digest:
    """Digest of rows. The order of the columns counts, and their names do not. Raises the errors of `row_hashes`."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    totals = (int(row_hashes(batch, columns).sum(dtype=np.uint64)) for batch in batches)
    return Digest(rows.num_rows, sum(totals) % _MODULUS)


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str] = LOG_COLUMNS) -> Words:
    """The hash of each row.

    Raises KeyError for a missing column, ArrowNotImplementedError for a column of another type, and ArrowInvalid for
    times that are no whole µs or too large.
    """
    arrays = [batch.column(name) for name in columns]
    hashes = np.empty(batch.num_rows, np.uint64)
    for begin in range(0, batch.num_rows, _ROWS):
        part = hashes[begin : begin + _ROWS]
        part[:] = _mixed((_words(array.slice(begin, _ROWS)) for array in arrays), len(part))
    return hashes


def _mixed(columns: Iterable[Words], count: int) -> Words:
    found = np.full(count, _START, np.uint64)
    shifted = np.empty_like(found)
    for words in columns:
        found ^= words
        for shift, factor in zip(_SHIFTS, (*_MIX, None), strict=True):
            np.right_shift(found, shift, out=shifted)
            found ^= shifted
            if factor is not None:
                found *= factor
    return found


def _words(array: pa.Array) -> Words:
    """The word of each value."""
    words = _words_of_valid(array)
    if array.null_count:
        words = np.where(array.is_valid().to_numpy(zero_copy_only=False), words, _NULL)
    return words


def _words_of_valid(array: pa.Array) -> Words:
    """The word of each value; that of a null is undefined."""
    kind = array.type
    if types.is_struct(kind):
        return _mixed(map(_words, array.flatten()), len(array))
    if types.is_list(kind) or types.is_large_list(kind):
        edges = array.offsets.to_numpy().astype(np.int64)
        first, last = int(edges[0]), int(edges[-1])
        return _sequences(_words(array.values.slice(first, last - first)), edges - first)
    if types.is_decimal128(kind):
        halves = _fixed(array, np.dtype((np.uint64, 2)))
        return halves[:, 0] + halves[:, 1] * np.uint64(_BASE)
    if types.is_floating(kind):
        return _fixed(array.cast(pa.float64()), np.dtype(np.uint64))
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_boolean(kind):
        return _fixed(_as_int64(array), np.dtype(np.uint64))
    return _words_of_bytes(array)


def _as_int64(array: pa.Array) -> pa.Array:
    if types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz))
    elif types.is_date32(array.type):
        array = array.cast(pa.int32())
    return array.cast(pa.int64())


def _fixed(array: pa.Array, kind: np.dtype[Any]) -> Words:
    if not len(array):
        return np.empty(np.zeros(0, kind).shape, np.uint64)
    found: Words = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]
    return found


def _words_of_bytes(array: pa.Array) -> Words:
    if not (types.is_binary(array.type) or types.is_string(array.type)):
        array = array.cast(pa.large_binary())
    width = np.int64 if types.is_large_binary(array.type) else np.int32
    _, offsets, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint64)
    edges = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _sequences(octets[edges[0] : edges[-1]], edges - edges[0])


def _sequences(elements: npt.NDArray[Any], edges: Integers) -> Words:
    """Words of the sequences between neighbouring edges. The first edge is 0, the last one the number of elements."""
    sums = _sums_at(elements, edges)
    found: Words = (sums[1:] - sums[:-1]) * _inverse_powers(edges[:-1])
    found += (edges[1:] - edges[:-1] + 1).astype(np.uint64) * _LENGTH
    return found


def _sums_at(elements: npt.NDArray[Any], edges: Integers) -> Words:
    """Sum of all elements before each edge, each times the power of p of its position."""
    found = np.zeros(len(edges), np.uint64)
    sums = np.zeros(min(_BLOCK, len(elements)) + 1, np.uint64)
    before, power = 0, 1
    begins = range(0, len(elements), _BLOCK)
    borders = np.searchsorted(edges, [*begins, len(elements)], "right").tolist()
    for begin, (first, last) in zip(begins, pairwise(borders), strict=True):
        block = elements[begin : begin + _BLOCK]
        np.multiply(block, _POWERS[: len(block)], out=sums[1 : len(block) + 1])
        np.cumsum(sums[: len(block) + 1], out=sums[: len(block) + 1])
        found[first:last] = sums[edges[first:last] - begin] * np.uint64(power) + np.uint64(before)
        before = (before + power * int(sums[len(block)])) % _MODULUS
        power = power * pow(_BASE, _BLOCK, _MODULUS) % _MODULUS
    return found


def _inverse_powers(exponents: Integers) -> Words:
    """Inverse powers of p for exponents that ascend."""
    found = _INVERSES[exponents % _BLOCK]
    if len(exponents) and exponents[-1] >= _BLOCK:
        of_blocks = _powers(pow(_BASE, -_BLOCK, _MODULUS), int(exponents[-1]) // _BLOCK + 1)
        found *= of_blocks[exponents // _BLOCK]
    return found


def _powers(base: int, count: int) -> Words:
    """The first `count` powers of `base`, from 1 on."""
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


_POWERS: Final = _powers(_BASE, _BLOCK)
_INVERSES: Final = _powers(pow(_BASE, -1, _MODULUS), _BLOCK)
