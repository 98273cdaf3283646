"""Varints as records have them, written for many at once: zigzag, then seven bits a byte, the last one below 0x80."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Zigzags = npt.NDArray[np.uint64]

_BITS = 7


def zigzag(values: Integers) -> Zigzags:
    """Small numbers of either sign as small ones without."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def sizes_of(zigzags: Zigzags) -> Integers:
    """In bytes."""
    sizes = np.ones(len(zigzags), np.int64)
    rest = zigzags >> np.uint64(_BITS)
    while rest.any():
        sizes += rest != 0
        rest >>= np.uint64(_BITS)
    return sizes


def zigzag_varints(*columns: Integers) -> pa.Array:
    """The varints of each row, one behind the other, as binary."""
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
    """The first byte of each, then the second one of those that have one, and so on."""
    last = rest < 1 << _BITS
    data[places] = (rest & np.uint64(0x7F)) | np.where(last, 0, 0x80).astype(np.uint64)
    if not last.all():
        more = np.flatnonzero(~last)
        _put(data, places[more] + 1, rest[more] >> np.uint64(_BITS), sizes[more] - 1)
