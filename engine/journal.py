"""The journal of a log dir: many small appends made durable by one write and one sync (docs/formats/journal.md).

A `Journal` keeps books and does no I/O of its own: the lane asks for a place for its round, the log dir has slots made
and, once a checkpoint covers them, given back. It is always optional: while no slot is ready, rounds sync their files.
`replay` runs before any partition is opened.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from engine.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey
from engine.errors import StoreRefused
from engine.filesystem import DiskFull, File, FileSystem, is_out_of_space
from engine.journal_format import (
    SLOT_HEADER_SIZE_BYTES,
    Barrier,
    BarrierKind,
    Frame,
    JournalEntry,
    Row,
    SlotRefused,
    barrier_frame,
    barrier_frame_size,
    batches_below,
    frame_size,
    frames,
    has_sound_batches,
    parse_slot_header,
    round_frame,
    slot_header,
)
from engine.segment import Cut, cut_off, segment_name

DIRECTORY = "journal"
SLOTS_MAX = 4
_SUFFIX = ".journal"
_ZEROS = bytes(1 << 20)


class Slot(NamedTuple):
    """A file full of zeros, or of left-overs, to be written from the front."""

    number: int
    slot_id: bytes
    file: File
    size_bytes: int


class JournalWrite(NamedTuple):
    """Buffers and their place. Written and synced, they count."""

    file: File
    position: int
    buffers: Sequence[memoryview | bytes | bytearray]
    size_bytes: int

    def write(self) -> None:
        self.file.write_at(self.buffers, self.position)


class Found(NamedTuple):
    """What a replay leaves: empty slots, the sequence that comes next, and what was wrong, one line each."""

    slots: tuple[Slot, ...]
    next_sequence: int
    problems: tuple[str, ...]


class Journal:
    """Where the next frame goes. All methods but `make_slot` are for the loop and do no I/O.

    `found` is what the replay left; a checkpoint with its sequence must have been synced since. `on_need` is called
    when a slot is full or missing: a checkpoint, or another slot, is wanted.

    One frame at a time: the next is reserved when the one before was synced, or the log dir is offline.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        log_dir: str,
        slot_size_bytes: int,
        found: Found,
        new_id: Callable[[], bytes],
        on_need: Callable[[], None],
    ) -> None:
        self.next_sequence = found.next_sequence
        self.retired: list[Slot] = []
        self._filesystem = filesystem
        self._directory = f"{log_dir}/{DIRECTORY}"
        self._slot_size_bytes = slot_size_bytes
        self._new_id = new_id
        self._on_need = on_need
        self._current: Slot | None = None
        self._position = 0
        self._is_wanting = False
        self._ready = [slot for slot in found.slots if slot.size_bytes == slot_size_bytes]
        self._last_number = max((slot.number for slot in found.slots), default=-1)

    def reserve(self, entries: Sequence[JournalEntry]) -> JournalWrite | None:
        """A place for a round; None when there is none, and its files must be synced instead."""
        slot = self._slot_for(frame_size(entries))
        if slot is None:
            return None
        return self._write(slot, round_frame(slot.slot_id, self.next_sequence, entries), frame_size(entries))

    def reserve_barrier(self, barriers: Sequence[Barrier]) -> JournalWrite | None:
        """A place for barriers; None when there is none: a checkpoint must then do their work."""
        size_bytes = barrier_frame_size(len(barriers))
        slot = self._slot_for(size_bytes)
        if slot is None:
            return None
        return self._write(slot, [barrier_frame(slot.slot_id, self.next_sequence, barriers)], size_bytes)

    def _slot_for(self, size_bytes: int) -> Slot | None:
        current = self._current
        if current is not None and self._position + size_bytes <= current.size_bytes:
            return current
        if SLOT_HEADER_SIZE_BYTES + size_bytes > self._slot_size_bytes:
            return None
        if self._ready:
            self.rotate()
            self._current = self._ready.pop(0)
            self._position = SLOT_HEADER_SIZE_BYTES
        self._is_wanting = not self._ready
        self._on_need()
        return self._current if self._position == SLOT_HEADER_SIZE_BYTES else None

    def _write(self, slot: Slot, buffers: Sequence[memoryview | bytes], size_bytes: int) -> JournalWrite:
        write = JournalWrite(slot.file, self._position, buffers, size_bytes)
        self._position += size_bytes
        self.next_sequence += 1
        return write

    def rotate(self) -> None:
        """Write no more to the current slot, so that a checkpoint can free it."""
        if self._current is not None:
            self.retired.append(self._current)
            self._current = None

    def release(self, slots: Sequence[Slot]) -> None:
        """A synced checkpoint has a journal sequence above all frames of these retired slots: use them again."""
        for slot in slots:
            self.retired.remove(slot)
            self._ready.append(slot)

    @property
    def needs_slot(self) -> bool:
        """Whether another slot should be made: one was missed, none is ready, and there are not too many."""
        in_use = len(self.retired) + (self._current is not None)
        return self._is_wanting and not self._ready and in_use < SLOTS_MAX

    def make_slot(self) -> Slot:
        """For a worker: a new slot, durable by name and content. Raises OSError, DiskFull if there is no room."""
        slot_id = self._new_id()
        number = self._last_number + 1
        name = f"{number}{_SUFFIX}"
        temporary = f"{self._directory}/{name}.tmp"
        file = self._filesystem.open(temporary, create=True)
        try:
            file.write_at([slot_header(slot_id, self._slot_size_bytes)], 0)
            for position in range(SLOT_HEADER_SIZE_BYTES, self._slot_size_bytes, len(_ZEROS)):
                file.write_at([_ZEROS[: self._slot_size_bytes - position]], position)
            file.fdatasync()
        except OSError as error:
            if not is_out_of_space(error):
                raise
            self._filesystem.unlink(temporary)  # somebody else needs what space there is
            raise DiskFull(error.errno, error.strerror) from error
        self._filesystem.rename(temporary, f"{self._directory}/{name}")
        self._filesystem.sync_dir(self._directory)
        return Slot(number, slot_id, file, self._slot_size_bytes)

    def add_slot(self, slot: Slot) -> None:
        """It was made: use it."""
        self._last_number = slot.number
        self._ready.append(slot)


