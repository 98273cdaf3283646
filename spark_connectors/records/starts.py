"""Positions of records: each record has its length, so it shows where the next one begins.

There are two methods. *In lockstep*: the first records of all batches of a group at once, then all second ones, and so
on. With many batches, numpy needs about 20 ns for each record. *One by one*: a loop in Python, about 130 ns for each
record, for few large batches and for unusual records. Only the loop reports errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spark_connectors.records.batches import RECORD_SIZE_MIN_BYTES
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.varints import varint_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    import numpy.typing as npt

    Octets: TypeAlias = npt.NDArray[np.uint8]
    Integers: TypeAlias = npt.NDArray[np.int64]

LOCKSTEP_BATCHES_MIN: Final = 24  # with fewer batches, a step of numpy costs more than the loop


class Bounds(NamedTuple):
    """Position of the length of each record, and the position behind its last byte."""

    starts: Integers
    ends: Integers


def bounds_of(raw: Octets, begins: Integers, ends: Integers, counts: Integers) -> Bounds:
    """Bounds of all records, in order. Each section has a begin, an end, and a number of records, at least one.

    Raises MalformedBatch if the records do not fill their section exactly.
    """
    _check_room(begins, ends, counts)
    firsts = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), np.int64)
    done, reached = _in_lockstep(raw, begins, counts, firsts, starts)
    for index in np.flatnonzero(done < counts).tolist():
        first, end = int(firsts[index] + done[index]), int(firsts[index] + counts[index])
        section = raw.data[: ends[index]]
        starts[first:end], reached[index] = _one_by_one(section, int(reached[index]), end - first)
    if not np.array_equal(reached, ends):
        raise MalformedBatch("records end before or behind the end of their batch")
    record_ends = np.empty_like(starts)
    record_ends[:-1] = starts[1:]
    record_ends[firsts + counts - 1] = ends
    return Bounds(starts, record_ends)


def bounds_in_parts(raw: Octets, begin: int, end: int, count: int, part: int) -> Iterator[Bounds]:
    """Bounds of the records of one section, at most `part` at a time, so that memory does not grow with the announced
    number.
    """
    _check_room(np.array([begin]), np.array([end]), np.array([count]))
    section = raw.data[:end]
    for left in range(count, 0, -part):
        found, reached = _one_by_one(section, begin, min(part, left))
        if left <= part and reached != end:
            raise MalformedBatch("records end before or behind the end of their batch")
        begin = reached
        bounds = np.array([*found, reached], np.int64)
        yield Bounds(bounds[:-1], bounds[1:])


def _check_room(begins: Integers, ends: Integers, counts: Integers) -> None:
    if np.any(counts * RECORD_SIZE_MIN_BYTES > ends - begins):
        raise MalformedBatch("more records than there are bytes for")


def _in_lockstep(
    raw: Octets, begins: Integers, counts: Integers, firsts: Integers, starts: Integers
) -> tuple[Integers, Integers]:
    """Number of records found in each section, and the position of the next one. With few sections, none are found.

    If a section has a record that is longer than 8 KiB or wrong, it counts as not begun.
    """
    untouched = np.zeros_like(counts), begins.copy()
    if len(counts) < LOCKSTEP_BATCHES_MIN:
        return untouched
    order = np.argsort(-counts, kind="stable")  # the sections that continue are always the first ones
    longest_first = counts[order]
    steps = longest_first[LOCKSTEP_BATCHES_MIN - 1]
    going_on = np.searchsorted(-longest_first, -np.arange(steps)).tolist()
    lengths = np.ndarray((len(raw) - 1,), "<u2", raw, strides=(1,))  # the two bytes at any position
    reached, cursors = begins[order], firsts[order]
    try:
        for active in going_on:
            starts[cursors[:active]] = reached[:active]
            reached[:active] += _ADVANCES.take(lengths[reached[:active]])
            cursors[:active] += 1
    except IndexError:  # a length leads behind the end
        return untouched
    done = np.empty_like(counts)
    position = np.empty_like(begins)
    done[order] = np.minimum(longest_first, steps)
    position[order] = reached
    is_stuck = position == starts[firsts + done - 1]
    return np.where(is_stuck, 0, done), np.where(is_stuck, begins, position)


def _advances() -> npt.NDArray[np.int16]:
    """Distance to the next record, by the first two bytes of a record; 0 if they are not enough."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    length_bytes = np.where(first < 0x80, 1, 2)
    zigzag = np.where(first < 0x80, first, first & 0x7F | (second & 0x7F) << 7)
    is_known = (zigzag & 1 == 0) & ((first < 0x80) | (second < 0x80))
    return np.where(is_known, length_bytes + (zigzag >> 1), 0).astype(np.int16)


_ADVANCES: Final = _advances()


def _one_by_one(section: memoryview, position: int, count: int) -> tuple[list[int], int]:
    """Positions of `count` records from `position` on, and the end of the last one."""
    starts: list[int] = []
    try:
        for _ in range(count):
            starts.append(position)
            first = section[position]
            if first < 0x80:
                position += 1 + (first >> 1)
            elif (second := section[position + 1]) < 0x80:
                position += 2 + (second << 6 | (first & 0x7F) >> 1)
            else:
                length, position = varint_at(section, position, "the length of a record")
                if length < 0:
                    raise MalformedBatch("a record of less than no length")
                position += length
    except IndexError:
        raise MalformedBatch("a record reaches beyond its batch") from None
    if position > len(section):
        raise MalformedBatch("a record reaches beyond its batch")
    return starts, position
