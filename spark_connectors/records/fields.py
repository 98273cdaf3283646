"""What lies in records: where their keys and values are, and the numbers before them, numpy over all of them at once.

A record, behind its length (DefaultRecord): attributes, which mean nothing; deltas of timestamp and offset; the lengths
of key and value, each with its bytes behind it; the number of headers. Numbers are varints in zigzag. What a length
says is checked against the end of its record before anybody goes there.
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
    """Where bytes begin, and how many there are: fewer than none is a null."""

    starts: Integers
    lengths: Integers


class Fields(NamedTuple):
    """Of each record; `headers_at` is where the number of its headers lies."""

    timestamp_deltas_ms: Integers
    offset_deltas: Integers
    keys: Spans
    values: Spans
    headers_at: Integers


def fields_of(raw: Octets, bounds: Bounds) -> Fields:
    """Raises MalformedBatch where a field reaches beyond its record."""
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
    """Lengths that lie there with as many bytes behind each, and where the next fields begin."""
    lengths, starts = varints(raw, at)
    if np.any(lengths > limits - starts):
        raise MalformedBatch("a field reaches beyond its record")
    return Spans(starts, lengths), starts + np.maximum(lengths, 0)


def varints(raw: Octets, at: Integers, size_max_bytes: int = INT32_MAX_BYTES) -> tuple[Integers, Integers]:
    """Signed numbers that lie there, and where the next fields begin. Behind the end there are any bytes.

    Nearly all are of one or two bytes: those are done densely, the rest of the others for them alone.
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
    """Of at most 14 bits."""
    narrow = zigzag.astype(np.int16)
    return (narrow >> 1 ^ -(narrow & 1)).astype(np.int64)
