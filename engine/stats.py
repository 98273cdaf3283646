"""Counters of the engine: plain numbers, cheap enough for its hot paths. The metrics read them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """Reason for the removal of a segment by retention."""

    LOG_START = "log_start"  # its records were deleted before
    SIZE = "size"  # retention.bytes
    TIME = "time"  # retention.ms
    SPACE = "space"  # disk.max.used.ratio


@dataclass(slots=True)
class PassStats:
    """Counters of one pass of the cleaner over a log. `buffer_ratio`: used part of the room for keys."""

    read_bytes: int = 0  # of the segments that were rewritten
    written_bytes: int = 0
    buffer_ratio: float = 0.0
    duration_s: float = 0.0


@dataclass(slots=True)
class CleanerStats:
    """Counters of compaction since the start; passes without a result are left out."""

    passes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    last: PassStats = field(default_factory=PassStats)
    dirtiest_ratio: float = 0.0  # greatest dirty ratio of the compacted logs, whether they are due or not
    looked_at_s: float | None = None  # time of the last search for due logs, by trio's clock
    given_up: Counter[str] = field(default_factory=Counter)  # number of logs that are no longer compacted, by log dir

    def note(self, done: PassStats) -> None:
        """Count a complete pass."""
        self.passes += 1
        self.read_bytes += done.read_bytes
        self.written_bytes += done.written_bytes
        self.last = done


@dataclass(slots=True)
class StoreStats:
    """Counters of all log dirs together, since the start."""

    cleaner: CleanerStats = field(default_factory=CleanerStats)
    removed_segments: Counter[Reason] = field(default_factory=Counter)
    removed_bytes: Counter[Reason] = field(default_factory=Counter)
    sealed_segments: int = 0
    scrubbed_bytes: int = 0  # read before sealing, and by the scrub
    damage_found: int = 0  # by these reads

    def note_removed(self, reason: Reason, size_bytes: int) -> None:
        """Count a removed segment."""
        self.removed_segments[reason] += 1
        self.removed_bytes[reason] += size_bytes


# Upper bounds of the buckets; the last bucket has none.
BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(slots=True)
class Durations:
    """Histogram of durations since the start. `in_bucket[i]` counts durations up to BUCKETS_S[i], not cumulated."""

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
    """Durations of the commit batches of a log dir. `commit_batches`: from taking the appends to answering them;
    `syncs`: the part of it that makes them durable."""

    commit_batches: Durations = field(default_factory=Durations)
    syncs: Durations = field(default_factory=Durations)


class LogDirStatistics(NamedTuple):
    """Statistics of a log dir.

    `unflushed_size_bytes`: bytes in segment files that are not synced there. With `flush.policy=sync` the journal has
    them, too; with `async` a power cut may lose them. `names`: directory names of the partitions there, opened or not.
    `behind_s`: seconds for which the log dir has been behind, because its partitions wait for their roles; None: it is
    not behind.
    """

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
    """Offsets and size of a partition.

    `oldest_transaction_ms`: time of the last write of the producer whose transaction is open for longest; -1: none is
    open.
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
