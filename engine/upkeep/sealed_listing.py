"""Listing of the sealed segments of a partition: implements `engine.sealed.SealedLog`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from engine.api import NO_TIMESTAMP_MS
from engine.errors import CorruptMessage
from engine.files.filesystem import FileSystem
from engine.index.rows import partition_key
from engine.logs.segments.footer import Footer, FooterDamaged, read_footer
from engine.logs.segments.segment import Segment
from engine.partitions.partition import Partition
from engine.sealed import APART_BYTES, Contents, SealedSegment
from engine.upkeep.sealed_files import sealed_files


class SealedListing:
    """The sealed segments of an open partition."""

    def __init__(self, opened: Partition) -> None:
        self._opened = opened
        self._log_dir = opened.log_dir

    @property
    def sealed_end(self) -> int:
        log = self._opened.log
        end = log.local_start_offset
        for segment in sealed_files(self._opened):
            end = segment.end_offset
        return end

    async def sealed_segments(self, from_offset: int, to_offset: int, count_max: int) -> list[SealedSegment]:
        """Sealed segments; repeats the look-up if segments are replaced, or lose their files, meanwhile."""
        while True:
            self._opened.check_open()
            before = self._opened.log.replacements
            wanted = list(islice(self._segments_in(from_offset, to_offset), count_max))
            found = await self._described(wanted)
            if found is not None and self._opened.log.replacements == before:
                return found

    def _segments_in(self, from_offset: int, to_offset: int) -> Iterable[Segment]:
        """The wanted segments. Raises TierUnreachable if the cold segments are not known."""
        log = self._opened.log
        first = max(from_offset, log.start_offset)
        cold = log.cold.all_from(log.start_offset) if first < log.local_start_offset else ()
        for segment in (*cold, *sealed_files(self._opened)):
            if segment.base_offset >= to_offset:
                return
            if segment.end_offset > first:
                yield segment

    async def _described(self, segments: Sequence[Segment]) -> list[SealedSegment] | None:
        """Descriptions of segments; None if one of them is gone, or has to be sealed again."""
        for segment in segments:
            if not segment.is_cold:  # of an object it would have to be read
                with suppress(CorruptMessage):  # its times stay unknown
                    await self._opened.learn_timestamps(segment)
        footers = await self._footers_of([one for one in segments if not one.is_cold])
        found = []
        for segment in segments:
            footer = footers.get(segment.base_offset)
            if not segment.is_cold and footer is None:
                await self._note_without_footer(segment)
                return None
            found.append(self._describe(segment, footer, await self._positions(segment)))
        return found

    async def _footers_of(self, segments: Sequence[Segment]) -> dict[int, Footer]:
        if not segments:
            return {}
        bases = [one.base_offset for one in segments]
        disk = self._log_dir.disk
        return await disk.run(partial(_footers, disk.filesystem, self._opened.log.directory, bases))

    async def _note_without_footer(self, segment: Segment) -> None:
        """Have a segment without a sound footer sealed again, unless it is gone."""
        await self._log_dir.commit_log.replaced()
        if self._opened.log.has(segment):
            segment.is_sealed = False
            self._log_dir.want_seal(self._opened)

    def _describe(self, segment: Segment, footer: Footer | None, positions: Sequence[tuple[int, int]]) -> SealedSegment:
        path = contents = None
        if footer is not None:
            path = self._opened.log.path_of(segment.base_offset)
            least_ms = NO_TIMESTAMP_MS if footer.min_timestamp_ms is None else footer.min_timestamp_ms
            contents = Contents(footer.records, footer.digest, least_ms, footer.aborted)
        known = segment.base_offset, segment.end_offset, segment.size_bytes, segment.max_timestamp_ms
        return SealedSegment(*known, positions, path, contents)

    async def _positions(self, segment: Segment) -> list[tuple[int, int]]:
        """Positions of batches in the stored index, which may have none."""
        if segment.size_bytes < 2 * APART_BYTES:
            return []
        partition = self._opened.partition
        key = partition_key(partition.topic_id, partition.partition)
        entries = await self._log_dir.index.entries(key, segment.base_offset)
        return spread((one.offset, one.position) for one in entries)


def spread(places: Iterable[tuple[int, int]], apart_bytes: int = APART_BYTES) -> list[tuple[int, int]]:
    """Places (offset, position) that lie at least `apart_bytes` apart, and so far from the start; `places` ascend."""
    found: list[tuple[int, int]] = []
    reached = apart_bytes
    for offset, position in places:
        if position >= reached:
            found.append((offset, position))
            reached = position + apart_bytes
    return found


def _footers(filesystem: FileSystem, directory: str, base_offsets: Sequence[int]) -> dict[int, Footer]:
    """The footers that exist and are sound, by base offset."""
    found = {}
    for base_offset in base_offsets:
        try:
            found[base_offset] = read_footer(filesystem, directory, base_offset)
        except FooterDamaged:
            continue
    return found
