"""Replay: writes the content of the journal into the segment files again (RULES J3), before any log is opened.

The replay is physical: bytes go to the positions that the frames name, and changes with barriers stay done. The later
opening of a log checks it, from the recovery points that the replay returns (docs/formats/journal.md). Runs on a
worker.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from engine.commit.journal import DIRECTORY, SUFFIX, Found, Slot
from engine.commit.journal_format import (
    PAGE_SIZE_BYTES,
    SLOT_HEADER_SIZE_BYTES,
    Barrier,
    BarrierKind,
    Frame,
    Row,
    SlotRefused,
    batches_below,
    first_frame_header,
    frames,
    has_incomplete_frame,
    has_sound_batches,
    parse_slot_header,
)
from engine.errors import StoreRefused
from engine.files.filesystem import File, FileSystem, Unreadable
from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey
from engine.logs.recovery.truncation_plan import start_empty
from engine.logs.segments.segment import TruncationPoint, segment_name, truncate_segments

_LOST = "its part of the last appends is lost, unless the segments have it"


class Directories(NamedTuple):
    """Directories of partitions, by the topic id and partition number that is stored in them.

    `unreadable`: errors of directories whose topic id cannot be read, by partition number.
    """

    by_owner: Mapping[PartitionKey, str]
    unreadable: Mapping[int, Unreadable]

    def of(self, key: PartitionKey) -> str | None:
        """The directory of a partition; None: it has none.

        Raises Unreadable if an unreadable directory may be the one: acknowledged records have to be replayed there when
        the disk can be read again.
        """
        if key not in self.by_owner and key[1] in self.unreadable:
            raise self.unreadable[key[1]]
        return self.by_owner.get(key)


class _ReplayedFrame(NamedTuple):
    """A frame to replay, with the content of its slot."""

    frame: Frame
    content: bytes


def prepare_journal(
    filesystem: FileSystem,
    path: str,
    checkpoint: Checkpoint,
    directories: Callable[[], Directories],
    *,
    is_clean: bool,
) -> tuple[Found, Checkpoint]:
    """Replay the journal of log dir `path`; returns the journal's state and the checkpoint afterwards.

    The returned checkpoint must be durable before the journal is used. `directories` finds the directories of the
    partitions; it is called only if there is a frame to replay. Raises StoreRefused, and as `Directories.of` does.
    """
    directory = f"{path}/{DIRECTORY}"
    if not filesystem.exists(directory):
        filesystem.make_dir(directory)
        filesystem.sync_dir(path)
        return Found((), checkpoint.journal_sequence, ()), checkpoint
    slots, problems, remarks = _open_slots(filesystem, directory)
    after = checkpoint._replace(has_lost=checkpoint.has_lost or (bool(problems) and not is_clean))
    if is_clean:
        return Found(slots, after.journal_sequence, (*problems, *remarks)), after
    for slot in slots:
        slot.file.fdatasync()  # a killed process may not have done it: no effect of a frame must outlive the frame
    collected, unreadable, incomplete = _collect(slots, checkpoint.journal_sequence)
    problems += unreadable
    remarks += incomplete
    after = after._replace(has_lost=after.has_lost or bool(unreadable))
    if collected:
        replay = _Replay(filesystem, checkpoint, directories(), [one.frame for one in collected])
        for one in collected:
            replay.apply(one.frame, one.content, is_last=one is collected[-1])
        replay.sync()
        remarks += replay.remarks
        problems += replay.problems
        after = Checkpoint(collected[-1].frame.sequence + 1, replay.points, after.has_lost or bool(replay.problems))
    return Found(slots, after.journal_sequence, (*problems, *remarks)), after


def _open_slots(filesystem: FileSystem, directory: str) -> tuple[tuple[Slot, ...], list[str], list[str]]:
    """Open the slots; returns them, messages about losses, and messages without a loss. Incomplete and unusable slot
    files are removed."""
    slots, problems, remarks = [], [], []
    for name in filesystem.list_dir(directory):
        path = f"{directory}/{name}"
        number = name.removesuffix(SUFFIX)
        if name.endswith(f"{SUFFIX}.tmp"):
            filesystem.unlink(path)
        if not name.endswith(SUFFIX) or not number.isdigit():
            continue
        file = filesystem.open(path)
        size_bytes = file.size()
        if _has_repaired_header(file, path):
            remarks.append(f"{path} had a damaged header: repaired from its first frame")
        header = parse_slot_header(_readable(file, SLOT_HEADER_SIZE_BYTES)[0])
        if header is None:
            problems.append(f"{path} is damaged: {_LOST}")
            filesystem.unlink(path)
            continue
        if header.size_bytes != size_bytes:
            problems.append(f"{path} has {size_bytes} bytes instead of {header.size_bytes}")
        slots.append(Slot(int(number), header.slot_id, file, size_bytes, header.is_current))
    filesystem.sync_dir(directory)
    return tuple(slots), problems, remarks


def _readable(file: File, size_bytes: int) -> tuple[bytes, int]:
    """The first bytes of a slot, with zeros for pages that the disk cannot read, and the number of these bytes."""
    with suppress(Unreadable):
        return file.read_at(0, size_bytes), 0
    content, unreadable_bytes = bytearray(size_bytes), 0
    for position in range(0, size_bytes, PAGE_SIZE_BYTES):
        try:
            page = file.read_at(position, min(PAGE_SIZE_BYTES, size_bytes - position))
            content[position : position + len(page)] = page
        except Unreadable:
            unreadable_bytes += min(PAGE_SIZE_BYTES, size_bytes - position)
    return bytes(content), unreadable_bytes


def _has_repaired_header(file: File, path: str) -> bool:
    """Repair a damaged header of a slot from its first frame; returns whether that was done. Raises StoreRefused."""
    try:
        if parse_slot_header(_readable(file, SLOT_HEADER_SIZE_BYTES)[0]) is not None:
            return False
    except SlotRefused as error:
        raise StoreRefused(f"{path}: {error}; written by another version") from None
    header = first_frame_header(_readable(file, file.size())[0])
    if header is not None:
        file.write_at([header], 0)
        file.fdatasync()
    return header is not None


def _collect(slots: Sequence[Slot], from_sequence: int) -> tuple[list[_ReplayedFrame], list[str], list[str]]:
    """All frames to replay, in order; messages about losses, and a message for each incomplete frame behind them."""
    found, problems, remarks = [], [], []
    for slot in slots:
        content, unreadable_bytes = _readable(slot.file, slot.size_bytes)
        if unreadable_bytes:
            problems.append(f"the disk cannot read {unreadable_bytes} bytes of slot {slot.number}: {_LOST}")
        end = PAGE_SIZE_BYTES
        for frame in frames(content, slot.slot_id):
            if frame.sequence >= from_sequence:
                found.append(_ReplayedFrame(frame, content))
                end = frame.end
        if has_incomplete_frame(content, slot.slot_id, end):
            remarks.append(_incomplete(f"behind position {end} of slot {slot.number}"))
    return sorted(found, key=lambda one: one.frame.sequence), problems, remarks


def _incomplete(place: str) -> str:
    return f"the journal frame {place} is incomplete, as a crash leaves the last one: dropped, as not acknowledged"


def apply_barrier(points: dict[PartitionKey, PartitionCheckpoint], barrier: Barrier) -> None:
    """Change the checkpoint entry of a partition to the state after the change that `barrier` announces."""
    key = barrier.topic_id, barrier.partition
    point = points.get(key, PartitionCheckpoint())
    if barrier.kind is BarrierKind.DELETED:
        points.pop(key, None)
    elif barrier.kind is BarrierKind.RESET:
        offset = barrier.offset
        points[key] = PartitionCheckpoint(offset, offset, offset, high_watermark=offset, epochs_to=offset)
    elif barrier.kind is BarrierKind.LOG_START:
        points[key] = point._replace(
            log_start_offset=max(point.log_start_offset, barrier.offset),
            high_watermark=max(point.high_watermark, barrier.offset),
        )
    else:
        epochs = tuple(start for start in point.epochs if start.start_offset < barrier.offset)
        # The last batches of a producer may be truncated: then earlier ones, below `producers_from`, count again.
        points[key] = point._replace(
            recovery_point=min(point.recovery_point, barrier.offset),
            producers_from=0,
            epochs=epochs,
            clean_to=min(point.clean_to, barrier.offset),
            tombstones_to=min(point.tombstones_to, barrier.offset),
            markers_to=min(point.markers_to, barrier.offset),
            high_watermark=min(point.high_watermark, barrier.offset),
            epochs_to=min(point.epochs_to, barrier.offset),
            tiered_to=min(point.tiered_to, barrier.offset),
        )


class _Replay:
    """Applies frames in order to segment files and recovery points."""

    def __init__(
        self,
        filesystem: FileSystem,
        checkpoint: Checkpoint,
        directories: Directories,
        collected: Sequence[Frame],
    ) -> None:
        self.points = dict(checkpoint.partitions)
        self.problems: list[str] = []  # records may be lost
        self.remarks: list[str] = []
        self._filesystem = filesystem
        self._directories = directories
        self._next_sequence = checkpoint.journal_sequence
        self._files: dict[tuple[PartitionKey, int], File | None] = {}
        self._barriers: dict[PartitionKey, list[tuple[int, Barrier]]] = {}
        for frame in collected:
            for barrier in frame.barriers:
                key = barrier.topic_id, barrier.partition
                self._barriers.setdefault(key, []).append((frame.sequence, barrier))

    def apply(self, frame: Frame, content: bytes, *, is_last: bool) -> None:
        if frame.sequence > self._next_sequence:
            missing = f"{self._next_sequence} to {frame.sequence - 1}"
            self.problems.append(f"journal frames {missing} are damaged: appends may be missing")
        self._next_sequence = frame.sequence + 1
        is_sound = [has_sound_batches(content, row) for row in frame.rows]
        if is_last and not all(is_sound):
            self.remarks.append(_incomplete(str(frame.sequence)))
            return
        for row, sound in zip(frame.rows, is_sound, strict=True):
            if not sound:
                where = f"offsets {row.base_offset} to {row.end_offset - 1} of partition {row.partition}"
                self.problems.append(f"journal frame {frame.sequence} is damaged: {where} of {row.topic_id.hex()}")
            self._apply_row(frame.sequence, row, content, is_sound=sound)
        for barrier in frame.barriers:
            if barrier.kind is BarrierKind.TRUNCATED:
                self._truncate((barrier.topic_id, barrier.partition), barrier)
            elif barrier.kind is BarrierKind.RESET:
                self._reset((barrier.topic_id, barrier.partition), barrier)
            apply_barrier(self.points, barrier)

    def _apply_row(self, sequence: int, row: Row, content: bytes, *, is_sound: bool) -> None:
        key = row.topic_id, row.partition
        for barrier_sequence, barrier in self._barriers.get(key, ()):
            if sequence < barrier_sequence:
                if barrier.kind in (BarrierKind.DELETED, BarrierKind.RESET):
                    return
                if barrier.kind is BarrierKind.TRUNCATED and row.end_offset > barrier.offset:
                    row = batches_below(content, row, barrier.offset) if is_sound else row
        point = self.points.get(key, PartitionCheckpoint())
        if row.end_offset <= max(point.recovery_point, point.log_start_offset) or not row.size_bytes:
            return
        file = self._file(key, row.segment_base_offset)
        if is_sound and file is not None and file.size() >= row.position:
            file.write_at([content[row.start : row.start + row.size_bytes]], row.position)
        self.points[key] = point._replace(recovery_point=row.end_offset)

    def _truncate(self, key: PartitionKey, barrier: Barrier) -> None:
        """Truncate again, since the crash may have come before it: no append follows before the next checkpoint."""
        directory = self._directories.of(key)
        if directory is not None and self._file(key, barrier.segment_base_offset) is not None:
            point = TruncationPoint(barrier.offset, barrier.segment_base_offset, barrier.position)
            truncate_segments(self._filesystem, directory, point)

    def _reset(self, key: PartitionKey, barrier: Barrier) -> None:
        """Reset the log again, as `_truncate` does. Rows before the reset were left out."""
        directory = self._directories.of(key)
        if directory is not None:
            start_empty(self._filesystem, directory, barrier.offset).fdatasync()
            self._files = {file_key: file for file_key, file in self._files.items() if file_key[0] != key}

    def _file(self, key: PartitionKey, segment_base_offset: int) -> File | None:
        """The segment file; None: it does not exist. Either the segment was removed, or the opening of the log will
        find the damage."""
        file_key = key, segment_base_offset
        if file_key not in self._files:
            directory = self._directories.of(key)
            path = f"{directory}/{segment_name(segment_base_offset)}"
            exists = directory is not None and self._filesystem.exists(path)
            self._files[file_key] = self._filesystem.open(path) if exists else None
        return self._files[file_key]

    def sync(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.fdatasync()
