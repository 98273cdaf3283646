"""The legal content of a partition after a crash: its history, dated by the number of file operations so far.

All batches that were acknowledged, or shown to a reader, before the crash must be there; requested ones may be. A batch
is there with all its bytes or not at all, and truncated or deleted batches stay away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engine.api import Outcome, PendingAppend, TopicIdPartition
from engine.commit.journal import DIRECTORY as JOURNAL
from engine.commit.journal_format import PAGE_SIZE_BYTES, SLOT_ID_SIZE_BYTES, Barrier, BarrierKind, frames
from engine.logs.segments.swap import SWAP_SUFFIX
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.testing.simulated_loss import Operation

NEVER = 2**63 - 1


class Batch(NamedTuple):
    """A batch as it was sent, and its offsets."""

    base_offset: int
    timestamps_ms: tuple[int, ...]
    sent: bytes
    leader_epoch: int
    producer_id: int = -1
    sequence: int = -1
    keyed: tuple[tuple[bytes, bytes | None], ...] = ()  # in a compacted topic
    outcome: Outcome | None = None  # of a marker

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps_ms)


Content = tuple[Batch, ...]


class Legal(NamedTuple):
    """The legal states of a partition: one of these contents, and a log start from the first to the last of `starts`.

    `stable_offset`: a last stable offset that readers have seen.
    """

    contents: Sequence[Content]
    starts: Sequence[int]
    stable_offset: int = 0


NOTHING = Legal([()], [0])


class SeenLog(Protocol):
    """The offsets of a partition that readers can see."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


@dataclass
class Event:
    """An append, a truncation or a reset, and the content of the partition after it."""

    content: Content
    asked_at: int
    is_cut: bool = False
    decided_at: int = NEVER  # the barrier of a truncation or reset is durable: the change will be done
    answered_at: int = NEVER
    pending: list[PendingAppend] = field(default_factory=list)


@dataclass(eq=False)
class Timeline:
    """The history of a partition over one or several runs of a broker. `before`: legal states until `opened_at`."""

    partition: TopicIdPartition
    is_async: bool
    opened_at: int
    content: Content = ()
    start: int = 0
    before: Legal = NOTHING
    events: list[Event] = field(default_factory=list)
    starts: list[tuple[int, int, int]] = field(default_factory=list)  # offset, operation of request and of answer
    stable: list[tuple[int, int]] = field(default_factory=list)  # operation, last stable offset
    delete_asked_at: int = NEVER
    delete_answered_at: int = NEVER
    log: SeenLog | None = None
    is_compacted: bool = False

    @property
    def latest(self) -> Content:
        return self.events[-1].content if self.events else self.content

    @property
    def end_offset(self) -> int:
        end_offset = self.latest[-1].next_offset if self.latest else 0
        return max(end_offset, self.latest_start)  # an async topic may have lost all records below the log start

    @property
    def latest_start(self) -> int:
        return self.starts[-1][0] if self.starts else self.start

    def look(self, now: int) -> None:
        """Note the answers and the offsets shown to readers before the operation with this number."""
        if self.log is None or self.delete_asked_at < NEVER:
            return
        shown = self.log.high_watermark
        if not self.stable or self.stable[-1][1] != self.log.last_stable_offset:
            self.stable.append((now, self.log.last_stable_offset))
        for event in reversed(self.events):
            if min(event.answered_at, event.decided_at) < NEVER:
                break
            is_shown = not event.is_cut and event.content[-1].next_offset <= shown
            if is_shown or any(one.is_settled for one in event.pending):
                event.answered_at = now
        if self.starts:
            offset, asked_at, answered_at = self.starts[-1]
            if answered_at == NEVER and self.log.log_start_offset >= offset:
                self.starts[-1] = (offset, asked_at, now)

    def decide(self, barrier: Barrier, now: int) -> None:
        """Note a durable barrier (RULES J2): a start after a crash completes the announced change in any case."""
        if (barrier.topic_id, barrier.partition) != (self.partition.topic_id, self.partition.partition):
            return
        if barrier.kind in (BarrierKind.TRUNCATED, BarrierKind.RESET):
            self.events[-1].decided_at = min(self.events[-1].decided_at, now)
        if barrier.kind in (BarrierKind.LOG_START, BarrierKind.RESET):
            offset, asked_at, answered_at = self.starts[-1]
            self.starts[-1] = (offset, asked_at, min(answered_at, now))

    def legal(self, now: int, *, power_cut: bool) -> Legal:
        """The legal states after exactly `now` operations. After a power cut an async topic promises only the order."""
        if now < self.opened_at:
            return self.before
        contents = [self.content]
        starts = [self.start]
        promises_all = not (self.is_async and power_cut)
        for event in self.events:
            if event.asked_at > now:
                break
            if event.answered_at <= now and (event.is_cut or promises_all):  # a truncation syncs the rest of the log
                contents.clear()
            elif event.decided_at <= now:
                contents = [] if promises_all else [one for one in contents if len(one) < len(event.content)]
            contents.append(event.content)
        for offset, asked_at, answered_at in self.starts:
            if answered_at <= now:
                starts.clear()
            if asked_at <= now:
                starts.append(offset)
        was_cut = any(event.is_cut and event.asked_at <= now for event in self.events)
        stable = [offset for at, offset in self.stable if at <= now]
        return Legal(contents, starts, stable[-1] if stable and promises_all and not was_cut else 0)


@dataclass
class RecordingFileSystem(SimulatedFileSystem):
    """A simulated disk that tells the timelines the number of each operation before it."""

    timelines: list[Timeline] = field(default_factory=list)
    barriers_at: set[int] = field(default_factory=set)  # numbers of the operations after a new barrier or a swap

    def do(self, operation: Operation) -> None:
        self.look()
        super().do(operation)
        if operation.path.endswith(SWAP_SUFFIX):
            self.barriers_at.add(len(self.operations))
        if self.timelines and operation.kind == "fdatasync" and f"/{JOURNAL}/" in operation.path:
            for barrier in self._barriers_synced(operation):
                self.barriers_at.add(len(self.operations))
                for timeline in self.timelines:
                    timeline.decide(barrier, len(self.operations))

    def _barriers_synced(self, sync: Operation) -> list[Barrier]:
        """The barriers of the frame that was written last: each frame is synced before the next one."""
        written = next(
            (one for one in reversed(self.operations) if one.kind == "write" and one.inode == sync.inode), None
        )
        if written is None or written.position < PAGE_SIZE_BYTES:
            return []
        found = frames(bytes(PAGE_SIZE_BYTES) + written.data, written.data[:SLOT_ID_SIZE_BYTES])
        return [barrier for frame in found for barrier in frame.barriers]

    def look(self) -> None:
        for timeline in self.timelines:
            timeline.look(len(self.operations))
