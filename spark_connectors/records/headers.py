"""Headers of records: pairs of key and value, as many as each record announces.

The first headers of all records are read at once, then all second ones, as long as many records have more. The
remaining headers are read one by one, so that a record with a million headers does not cost a million steps of numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.fields import Spans, spans, varints
from spark_connectors.records.varints import varint_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_connectors.records.starts import Integers, Octets

_TOGETHER_MIN: Final = 16  # records
_HEADER_MIN_BYTES: Final = 2


class Headers(NamedTuple):
    """Headers of all records, one after the other. Those of record i are at `firsts[i]` to `firsts[i + 1] - 1`."""

    firsts: Integers
    keys: Spans
    values: Spans


def headers_of(raw: Octets, at: Integers, ends: Integers) -> Headers:
    """Read the headers. `at` is the position of each record's number of headers. Raises MalformedBatch."""
    counts, at = varints(raw, at)
    if np.any((counts < 0) | (counts > (ends - at) // _HEADER_MIN_BYTES)):
        raise MalformedBatch("a record has more headers than bytes, or fewer than none")
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    found = np.empty((4, int(firsts[-1])), np.int32)  # positions of keys, their lengths, and the same of values
    left, cursors = counts.copy(), firsts[:-1].copy()
    active = np.flatnonzero(left)
    while len(active) >= _TOGETHER_MIN:
        at[active] = _one_each(raw, at[active], ends[active], found, cursors[active])
        left[active] -= 1
        cursors[active] += 1
        active = active[left[active] > 0]
    octets = raw.data
    for record in active.tolist():
        rest = found[:, cursors[record] : firsts[record + 1]]
        at[record] = _one_by_one(octets[: ends[record]], int(at[record]), rest)
    if not np.array_equal(at, ends):
        raise MalformedBatch("a record is longer than its fields")
    if np.any(found[1] < 0):
        raise MalformedBatch("a header without a key")
    return Headers(firsts, Spans(found[0], found[1]), Spans(found[2], found[3]))


def _one_each(raw: Octets, at: Integers, ends: Integers, found: npt.NDArray[np.int32], cursors: Integers) -> Integers:
    keys, at = spans(raw, at, ends)
    values, at = spans(raw, at, ends)
    found[0, cursors], found[1, cursors] = keys
    found[2, cursors], found[3, cursors] = values
    return at


def _one_by_one(record: memoryview, position: int, found: npt.NDArray[np.int32]) -> int:
    spans_found = []
    for _ in range(2 * found.shape[1]):
        try:
            length, position = varint_at(record, position, "the length of a header")
        except IndexError:
            raise MalformedBatch("a record ends within a field") from None
        spans_found.append((position, length))
        position += max(length, 0)
        if position > len(record):
            raise MalformedBatch("a field reaches beyond its record")
    found[:] = np.array(spans_found, np.int32).reshape(-1, 4).T
    return position
