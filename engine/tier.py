"""The engine's face to a remote tier: segments that it may copy, and where segments are read that have no file here
any more. Part of the public face, beside `engine.api`.

A source of its own, beside the disk: what goes wrong with it is not the disk's fault, and takes no log dir offline.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, Protocol, TypeVar

from engine.api import NO_TIMESTAMP_MS, FileRange, TopicPartition
from engine.errors import StorageError
from engine.files.filesystem import File, FileSystem
from engine.log_config import LogConfig

__all__ = [
    "INDEX_ROW",
    "ColdFile",
    "CopiedSegment",
    "CopyLag",
    "File",
    "FileSystem",
    "NoTier",
    "SegmentFacts",
    "SegmentTier",
    "TierableLog",
]

T = TypeVar("T")

INDEX_ROW = Struct(">qqq")  # where a batch begins: offset, position, greatest timestamp of the segment so far


class SegmentFacts(NamedTuple):
    """What there is to know of a sealed segment without its bytes. Two with one digest hold the same batches.

    `size_bytes` is that of its file; timestamps are -1 when no record has one, `leader_epoch` is that of its last
    batch.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    records: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int
    digest: bytes
    has_aborted: bool
    min_timestamp_ms: int = NO_TIMESTAMP_MS  # of those that a broker's clock has set; -1: others are among them


class CopiedSegment(NamedTuple):
    """A sealed segment as a tier takes it: every batch was checked, and it is what was sealed.

    `checksum` is the CRC-32C of the file. The rest is what a log dir knows of it beside the file, in the formats it has
    there (docs/formats/tier.md); `index_rows` are INDEX_ROWs.
    """

    facts: SegmentFacts
    file: File
    checksum: int
    footer: bytes
    index_rows: bytes
    aborted: bytes
    epochs: Sequence[tuple[int, int]]  # of the log up to its end: leader epoch, first offset
    producers: bytes


class CopyLag(NamedTuple):
    """What waits to be copied, from offset `first` up to `end`, which are equal when nothing does; `size_bytes` is of
    files."""

    segments: int = 0
    size_bytes: int = 0
    first: int = 0
    end: int = 0


class TierableLog(Protocol):
    """One partition, led by this broker or followed, as a tier sees it."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def is_open(self) -> bool:
        """Whether this is the partition that is served; another object may be."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def local_start_offset(self) -> int: ...
    @property
    def tiered_to(self) -> int | None:
        """Below it the tier has all; None: the log is in no tier."""

    @property
    def is_tier_confirmed(self) -> bool:
        """Whether the tier has said so since the log was opened: only then its files may go."""

    @property
    def knows_cold(self) -> bool:
        """Whether it is known what lies between the log start and the local start."""

    def to_copy(self) -> Sequence[tuple[int, int]]:
        """(Base, end) of the segments that may be copied, the oldest first: sealed, and below the last stable offset,
        from `tiered_to` on."""

    def copy_lag(self) -> CopyLag:
        """How much that is."""

    async def copy(self, base_offset: int) -> CopiedSegment:
        """Check it and tell all of it. Raises CorruptMessage, and StorageError: also when it is not there any more."""

    async def facts_of(self, base_offset: int) -> SegmentFacts:
        """Without reading it. Raises as `copy` does."""

    def note_tiered(self, offset: int) -> None:
        """The tier has all below `offset`, or will: then that is where the log begins. Raises OffsetOutOfRange,
        StorageError: it is not open any more."""

    async def drop_local(self, offset: int) -> None:
        """Have no files below `offset`. Raises OffsetOutOfRange, CorruptMessage, StorageError."""

    async def give_up_cold(self) -> None:
        """The log begins where its files do: what only the tier has is no part of it any more. Raises StorageError."""

    def note_untiered(self) -> None:
        """The tier has nothing of it any more, nor is it to."""

    def know_cold(self, segments: Mapping[int, SegmentFacts]) -> bool:
        """Learn by base offset what is between the log start and the local start, if that fits; whether it does."""


class ColdFile(File, Protocol):
    """A segment in a remote tier, with the positions its file had. What is here of it, by its own account, is given at
    once, by `read_cached` and to a socket, whatever happens to the tier."""

    def has_waited(self) -> bool:
        """Whether this job had to wait for some of what is read already: the rest may come with another one."""

    def here_until(self, position: int) -> int:
        """Up to where what follows `position` is here now, as far as a reader who goes on should look at once."""

    def hold(self, position: int, end: int) -> object:
        """What lies between, which this job has read: it stays here for as long as the result lives."""

    def note_checked(self, position: int, end: int) -> None:
        """What lies between is held, and is right: it counts as here for as long as what was read is."""

    def parts(self, position: int, size_bytes: int) -> list[FileRange]:
        """Where these bytes are, which are here: for as long as one of the ranges lives. NotLoaded: not any more."""


class SegmentTier(Protocol):
    """A remote tier as whoever reads a log sees it."""

    def open(self, partition: TopicPartition, base_offset: int) -> ColdFile:
        """A segment, to be read only; within a job of `run`, as `read_at` of it. FileNotFoundError: there is no such
        segment (any more)."""

    def aborted(self, partition: TopicPartition, base_offset: int) -> bytes:
        """The aborted index of a segment, as in its file (docs/formats/aborted-index.md); within a job, as above."""

    def index_rows(self, partition: TopicPartition, base_offset: int) -> bytes:
        """INDEX_ROWs of a segment; within a job, as above."""

    async def run(self, job: Callable[[], T]) -> T:
        """Do work on such files where it may wait; it may be begun more than once, and must change nothing. Raises
        TierUnreachable, StorageError when the tier lacks what it had, and what the job raises otherwise, but no OSError
        other than FileNotFoundError. Cancelled, what is on its way still comes."""


class NoTier:
    """Nothing is in it."""

    def open(self, partition: TopicPartition, base_offset: int) -> ColdFile:
        raise FileNotFoundError

    def aborted(self, partition: TopicPartition, base_offset: int) -> bytes:
        raise FileNotFoundError

    def index_rows(self, partition: TopicPartition, base_offset: int) -> bytes:
        raise FileNotFoundError

    async def run(self, job: Callable[[], T]) -> T:
        raise StorageError("what was asked for is in a remote tier, and there is none")
