"""Groups of batches, so large that the cost of a numpy step is shared by tens of thousands of records.

Records that are not compressed stay in the buffer. Others are decompressed, one batch after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spark_connectors.records.batches import CODEC_MASK, HEADER_SIZE_BYTES, LENGTH_PREFIX_SIZE_BYTES, body_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.starts import bounds_in_parts, bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spark_connectors.records.batches import Batch, Bytes
    from spark_connectors.records.starts import Bounds, Integers, Octets

GROUP_BYTES: Final = 8 << 20
GROUP_RECORDS: Final = 64 << 10
_BYTES_MAX: Final = 2**31 - 1  # Arrow's offsets have 32 bits


class Group(NamedTuple):
    """Bytes with the records of these batches, the number of records of each batch, and the bounds of each record."""

    raw: Octets
    batches: list[Batch]
    counts: Integers
    bounds: Bounds


def groups_of(buffer: Bytes, batches: Iterable[Batch]) -> Iterator[Group]:
    """Groups with all records of the batches, in order. A batch with very many records makes several groups. Raises
    MalformedBatch.
    """
    view = memoryview(buffer)
    taken: list[Batch] = []
    bodies: list[Bytes] = []  # of compressed batches; a group has compressed batches only, or none
    size_bytes = records = 0
    for batch in batches:
        if not batch.records:
            continue  # emptied by compaction
        is_compressed = batch.attributes & CODEC_MASK != 0
        body = body_of(view, batch) if is_compressed else b""
        added_bytes = len(body) or batch.length
        is_full = records + batch.records > GROUP_RECORDS or size_bytes + added_bytes > GROUP_BYTES
        if taken and (is_full or bool(bodies) != is_compressed):
            yield from _groups(view, taken, bodies)
            taken, bodies, size_bytes, records = [], [], 0, 0
        taken.append(batch)
        if is_compressed:
            bodies.append(body)
        size_bytes += added_bytes
        records += batch.records
    if taken:
        yield from _groups(view, taken, bodies)


def _groups(view: memoryview, batches: list[Batch], bodies: list[Bytes]) -> Iterator[Group]:
    raw, begins, ends = _laid_out(view, batches, bodies)
    counts = np.array([batch.records for batch in batches], np.int64)
    if len(batches) == 1 and batches[0].records > GROUP_RECORDS:
        for bounds in bounds_in_parts(raw, int(begins[0]), int(ends[0]), batches[0].records, GROUP_RECORDS):
            yield Group(raw, batches, np.array([len(bounds.starts)]), bounds)
    else:
        yield Group(raw, batches, counts, bounds_of(raw, begins, ends, counts))


def _laid_out(view: memoryview, batches: list[Batch], bodies: list[Bytes]) -> tuple[Octets, Integers, Integers]:
    """An array of bytes, and the begin and end of each batch's records in it."""
    if bodies:
        raw = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint8)
        ends = np.cumsum([len(body) for body in bodies])
        begins = np.concatenate([[0], ends[:-1]])
    else:
        first, last = batches[0], batches[-1]
        raw = np.frombuffer(view[first.position : last.end], np.uint8)
        positions = np.array([batch.position for batch in batches], np.int64) - first.position
        begins = positions + HEADER_SIZE_BYTES
        ends = positions + LENGTH_PREFIX_SIZE_BYTES + [batch.length for batch in batches]
        assert np.all(begins[1:] > ends[:-1]), "batches are given in their order"
    if len(raw) > _BYTES_MAX:
        raise MalformedBatch(f"batches of {len(raw)} bytes, at most {_BYTES_MAX} are read together")
    return raw, begins, ends
