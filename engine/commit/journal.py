"""The journal of a log dir: many small appends made durable by one write and one sync (docs/formats/journal.md).

A `Journal` only allocates, except for `make_slot`: the syncer asks for a place for a commit batch, the commit log makes
slots, and frees them after a checkpoint. The journal is always optional: while no slot is ready, commit batches sync
their segment files. `engine.commit.replay` restores the journal's content at a start, before a `Journal` is created.
"""

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.commit.journal_format import (
    PAGE_SIZE_BYTES,
    SLOT_HEADER_SIZE_BYTES,
    Barrier,
    JournalEntry,
    barrier_frame,
    barrier_frame_size,
    commit_batch_frame,
    frame_size,
    slot_header,
    whole_pages,
)
from engine.files.filesystem import DiskFull, File, FileSystem, is_out_of_space

DIRECTORY = "journal"
SLOTS_MAX = 4
SUFFIX = ".journal"
_ZEROS = bytes(1 << 20)


class Slot(NamedTuple):
    """A journal file, full of zeros or of old frames, which is written from the front."""

    number: int
    slot_id: bytes
    file: File
    size_bytes: int
    is_current: bool = True  # of the format that is written


class JournalWrite(NamedTuple):
    """Buffers of a frame and their position in the file. They count after they are written and synced."""

    file: File
    position: int
    buffers: Sequence[memoryview | bytes | bytearray]
    size_bytes: int

    def write(self) -> None:
        self.file.write_at(self.buffers, self.position)


class Found(NamedTuple):
    """Result of a replay: free slots, the next sequence number, and messages for the operator."""

    slots: tuple[Slot, ...]
    next_sequence: int
    problems: tuple[str, ...]


class Journal:
    """Allocator of places for frames. All methods except `make_slot` are for the loop and do no I/O.

    `found`: result of the replay; a checkpoint with its sequence number must have been synced since. `on_need`: called
    when a slot is full or missing, so that a checkpoint or another slot is needed.

    One frame at a time: the next one is reserved after the one before was synced, or the log dir is offline.
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
        self._ready = [slot for slot in found.slots if slot.is_current and slot.size_bytes == slot_size_bytes]
        self._outdated = [slot for slot in found.slots if slot not in self._ready]
        self._last_number = max((slot.number for slot in found.slots), default=-1)

    def reserve(self, entries: Sequence[JournalEntry]) -> JournalWrite | None:
        """Reserve a place for a commit batch; None: there is none, and its segment files must be synced instead."""
        size_bytes = frame_size(entries)
        slot = self._slot_for(size_bytes)
        if slot is None:
            return None
        return self._write(slot, commit_batch_frame(slot.slot_id, self.next_sequence, entries), size_bytes)

    def reserve_barrier(self, barriers: Sequence[Barrier]) -> JournalWrite | None:
        """Reserve a place for barriers; None: there is none, and a checkpoint must do their work."""
        size_bytes = barrier_frame_size(len(barriers))
        slot = self._slot_for(size_bytes)
        if slot is None:
            return None
        return self._write(slot, [barrier_frame(slot.slot_id, self.next_sequence, barriers)], size_bytes)

    def _slot_for(self, size_bytes: int) -> Slot | None:
        current = self._current
        if current is not None and self._position + size_bytes <= current.size_bytes:
            return current
        if PAGE_SIZE_BYTES + size_bytes > self._slot_size_bytes:
            return None
        if self._ready:
            self.rotate()
            self._current = self._ready.pop(0)
            self._position = PAGE_SIZE_BYTES
        self._is_wanting = not self._ready
        self._on_need()
        return self._current if self._position == PAGE_SIZE_BYTES else None

    def _write(self, slot: Slot, buffers: Sequence[memoryview | bytes], size_bytes: int) -> JournalWrite:
        end = min(self._position + whole_pages(size_bytes), slot.size_bytes)
        filling = _ZEROS[: end - self._position - size_bytes]
        write = JournalWrite(slot.file, self._position, [*buffers, filling], end - self._position)
        self._position = end
        self.next_sequence += 1
        return write

    def rotate(self) -> None:
        """Retire the current slot, so that a checkpoint can free it."""
        if self._current is not None:
            self.retired.append(self._current)
            self._current = None

    def release(self, slots: Sequence[Slot]) -> None:
        """Reuse these retired slots: a synced checkpoint has a sequence number above all their frames."""
        for slot in slots:
            self.retired.remove(slot)
            self._ready.append(slot)

    @property
    def needs_slot(self) -> bool:
        """Whether another slot should be made: none is ready, one was needed, and fewer than SLOTS_MAX are in use."""
        in_use = len(self.retired) + (self._current is not None)
        return self._is_wanting and not self._ready and in_use < SLOTS_MAX

    def make_slot(self) -> Slot:
        """Make a new slot, with durable name and content; runs on a worker. Raises OSError, DiskFull without room."""
        for slot in self._outdated:
            self._filesystem.unlink(f"{self._directory}/{slot.number}{SUFFIX}")
        self._outdated.clear()
        # A slot must not take the last space, even for a moment: an append written halfway takes the log dir offline.
        if self._filesystem.usage(self._directory).available_bytes < 2 * self._slot_size_bytes:
            raise DiskFull(errno.ENOSPC, "no room for a journal slot")
        slot_id = self._new_id()
        number = self._last_number + 1
        name = f"{number}{SUFFIX}"
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
            self._filesystem.unlink(temporary)  # leave the space to appends
            raise DiskFull(error.errno, error.strerror) from error
        self._filesystem.rename(temporary, f"{self._directory}/{name}")
        self._filesystem.sync_dir(self._directory)
        return Slot(number, slot_id, file, self._slot_size_bytes)

    def add_slot(self, slot: Slot) -> None:
        """Use a slot that `make_slot` has made."""
        self._last_number = slot.number
        self._ready.append(slot)