# Start


def prepare_journal(
    filesystem: FileSystem, path: str, checkpoint: Checkpoint, directories: Callable[[], Mapping[PartitionKey, str]]
) -> tuple[Found, Checkpoint]:
    """Replay what is in the journal of log dir `path`, and tell what is known afterwards. For a worker.

    The checkpoint that is returned must be durable before the journal is used. `directories` finds the partitions by
    what their directories say; it is asked only when there is something to replay. Raises StoreRefused.
    """
    directory = f"{path}/{DIRECTORY}"
    if not filesystem.exists(directory):
        filesystem.make_dir(directory)
        filesystem.sync_dir(path)
        return Found((), checkpoint.journal_sequence, ()), checkpoint
    slots, problems = _open_slots(filesystem, directory)
    collected = _collect(slots, checkpoint.journal_sequence)
    if not collected:
        return Found(slots, checkpoint.journal_sequence, tuple(problems)), checkpoint
    replay = _Replay(filesystem, checkpoint, directories(), [frame for frame, _ in collected])
    for index, (frame, content) in enumerate(collected):
        replay.apply(frame, content, is_last=index == len(collected) - 1)
    replay.sync()
    after = Checkpoint(collected[-1][0].sequence + 1, replay.points)
    return Found(slots, after.journal_sequence, (*problems, *replay.problems)), after


