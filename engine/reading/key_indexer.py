"""Builds the index of which records have a key, behind the appends: finished segments, and the active one as it grows.

What is left uncovered is a tail, which look-ups read (engine.reading.search); so it is kept short enough to be read
quickly.
"""

from contextlib import suppress
from functools import partial

import trio

from engine.errors import EngineError
from engine.index.keeper import IndexKeeper
from engine.index.keys import collect_keys
from engine.logs.position import LogPosition
from engine.reading.reader import LogReader

TAIL_BYTES = 1024 * 1024  # of the active segment, not covered at least


def outgrows_tail(before: LogPosition, end: LogPosition) -> bool:
    """Whether there is more to cover at `end` than there may have been at `before`."""
    if before.segment_base_offset != end.segment_base_offset:
        return True
    return before.position // TAIL_BYTES != end.position // TAIL_BYTES


class KeyIndexer:
    """Builds the key index of the partitions of a log dir that want it, one at a time."""

    def __init__(self, index: IndexKeeper) -> None:
        self._index = index
        self._wanted: dict[LogReader, LogPosition] = {}
        self._is_wanted = trio.Event()
        self._at_work: LogReader | None = None

    def want(self, reader: LogReader, limit: LogPosition) -> None:
        """Its log is durable up to `limit`, and may not be covered yet."""
        self._wanted[reader] = limit
        self._is_wanted.set()

    def abandon(self, reader: LogReader) -> None:
        """Its log is about to be cut: what was collected of it and not yet stored may not be true."""
        self._wanted.pop(reader, None)
        if self._at_work is reader:
            self._at_work = None

    async def serve(self) -> None:
        """Build, until cancelled. What is damaged is left to look-ups to tell."""
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
        """False when there is nothing (more) to do."""
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
            return bool(log.segments)  # replaced meanwhile, or the log was let go of
        if segment is log.active and part.end - (0 if part.start is None else part.start[1]) < TAIL_BYTES:
            return False
        found = await reader.run(segment, partial(collect_keys, part, offset))
        if self._at_work is not reader:
            return False
        if found is None or not log.has(segment):
            return bool(log.segments)
        places = [(segment.base_offset, *one) for one in found.places]
        return await self._index.add_keys(reader.index_key, places, covered_to, found.end_offset)
