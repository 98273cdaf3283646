"""Builds the key index in the background: for finished segments, and for the active one as it grows.

A tail is not covered, and a search reads it (engine.reading.search), so it is kept short.
"""

from contextlib import suppress
from functools import partial

import trio

from engine.errors import EngineError
from engine.index.keys import collect_keys
from engine.index.stored_index import StoredIndex
from engine.logs.segments.position import LogPosition
from engine.reading.reader import LogReader

TAIL_BYTES = 1024 * 1024  # the active segment is covered further when so many bytes are not covered


def outgrows_tail(before: LogPosition, end: LogPosition) -> bool:
    """Whether the log has grown from `before` to `end` by so much that the key index may have more to cover."""
    if before.segment_base_offset != end.segment_base_offset:
        return True
    return before.position // TAIL_BYTES != end.position // TAIL_BYTES


class KeyIndexer:
    """Builds the key index of the partitions of a log dir that want it, one at a time."""

    def __init__(self, index: StoredIndex) -> None:
        self._index = index
        self._wanted: dict[LogReader, LogPosition] = {}
        self._is_wanted = trio.Event()
        self._at_work: LogReader | None = None

    def want(self, reader: LogReader, limit: LogPosition) -> None:
        """Request the index for a log up to `limit`, where it is durable."""
        self._wanted[reader] = limit
        self._is_wanted.set()

    def abandon(self, reader: LogReader) -> None:
        """Drop keys of a log that are collected and not stored yet, because the log is about to be truncated."""
        self._wanted.pop(reader, None)
        if self._at_work is reader:
            self._at_work = None

    async def serve(self) -> None:
        """Build indexes until cancelled. Damage is skipped; a search reports it."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            while self._wanted:
                reader = next(iter(self._wanted))
                limit = self._wanted.pop(reader)
                self._at_work = reader
                with suppress(EngineError):
                    while await self._build_slice(reader, limit):
                        pass

    async def _build_slice(self, reader: LogReader, limit: LogPosition) -> bool:
        """Index a slice of a log; False: there is no more to do."""
        log = reader.log
        covered_to = await self._index.keys_to(reader.index_key)
        if covered_to is None or not log.segments:
            return False
        offset = max(covered_to, log.start_offset)
        if offset >= limit.offset:
            return False
        segment = log.segment_of(offset)
        part = await reader.part_from(segment, offset, limit)
        if not log.has(segment):
            return bool(log.segments)  # the segment was replaced meanwhile, or the log was closed
        if segment is log.active and part.end - (0 if part.start is None else part.start[1]) < TAIL_BYTES:
            return False
        found = await reader.run(segment, partial(collect_keys, part, offset))
        if self._at_work is not reader:
            return False
        if found is None or not log.has(segment):
            return bool(log.segments)
        places = [(segment.base_offset, *one) for one in found.places]
        return await self._index.add_keys(reader.index_key, places, covered_to, found.end_offset)
