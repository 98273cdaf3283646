"""Fields of records: positions of keys and values, and the numbers before them, by numpy for all records at once.

A record has, after its length (DefaultRecord): attributes, which are ignored; deltas of timestamp and offset; the
lengths of key and value, each with its bytes after it; the number of headers. Numbers are zigzag varints. Each length
is checked against the end of its record before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.varints import INT32_MAX_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_connectors.records.starts import Bounds, Integers, Octets

_INT64_MAX_BYTES: Final = 10  # of a varint


class Spans(NamedTuple):
    """Positions and lengths of bytes; a negative length is a null."""

    starts: Integers
    lengths: Integers


class Fields(NamedTuple):
    """Fields of each record; `headers_at` is the position of the number of headers."""

    timestamp_deltas_ms: Integers
    offset_deltas: Integers
    keys: Spans
    values: Spans
    headers_at: Integers


def fields_of(raw: Octets, bounds: Bounds) -> Fields:
    """Fields of the records within these bounds. Raises MalformedBatch if a field ends behind its record."""
    lengths, at = varints(raw, bounds.starts)
    if not np.array_equal(lengths, bounds.ends - at):
        raise MalformedBatch("a record of less than no length")
    timestamps, at = varints(raw, at + 1, _INT64_MAX_BYTES)
    offsets, at = varints(raw, at)
    keys, at = spans(raw, at, bounds.ends)
    values, at = spans(raw, at, bounds.ends)
    if np.any(at >= bounds.ends):
        raise MalformedBatch("a record ends before its headers")
    return Fields(timestamps, offsets, keys, values, at)


def spans(raw: Octets, at: Integers, limits: Integers) -> tuple[Spans, Integers]:
    """Read lengths, each with its bytes after it. Returns the spans, and the positions of the next fields."""
    lengths, starts = varints(raw, at)
    if np.any(lengths > limits - starts):
        raise MalformedBatch("a field reaches beyond its record")
    return Spans(starts, lengths), starts + np.maximum(lengths, 0)


def varints(raw: Octets, at: Integers, size_max_bytes: int = INT32_MAX_BYTES) -> tuple[Integers, Integers]:
    """Read signed numbers. Returns them, and the positions of the next fields. Positions behind the end read arbitrary
    bytes.

    Nearly all numbers have one or two bytes: these are read for all positions at once, further bytes only where
    necessary.
    """
    low = raw.take(at, mode="clip")
    behind = at + 1
    if low.max() < 0x80:
        return _small(low), behind
    high = raw.take(behind, mode="clip")
    is_longer = low >> 7
    behind += is_longer
    zigzag = (low & 0x7F) | ((high & 0x7F) * is_longer).astype(np.uint16) << 7
    unfinished = np.flatnonzero(is_longer & high >> 7)
    if not len(unfinished):
        return _small(zigzag), behind
    wide = zigzag.astype(np.uint64)
    for index in range(2, size_max_bytes):
        byte = raw.take(behind[unfinished], mode="clip")
        behind[unfinished] += 1
        wide[unfinished] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        unfinished = unfinished[byte >= 0x80]
        if not len(unfinished):
            if size_max_bytes == INT32_MAX_BYTES and np.any(wide >> 32):
                raise MalformedBatch("a number of more than 32 bits")
            return (wide >> 1 ^ -(wide & 1)).view(np.int64), behind
    raise MalformedBatch(f"a varint of more than {size_max_bytes} bytes")


def _small(zigzag: npt.NDArray[Any]) -> Integers:
    """Decode zigzags of at most 14 bits."""
    narrow = zigzag.astype(np.int16)
    return (narrow >> 1 ^ -(narrow & 1)).astype(np.int64)
