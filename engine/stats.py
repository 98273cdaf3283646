"""What the engine counts, as plain numbers that its hot paths can afford; whoever shows them reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """Why a segment goes."""

    LOG_START = "log_start"  # its records were deleted before
    SIZE = "size"  # retention.bytes
    TIME = "time"  # retention.ms
    SPACE = "space"  # disk.max.used.ratio


@dataclass(slots=True)
class PassStats:
    """Of one pass of the cleaner over a log. `buffer_ratio`: how full its keys have made the room for them."""

    read_bytes: int = 0  # of segments made anew
    written_bytes: int = 0
    buffer_ratio: float = 0.0
    duration_s: float = 0.0


@dataclass(slots=True)
class CleanerStats:
    """Of compaction, since the start; passes that came to nothing are left out."""

    passes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    last: PassStats = field(default_factory=PassStats)
    dirtiest_ratio: float = 0.0  # of the logs it might compact, whether they are due or not
    looked_at_s: float | None = None  # by trio's clock, for something to do
    given_up: Counter[str] = field(default_factory=Counter)  # logs that are not compacted any more, by log dir

    def note(self, done: PassStats) -> None:
        """A pass came to its end."""
        self.passes += 1
        self.read_bytes += done.read_bytes
        self.written_bytes += done.written_bytes
        self.last = done


@dataclass(slots=True)
class StoreStats:
    """Over all log dirs, since the start."""

    cleaner: CleanerStats = field(default_factory=CleanerStats)
    removed_segments: Counter[Reason] = field(default_factory=Counter)
    removed_bytes: Counter[Reason] = field(default_factory=Counter)
    sealed_segments: int = 0
    scrubbed_bytes: int = 0  # read to be sealed, or again
    damage_found: int = 0  # by that

    def note_removed(self, reason: Reason, size_bytes: int) -> None:
        """A segment went."""
        self.removed_segments[reason] += 1
        self.removed_bytes[reason] += size_bytes


# Upper bounds of the buckets; the last bucket has none.
BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(slots=True)
class Durations:
    """How long something took, since the start. `in_bucket[i]` counts those up to BUCKETS_S[i], not cumulated."""

    sum_s: float = 0.0
    in_bucket: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))

    @property
    def count(self) -> int:
        return sum(self.in_bucket)

    def note(self, duration_s: float) -> None:
        self.sum_s += duration_s
        self.in_bucket[bisect_left(BUCKETS_S, duration_s)] += 1


@dataclass(slots=True)
class CommitStatistics:
    """Of the rounds of a log dir: from taking the appends to answering them, and of that for making them durable."""

    rounds: Durations = field(default_factory=Durations)
    syncs: Durations = field(default_factory=Durations)


class LogDirStatistics(NamedTuple):
    """What a log dir holds and does. `unflushed_size_bytes` are in segment files and not synced there: those of topics
    that sync lie in the journal meanwhile, those of others may be lost by a power cut. `names`: of the directories of
    partitions there, opened or not. `behind_s`: for how long its partitions wait for their roles; None: they do not."""

    path: str
    offline_reason: str | None
    partition_count: int
    unflushed_size_bytes: int
    commits: CommitStatistics
    directory_id: str = ""
    names: Collection[str] = ()
    stray_count: int = 0
    stray_size_bytes: int = 0
    behind_s: float | None = None


class PartitionStatistics(NamedTuple):
    """How much of a partition there is.

    `oldest_transaction_ms`: when the producer whose transaction is open for longest has last written, -1 if none is.
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    oldest_transaction_ms: int
    segment_count: int
    size_bytes: int
