"""Which records have a key: built behind the appends, one finished segment after the other, and looked up.

Looking up is exact whatever is built: places the stored index names are verified record by record, and what it does
not cover is scanned. Costs follow: a key of a topic without `index.keys` is looked for in the whole log.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from engine.errors import EngineError
from engine.index_keeper import IndexKeeper
from engine.keys import collect_keys, hash_of, match_key, scan_for_key

if TYPE_CHECKING:
    from engine.log import Mark
    from engine.reader import LogReader
    from engine.segment import Segment

PLACES_MAX = 256  # of one key, verified in one job


class KeyIndexer:
    """Builds the key index of the partitions of a log dir that want it, one at a time."""

    def __init__(self, index: IndexKeeper) -> None:
        self._index = index
        self._readers: dict[LogReader, None] = {}
        self._wanted = trio.Event()

    def want(self, reader: LogReader) -> None:
        """Some segment of its log may be finished and not covered yet."""
        self._readers[reader] = None
        self._wanted.set()

    async def serve(self) -> None:
        """Build, until cancelled. What is damaged is left to look-ups to tell."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._readers:
                reader = next(iter(self._readers))
                del self._readers[reader]
                with suppress(EngineError):
                    while await self._build_slice(reader):
                        pass

    async def _build_slice(self, reader: LogReader) -> bool:
        """False when there is nothing (more) to do."""
        log = reader.log
        covered_to = await self._index.keys_to(reader.index_key)
        if covered_to is None or not log.segments:
            return False
        offset = max(covered_to, log.start_offset)
        segment = log.segment_of(offset)
        if segment is log.active:
            return False
        part = await reader.part_from(segment, offset, log.end)
        found = await reader.run(segment, partial(collect_keys, reader.filesystem, part, offset))
        if found is None or segment not in log.segments:
            return False
        places = [(segment.base_offset, *one) for one in found.places]
        return await self._index.add_keys(reader.index_key, places, covered_to, found.end_offset)


async def offsets_for_key(index: IndexKeeper, reader: LogReader, key: bytes, count: int, limit: Mark) -> list[int]:
    """The first `count` offsets below `limit` of records with this key, ascending."""
    found: list[int] = []
    start_offset = reader.log.start_offset
    for segment in list(reader.log.segments):
        if len(found) >= count or segment.base_offset > limit.segment_base_offset:
            break
        if segment.end_offset > start_offset:
            found += await _offsets_in(index, reader, segment, key, count - len(found), limit)
    return found[:count]


async def _offsets_in(
    index: IndexKeeper, reader: LogReader, segment: Segment, key: bytes, count: int, limit: Mark
) -> list[int]:
    """At least `count`, if there are so many."""
    offset = max(segment.base_offset, reader.log.start_offset)
    end_offset = min(segment.end_offset, limit.offset)
    found: list[int] = []
    after = -1
    while len(found) < count:
        covered_to, places = await index.key_places(
            reader.index_key, segment.base_offset, hash_of(key), after, PLACES_MAX
        )
        if places:
            part = await reader.part_from(segment, offset, limit)
            verified = await reader.run(segment, partial(match_key, reader.filesystem, part, places, key))
            if verified is None:
                return found
            if verified.is_index_wrong:
                await reader.distrust_index(segment)
                found, covered_to = [], 0
            found += [one for one in verified.offsets if one >= offset]
        if len(places) < PLACES_MAX or not covered_to:
            offset = max(offset, covered_to)
            break
        after = places[-1][0]
    while len(found) < count and offset < end_offset:
        part = await reader.part_from(segment, offset, limit)
        scanned = await reader.run(segment, partial(scan_for_key, reader.filesystem, part, offset, key))
        if scanned is None:
            break
        found += scanned.offsets
        offset = scanned.end_offset
    return found
