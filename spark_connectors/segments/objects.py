"""Segments in objects of the tier, with read-ahead: the store's latency is used to process the rows before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from spark_connectors.segments.plan import Part
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.stores import Store, StoredObject, StoreError

AHEAD_BYTES: Final = 8 << 20


@contextmanager
def store_errors_as_gone() -> Iterator[None]:
    """Raise SegmentGone for any error of the store, so that the reader looks elsewhere."""
    try:
        yield
    except StoreError as error:
        raise SegmentGone(str(error)) from error


class SegmentObject:
    """Implements `spark_connectors.segments.reading.SegmentBytes`, for sequential reads."""

    def __init__(self, store: Store, key: str, part: Part) -> None:
        """Raises SegmentGone."""
        self._key = key
        self._border = part.end
        self._start = 0  # position of the held bytes
        self._held = memoryview(b"")
        self._ahead: Future[memoryview] | None = None  # the bytes after them
        with store_errors_as_gone():
            self._object: StoredObject = store.open(key)
        self._thread = ThreadPoolExecutor(1)

    def read(self, position: int, size_bytes: int) -> memoryview:
        """See the Protocol."""
        found = self._piece(position, size_bytes)
        self._start, self._held = position, found
        end = position + size_bytes
        ahead_bytes = min(AHEAD_BYTES, self._border - end)
        if ahead_bytes > 0:
            self._ahead = self._thread.submit(self._read, end, ahead_bytes)
        return found

    def _piece(self, position: int, size_bytes: int) -> memoryview:
        """Bytes from the end of the held ones and from the read-ahead, if they are the next ones; else a new read."""
        ahead, self._ahead = self._ahead, None
        held_end = self._start + len(self._held)
        if ahead is None or not self._start <= position <= held_end:
            return self._read(position, size_bytes)
        rest = self._held[position - self._start :][:size_bytes]
        following = ahead.result()
        have = len(rest) + len(following)
        if have < size_bytes:
            return memoryview(b"".join((rest, following, self._read(position + have, size_bytes - have))))
        return memoryview(b"".join((rest, following[: size_bytes - len(rest)])))

    def _read(self, position: int, size_bytes: int) -> memoryview:
        with store_errors_as_gone():
            data = self._object.read_at(position, size_bytes)
        if len(data) < size_bytes:
            raise SegmentGone(f"{self._key} has become shorter")
        return memoryview(data)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._object.close()
