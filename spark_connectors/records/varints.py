"""Varints as in records: zigzag, then seven bits in each byte, the last one below 0x80.

Many are written at once. One by one, they are read in unusual cases only (`fields` reads many at once).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_connectors.records.errors import MalformedBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Zigzags = npt.NDArray[np.uint64]

INT32_MAX_BYTES: Final = 5  # of a number of 32 bits
_BITS: Final = 7


def varint_at(octets: memoryview, position: int, what: str) -> tuple[int, int]:
    """Read a number of 32 bits. Returns it, and the position behind it.

    Raises MalformedBatch, with `what` in its text, for a longer number; IndexError if the bytes end within it.
    """
    plain = 0
    for index in range(INT32_MAX_BYTES):
        byte = octets[position + index]
        plain |= (byte & 0x7F) << _BITS * index
        if byte < 0x80 and not plain >> 32:
            return (plain >> 1) ^ -(plain & 1), position + index + 1
    raise MalformedBatch(f"{what} does not end within 32 bits")


def zigzag(values: Integers) -> Zigzags:
    """Encode signed numbers as unsigned ones, so that small numbers stay small."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def sizes_of(zigzags: Zigzags) -> Integers:
    """Sizes as varints, in bytes."""
    sizes = np.ones(len(zigzags), np.int64)
    rest = zigzags >> np.uint64(_BITS)
    while rest.any():
        sizes += rest != 0
        rest >>= np.uint64(_BITS)
    return sizes


def zigzag_varints(*columns: Integers) -> pa.Array:
    """Varints of each row, one after the other, as binary."""
    plain = [zigzag(column) for column in columns]
    sizes = [sizes_of(column) for column in plain]
    ends = np.cumsum(sum(sizes), dtype=np.int64)
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    places = offsets[:-1].astype(np.int64)
    for column, size in zip(plain, sizes, strict=True):
        _put(data, places, column, size)
        places += size
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _put(data: npt.NDArray[np.uint8], places: Integers, rest: Zigzags, sizes: Integers) -> None:
    """Write the first byte of each number, then the second bytes, and so on, for numbers that have so many."""
    last = rest < 1 << _BITS
    data[places] = (rest & np.uint64(0x7F)) | np.where(last, 0, 0x80).astype(np.uint64)
    if not last.all():
        more = np.flatnonzero(~last)
        _put(data, places[more] + 1, rest[more] >> np.uint64(_BITS), sizes[more] - 1)
