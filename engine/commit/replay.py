"""Putting back what only the journal made durable (RULES J3), before any partition of a log dir is opened.

Physical: bytes go where the frames say they were, and what the barriers ended stays ended. What became of the logs is
for opening them to judge, by the recovery points this returns (docs/formats/journal.md). Runs on a worker.
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
    has_begun_frame,
    has_sound_batches,
    parse_slot_header,
)
from engine.errors import StoreRefused
from engine.files.filesystem import File, FileSystem, Unreadable
from engine.logs.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey
from engine.logs.segment import Cut, cut_off, segment_name
from engine.logs.shortening import begin_anew

_LOST = "what it held of the last appends is lost, unless the segments have it"


class Directories(NamedTuple):
    """Of partitions, by what they say whose they are; `unreadable`: why the disk cannot tell of others, by number."""

    by_owner: Mapping[PartitionKey, str]
    unreadable: Mapping[int, Unreadable]

    def of(self, key: PartitionKey) -> str | None:
        """None when it has none. Raises Unreadable if one that cannot be told of may be it: what was acknowledged has
        to be put back there, when the disk can, and not to be forgotten."""
        if key not in self.by_owner and key[1] in self.unreadable:
            raise self.unreadable[key[1]]
        return self.by_owner.get(key)


class _Collected(NamedTuple):
    """A frame that counts, with the content of its slot."""

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
    """Replay what is in the journal of log dir `path`, and tell what is known afterwards.

    The checkpoint that is returned must be durable before the journal is used. `directories` finds the partitions by
    what their directories say; it is asked only when there is something to replay. Raises StoreRefused, and as
    `Directories.of`.
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
        slot.file.fdatasync()  # which a killed process may not have done: no effect of a frame must outlive the frame
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
    """The slots, what is lost of them, and what only looked lost. Half made ones are removed, and hopeless ones."""
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
    """What a slot begins with, with zeros for pages that the disk cannot read, and how many bytes these are."""
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
    """Whether the header of a slot was damaged and could be told from what is behind it."""
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


def _collect(slots: Sequence[Slot], from_sequence: int) -> tuple[list[_Collected], list[str], list[str]]:
    """All frames that count, in order; what is lost, and a line for each that was begun behind them."""
    found, problems, remarks = [], [], []
    for slot in slots:
        content, unreadable_bytes = _readable(slot.file, slot.size_bytes)
        if unreadable_bytes:
            problems.append(f"the disk cannot read {unreadable_bytes} bytes of slot {slot.number}: {_LOST}")
        end = PAGE_SIZE_BYTES
        for frame in frames(content, slot.slot_id):
            if frame.sequence >= from_sequence:
                found.append(_Collected(frame, content))
                end = frame.end
        if has_begun_frame(content, slot.slot_id, end):
            remarks.append(_incomplete(f"behind position {end} of slot {slot.number}"))
    return sorted(found, key=lambda one: one.frame.sequence), problems, remarks


def _incomplete(which: str) -> str:
    return f"the journal frame {which} is incomplete, as a crash leaves the last one: dropped, as not acknowledged"


def end_by(points: dict[PartitionKey, PartitionCheckpoint], barrier: Barrier) -> None:
    """Change what is known of a partition into what holds once `barrier` counts."""
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
        # What producers did last may be cut: what they did before, below where they were looked for, counts again.
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
    """Frames in order onto segment files and recovery points."""

    def __init__(
        self,
        filesystem: FileSystem,
        checkpoint: Checkpoint,
        directories: Directories,
        collected: Sequence[Frame],
    ) -> None:
        self.points = dict(checkpoint.partitions)
        self.problems: list[str] = []  # something may be lost
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
            end_by(self.points, barrier)

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
        """Do again what may not have been done: nothing was appended before the next checkpoint."""
        directory = self._directories.of(key)
        if directory is not None and self._file(key, barrier.segment_base_offset) is not None:
            cut = Cut(barrier.offset, barrier.segment_base_offset, barrier.position)
            cut_off(self._filesystem, directory, cut)

    def _reset(self, key: PartitionKey, barrier: Barrier) -> None:
        """As `_truncate`. Rows of before were left out."""
        directory = self._directories.of(key)
        if directory is not None:
            begin_anew(self._filesystem, directory, barrier.offset).fdatasync()
            self._files = {which: file for which, file in self._files.items() if which[0] != key}

    def _file(self, key: PartitionKey, segment_base_offset: int) -> File | None:
        """None when the segment is not there: whatever ended it, or damage that opening the log will find."""
        which = key, segment_base_offset
        if which not in self._files:
            directory = self._directories.of(key)
            path = f"{directory}/{segment_name(segment_base_offset)}"
            exists = directory is not None and self._filesystem.exists(path)
            self._files[which] = self._filesystem.open(path) if exists else None
        return self._files[which]

    def sync(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.fdatasync()
