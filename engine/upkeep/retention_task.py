"""Retention of one log dir: removes old segments at intervals, and when the disk is too full (RULES D2).

`engine.upkeep.retention` decides, `engine.log_dirs.log_starts` removes. It runs on the event loop, looks at a few
partitions at a time, and moves many log starts with one barrier. Appends wait for a sync of the journal, never for the
deletion of files.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from engine.api import NO_TIMESTAMP_MS
from engine.errors import CorruptMessage, StorageError
from engine.files.filesystem import FileSystem, Usage
from engine.log_config import CleanupPolicy, LogConfig
from engine.log_dirs.local_starts import move_local_starts
from engine.log_dirs.log_dir import LogDir, Resident
from engine.log_dirs.log_starts import Move, move_log_starts, roll
from engine.logs.log import Log
from engine.logs.segments.segment import Segment
from engine.stats import Reason
from engine.upkeep.retention import OldSegment, may_make_room, removal_reasons, to_make_room

WINDOW_CHECK_S = 60
SPACE_CHECK_INTERVAL_S = 5
TURN = 64  # partitions between two checkpoints of the event loop
MOVED_TOGETHER_MAX = 64
DROPPED_TOGETHER_MAX = 16  # meanwhile no segment is replaced, and look-ups of aborted transactions wait
JUST_NOW_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """Options of retention for a whole broker. `is_time`: whether retention may run at a time (ms)."""

    check_interval_ms: int = 300_000
    initial_delay_ms: int = 30_000
    is_time: Callable[[int], bool] = lambda _now_ms: True
    disk_max_used_ratio: float = 1.0  # above this share of the disk's space, segments go early
    disk_reject_ratio: float = 1.0  # from this share on, appends are refused


class RetentionTask:
    """The retention task of one log dir."""

    def __init__(self, log_dir: LogDir, options: RetentionOptions, now_ms: Callable[[], int]) -> None:
        self._log_dir = log_dir
        self._options = options
        self._now_ms = now_ms
        self._stuck: set[Resident] = set()  # their files cannot go for now

    async def serve(self) -> None:
        """Check all partitions at intervals, until cancelled, or until the log dir goes offline."""
        interval_s = self._options.check_interval_ms / 1000
        await trio.sleep(self._options.initial_delay_ms / 1000)
        while self._log_dir.disk.offline_reason is None:
            if self._options.is_time(self._now_ms()):
                await self.check()
                await trio.sleep(interval_s)
            else:
                await trio.sleep(min(WINDOW_CHECK_S, interval_s))

    async def check(self) -> None:
        """Check all partitions once."""
        self._stuck.clear()  # their problem may be over
        moves: list[Move] = []
        drops: list[Move] = []
        for number, resident in enumerate(list(self._log_dir.partitions.values())):
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            if resident.is_sound:
                with suppress(StorageError):  # no space to roll, or cold segments not known: the next check tries again
                    if resident.is_led:
                        moves += await self._due(resident)
                    drops += await self._copied(resident)
            if len(moves) >= MOVED_TOGETHER_MAX:
                await self._move(moves)
                moves = []
            if len(drops) >= DROPPED_TOGETHER_MAX:
                await self._drop_files(drops)
                drops = []
        await self._move(moves)
        await self._drop_files(drops)

    async def _move(self, moves: Sequence[Move]) -> None:
        with suppress(StorageError):  # the next check tries again
            await move_log_starts(self._log_dir, moves)

    async def _due(self, resident: Resident) -> list[Move]:
        await self._learn_timestamps(resident, resident.log.all_segments, resident.config)
        segments = await self._old_segments(resident.log)
        start_offset, high_watermark = resident.log.start_offset, resident.high_watermark
        reasons = removal_reasons(segments, resident.config, start_offset, high_watermark, self._now_ms())
        if not reasons:
            return []
        end_offset = segments[len(reasons) - 1].end_offset
        if len(reasons) == len(segments) and not await roll(self._log_dir, resident, end_offset):
            return []
        return [Move(resident, end_offset, reasons)]

    async def _copied(self, resident: Resident) -> list[Move]:
        """Segment files that the remote tier has too, and that are past local retention.

        If the active segment is past it, too, the leader rolls it, so that it can be copied.
        """
        if not resident.log.is_tier_confirmed or not resident.config.remote_storage:
            return []
        await self._learn_timestamps(resident, resident.log.segments, resident.config.local())
        segments = await self._old_segments(resident.log, with_cold=False)
        count = len(removal_reasons(segments, resident.config.local(), 0, resident.high_watermark, self._now_ms()))
        if count and count == len(segments) and resident.is_led:
            await roll(self._log_dir, resident, segments[-1].end_offset)
        copied = [one for one in segments[:count] if one.end_offset <= (resident.log.tiered_to or 0)]
        return [Move(resident, copied[-1].end_offset)] if copied else []

    async def _learn_timestamps(self, resident: Resident, segments: Sequence[Segment], config: LogConfig) -> None:
        """Learn the timestamps of the segments that time may remove, and of the next one, where headers tell none."""
        if CleanupPolicy.DELETE not in config.cleanup_policy or config.retention_ms < 0:
            return
        for segment in list(segments):
            with suppress(CorruptMessage):  # the age of its file counts
                await resident.learn_timestamps(segment)
            newest_ms = segment.max_timestamp_ms
            if newest_ms == NO_TIMESTAMP_MS or self._now_ms() - newest_ms <= config.retention_ms:
                return

    async def _old_segments(self, log: Log, *, with_cold: bool = True) -> list[OldSegment]:
        """The segments of a log, with or without cold ones. Files are asked for their age only if records have no
        timestamps.

        Raises StorageError.
        """
        untimed = [
            one.base_offset for one in log.segments if one.size_bytes and one.max_timestamp_ms == NO_TIMESTAMP_MS
        ]
        written_ms: Mapping[int, int] = {}
        if untimed:
            written_ms = await self._log_dir.disk.run(partial(_written_ms, self._log_dir.disk.filesystem, log, untimed))
        if not log.segments:
            return []  # deleted meanwhile
        segments = log.all_segments if with_cold else log.segments
        ends = [*(one.base_offset for one in segments[1:]), log.end.offset]
        return [
            OldSegment(
                end_offset,
                one.size_bytes,
                one.max_timestamp_ms if one.max_timestamp_ms >= 0 else written_ms.get(one.base_offset, JUST_NOW_MS),
            )
            for one, end_offset in zip(segments, ends, strict=True)
        ]

    # Space

    async def watch_space(self) -> None:
        """Refuse appends on a nearly full disk, and delete old segments early if so configured.

        Runs until cancelled, or until the log dir goes offline.
        """
        while self._log_dir.disk.offline_reason is None:
            with suppress(StorageError):
                disk = self._log_dir.disk
                usage = await disk.run(partial(disk.filesystem.usage, disk.path))
                self._note_usage(usage)
                if usage.ratio > self._options.disk_max_used_ratio:
                    await self._make_room(usage)
            await trio.sleep(SPACE_CHECK_INTERVAL_S)

    def _note_usage(self, usage: Usage) -> None:
        log_dir, was_nearly_full = self._log_dir, self._log_dir.is_nearly_full
        log_dir.is_nearly_full = usage.ratio >= self._options.disk_reject_ratio
        if log_dir.is_nearly_full and not was_nearly_full:
            problem = "it takes no appends (disk.reject.ratio)"
            log_dir.on_problem(f"{log_dir.disk.path} is {usage.ratio:.1%} full: {problem}")

    async def _make_room(self, usage: Usage) -> None:
        """Delete segments early. Files that are set aside already count as free space."""
        log_dir, ratio = self._log_dir, self._options.disk_max_used_ratio
        whole_bytes = usage.used_bytes + usage.available_bytes
        wanted_bytes = usage.used_bytes - int(whole_bytes * ratio) - log_dir.deleter.size_bytes
        if wanted_bytes <= 0:
            return
        residents = [
            one
            for one in log_dir.partitions.values()
            if one.is_sound and one not in self._stuck and may_make_room(one.config)
            if one.is_led or one.log.is_tier_confirmed  # then only files go, and no records
        ]
        finished = []
        for number, one in enumerate(residents):
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            segments = await self._old_segments(one.log, with_cold=False)
            limit = one.high_watermark if one.log.tiered_to is None else min(one.high_watermark, one.log.tiered_to)
            if one.log.tiered_to is not None and not one.log.is_tier_confirmed:
                limit = 0  # a checkpoint alone does not prove that the tier has it
            finished.append([each for each in segments[:-1] if each.end_offset <= limit])
        given = to_make_room(finished, wanted_bytes)
        moves = [
            Move(one, segments[count - 1].end_offset, [Reason.SPACE] * count)
            for one, segments, count in zip(residents, finished, given, strict=True)
            if count
        ]
        lost = [one for one in moves if one.resident.log.tiered_to is None and one.resident.is_led]
        local = await self._drop_files([one for one in moves if one.resident.log.tiered_to is not None])
        for start in range(0, len(lost), MOVED_TOGETHER_MAX):
            await move_log_starts(log_dir, lost[start : start + MOVED_TOGETHER_MAX])
        how_full = f"{log_dir.disk.path} is {usage.ratio:.1%} full (disk.max.used.ratio is {ratio})"
        for done, outcome in (
            (lost, "removed before their time"),
            (local, "left to the remote tier before their time"),
        ):
            if done:
                count = sum(len(one.reasons) for one in done)
                log_dir.on_problem(f"{how_full}: {count} segments of {len(done)} partitions were {outcome}")

    async def _drop_files(self, moves: Sequence[Move]) -> list[Move]:
        """Drop files of logs that the remote tier has; returns the moves that were done. An error in one log does not
        stop others."""
        done: list[Move] = []
        for start in range(0, len(moves), DROPPED_TOGETHER_MAX):
            chunk = moves[start : start + DROPPED_TOGETHER_MAX]
            try:
                refused = await move_local_starts(self._log_dir, {one.resident: one.offset for one in chunk})
            except (CorruptMessage, StorageError):
                continue  # the next check tries again
            for resident, error in refused.items():
                if isinstance(error, CorruptMessage):
                    self._stuck.add(resident)
                    self._log_dir.on_problem(f"files stay here that the remote tier has: {error}")
            done += [one for one in chunk if one.resident not in refused]
        return done


def _written_ms(filesystem: FileSystem, log: Log, base_offsets: Sequence[int]) -> dict[int, int]:
    """The times (ms) of the last writes of segment files. A file that was removed meanwhile is left out."""
    found = {}
    for base_offset in base_offsets:
        with suppress(FileNotFoundError):
            found[base_offset] = filesystem.modified_ms(log.path_of(base_offset))
    return found