def _open_slots(filesystem: FileSystem, directory: str) -> tuple[tuple[Slot, ...], list[str]]:
    """The sound slots; damaged ones are removed and reported, half made ones removed."""
    slots, problems = [], []
    for name in filesystem.list_dir(directory):
        path = f"{directory}/{name}"
        number = name.removesuffix(_SUFFIX)
        if not name.endswith(_SUFFIX) or not number.isdigit():
            filesystem.unlink(path)
            continue
        file = filesystem.open(path)
        try:
            header = parse_slot_header(file.read_at(0, SLOT_HEADER_SIZE_BYTES))
        except SlotRefused as error:
            raise StoreRefused(f"{path}: {error}; written by another version") from None
        if header is None or header[1] != file.size():
            problems.append(f"{path} is damaged: what it held of the last appends is lost, unless the segments have it")
            filesystem.unlink(path)
            continue
        slots.append(Slot(int(number), header[0], file, header[1]))
    filesystem.sync_dir(directory)
    return tuple(slots), problems


def _collect(slots: Sequence[Slot], from_sequence: int) -> list[tuple[Frame, bytes]]:
    """All frames that count, in order, each with the slot's content."""
    found = []
    for slot in slots:
        content = slot.file.read_at(0, slot.size_bytes)
        found += [(frame, content) for frame in frames(content, slot.slot_id) if frame.sequence >= from_sequence]
    return sorted(found, key=lambda pair: pair[0].sequence)


def end_by(points: dict[PartitionKey, PartitionCheckpoint], barrier: Barrier) -> None:
    """Change what is known of a partition into what holds once `barrier` counts."""
    key = barrier.topic_id, barrier.partition
    point = points.get(key, PartitionCheckpoint())
    if barrier.kind is BarrierKind.DELETED:
        points.pop(key, None)
    elif barrier.kind is BarrierKind.LOG_START:
        points[key] = point._replace(log_start_offset=max(point.log_start_offset, barrier.offset))
    else:
        epochs = tuple(start for start in point.epochs if start.start_offset < barrier.offset)
        points[key] = point._replace(recovery_point=min(point.recovery_point, barrier.offset), epochs=epochs)


class _Replay:
    """Frames in order onto segment files and recovery points."""

    def __init__(
        self,
        filesystem: FileSystem,
        checkpoint: Checkpoint,
        directories: Mapping[PartitionKey, str],
        collected: Sequence[Frame],
    ) -> None:
        self.points = dict(checkpoint.partitions)
        self.problems: list[str] = []
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
            return  # torn: nobody was told that it counts
        for row, sound in zip(frame.rows, is_sound, strict=True):
            if not sound:
                where = f"offsets {row.base_offset} to {row.end_offset - 1} of partition {row.partition}"
                self.problems.append(f"journal frame {frame.sequence} is damaged: {where} of {row.topic_id.hex()}")
            self._apply_row(frame.sequence, row, content, is_sound=sound)
        for barrier in frame.barriers:
            if barrier.kind is BarrierKind.TRUNCATED:
                self._truncate((barrier.topic_id, barrier.partition), barrier)
            end_by(self.points, barrier)

    def _apply_row(self, sequence: int, row: Row, content: bytes, *, is_sound: bool) -> None:
        key = row.topic_id, row.partition
        for barrier_sequence, barrier in self._barriers.get(key, ()):
            if sequence < barrier_sequence:
                if barrier.kind is BarrierKind.DELETED:
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
        if self._file(key, barrier.segment_base_offset) is not None:
            cut = Cut(barrier.offset, barrier.segment_base_offset, barrier.position)
            cut_off(self._filesystem, self._directories[key], cut)

    def _file(self, key: PartitionKey, segment_base_offset: int) -> File | None:
        """None when the segment is not there: whatever ended it, or damage that opening the log will find."""
        which = key, segment_base_offset
        if which not in self._files:
            directory = self._directories.get(key)
            path = f"{directory}/{segment_name(segment_base_offset)}"
            exists = directory is not None and self._filesystem.exists(path)
            self._files[which] = self._filesystem.open(path) if exists else None
        return self._files[which]

    def sync(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.fdatasync()
