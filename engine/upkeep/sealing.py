"""Sealing of the finished segments of one log dir, and scrubbing of sealed ones (RULES S2): docs/formats/footer.md.

It runs in the background: no append and no read waits for it. Segments that this process appended were digested during
the appends. The others are read in slices, each a job of a worker, with pauses that keep to a rate. Damage is reported,
counted and not served any more; the segment file is not changed.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from engine.errors import CorruptMessage, StorageError, UnreadableMessage
from engine.files.filesystem import FileSystem, replace_small
from engine.log_dirs.log_dir import LogDir, Resident
from engine.logs.segments.footer import Footer, FooterDamaged, Tally, encode, footer_name, read_footer
from engine.logs.segments.segment import Segment
from engine.upkeep.full_scan import SegmentRemoved, check_there, read_whole, run_on

FIRST_SCRUB_S = 600


@dataclass(frozen=True, slots=True)
class SealingOptions:
    """The rate of reads for sealing and scrubbing (0: no scrubbing), and the interval of the latter."""

    scrub_bytes_per_s: int = 4 * 1024 * 1024
    scrub_interval_ms: int = 86_400_000


class Sealer:
    """The sealing and scrubbing task of one log dir."""

    def __init__(self, log_dir: LogDir, options: SealingOptions) -> None:
        self._log_dir = log_dir
        self._options = options
        self._wanting: dict[Resident, None] = {}
        self._wanted = trio.Event()

    def want(self, resident: Resident) -> None:
        """Note that the partition may have a finished segment to seal."""
        if any(_is_to_seal(one) for one in resident.log.segments[:-1]):
            self._wanting[resident] = None
            self._wanted.set()

    async def serve(self) -> None:
        """Seal segments, until cancelled, or until the log dir goes offline."""
        while self._log_dir.disk.offline_reason is None:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._wanting:
                resident = next(iter(self._wanting))
                del self._wanting[resident]
                for segment in resident.log.segments[:-1]:
                    if _is_to_seal(segment) and segment.end_offset <= resident.last_stable_offset and resident.is_sound:
                        with suppress(SegmentRemoved, StorageError):  # no space: tried again after the next roll
                            await self._seal(resident, segment)

    async def scrub(self) -> None:
        """Read all sealed segments at intervals, until cancelled, or until the log dir goes offline."""
        interval_s = self._options.scrub_interval_ms / 1000
        if not self._options.scrub_bytes_per_s:
            return
        await trio.sleep(min(FIRST_SCRUB_S, interval_s))
        while self._log_dir.disk.offline_reason is None:
            for resident in list(self._log_dir.partitions.values()):
                await trio.lowlevel.checkpoint()
                for segment in resident.log.segments[:-1]:
                    if segment.is_sealed and not segment.is_damaged and resident.is_sound:
                        with suppress(SegmentRemoved, StorageError):
                            await self._check_again(resident, segment)
            await trio.sleep(interval_s)

    async def _seal(self, resident: Resident, segment: Segment) -> None:
        tally = segment.tally or await self._read(resident, segment)
        if tally is None:
            return
        generation = int(segment.base_offset < resident.log.compacted_to)
        try:
            found = await resident.aborted_in(segment)
        except CorruptMessage as error:
            self._report(f"{resident.log.path_of(segment.base_offset)} is not sealed: {error}")
            return
        aborted = [one[:3] for one in found]
        footer = tally.footer(resident.partition, segment.base_offset, segment.size_bytes, generation, aborted)
        async with self._log_dir.commit_log.between_checkpoints():
            check_there(self._log_dir, resident, segment)
            assert resident.log.flushed_offset >= segment.end_offset, "a footer comes after its segment is durable"
            await self._log_dir.disk.run(partial(_write, self._log_dir.disk.filesystem, resident.log.directory, footer))
            segment.is_sealed, segment.tally = True, None
            self._log_dir.stats.sealed_segments += 1

    async def _check_again(self, resident: Resident, segment: Segment) -> None:
        directory = resident.log.directory
        try:
            job = partial(read_footer, self._log_dir.disk.filesystem, directory, segment.base_offset)
            footer = await run_on(self._log_dir, resident, segment, job)
        except FooterDamaged as damage:
            self._report(f"{directory}/{footer_name(segment.base_offset)}: {damage}")
            segment.is_sealed = False  # another footer takes its place
            self.want(resident)
            return
        tally = await self._read(resident, segment)
        if tally is None:
            return
        if not tally.is_of(footer, resident.partition, segment.base_offset, segment.size_bytes):
            segment.is_condemned = True
            self._damaged(resident, segment, "its content differs from its footer")

    async def _read(self, resident: Resident, segment: Segment) -> Tally | None:
        """Read and check a segment; None if it is damaged."""
        try:
            _, tally = await read_whole(self._log_dir, resident, segment, self._keep_to_rate)
        except CorruptMessage as error:
            segment.is_condemned = isinstance(error, UnreadableMessage)
            self._damaged(resident, segment, str(error))
            return None
        return tally

    async def _keep_to_rate(self, read_bytes: int) -> None:
        self._log_dir.stats.scrubbed_bytes += read_bytes
        await trio.sleep(read_bytes / (self._options.scrub_bytes_per_s or SealingOptions().scrub_bytes_per_s))

    def _damaged(self, resident: Resident, segment: Segment, problem: str) -> None:
        segment.is_damaged = True
        segment.doubt()
        self._report(f"{resident.log.path_of(segment.base_offset)} is damaged: {problem}")

    def _report(self, problem: str) -> None:
        self._log_dir.stats.damage_found += 1
        self._log_dir.on_problem(problem)


def _is_to_seal(segment: Segment) -> bool:
    return not segment.is_sealed and not segment.is_damaged


def _write(filesystem: FileSystem, directory: str, footer: Footer) -> None:
    replace_small(filesystem, directory, footer_name(footer.base_offset), encode(footer))
