"""The engine's interface to a remote tier: segments that it may copy, and reads of segments without a local file.
Part of the public interface, beside `engine.api`.

Failures of the tier are no failures of the disk, and take no log dir offline.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, Protocol, TypeVar

from engine.api import NO_TIMESTAMP_MS, FileRange, TopicIdPartition
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
    """Facts about a sealed segment without its bytes. Two segments with the same digest hold the same batches.

    `size_bytes`: of its file. Timestamps are -1 if no record has one. `leader_epoch`: of its last batch.
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
    """A sealed segment for the upload: every batch was checked, and the segment equals its footer.

    `checksum`: CRC-32C of the file. The other fields have the formats that they have in a log dir
    (docs/formats/tier.md); `index_rows` are INDEX_ROWs.
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
    """Segments that wait to be copied, from offset `first` up to `end` (equal: none); `size_bytes`: of their files."""

    segments: int = 0
    size_bytes: int = 0
    first: int = 0
    end: int = 0


class TierableLog(Protocol):
    """A partition that this broker leads or follows, as the remote tier sees it."""

    @property
    def partition(self) -> TopicIdPartition: ...
    @property
    def is_open(self) -> bool:
        """Whether the partition is still served by this object; it may have been opened again as another one."""

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
        """The offset up to which the tier has the log; None: the log is in no tier."""

    @property
    def is_tier_confirmed(self) -> bool:
        """Whether the tier has confirmed `tiered_to` since the log was opened: only then local files may be removed."""

    @property
    def knows_cold(self) -> bool:
        """Whether the segments between the log start and the local start are known."""

    def to_copy(self) -> Sequence[tuple[int, int]]:
        """(Base, end) offsets of the segments that may be copied, the oldest first: sealed, below the last stable
        offset, from `tiered_to` on."""

    def copy_lag(self) -> CopyLag:
        """The number and size of the segments of `to_copy`."""

    async def copy(self, base_offset: int) -> CopiedSegment:
        """Check a segment and return its file and metadata. Raises CorruptMessage, and StorageError, also if the
        segment no longer exists."""

    async def facts_of(self, base_offset: int) -> SegmentFacts:
        """Return the facts of a segment without reading it. Raises as `copy` does."""

    def note_tiered(self, offset: int) -> None:
        """Note that the tier has all below `offset`. Raises OffsetOutOfRange, and StorageError if the log is not
        open."""

    async def drop_local(self, offset: int) -> None:
        """Remove the local files of segments below `offset`. Raises OffsetOutOfRange, CorruptMessage, StorageError."""

    async def give_up_cold(self) -> None:
        """Move the log start to the local start, so that segments that only the tier has leave the log. Raises
        StorageError."""

    def note_untiered(self) -> None:
        """Note that the log is in no tier any more."""

    def know_cold(self, segments: Mapping[int, SegmentFacts]) -> bool:
        """Note the segments between the log start and the local start, by base offset. False: they do not fit."""


class ColdFile(File, Protocol):
    """A segment in a remote tier, with the positions of its file.

    The parts of it that are in the local cache can be read at once, by `read_cached` and by a socket, even if the tier
    cannot be reached.
    """

    def has_waited(self) -> bool:
        """Whether this job has already waited for the tier; it may then leave the rest to another job."""

    def here_until(self, position: int) -> int:
        """The end of the cached bytes from `position` on, as far as a sequential reader should check them at once."""

    def hold(self, position: int, end: int) -> object:
        """Keep the bytes between, which this job has read, in the cache for as long as the result lives."""

    def note_checked(self, position: int, end: int) -> None:
        """Note that the bytes between, which are held, are checked: they count as cached for as long as they stay."""

    def parts(self, position: int, size_bytes: int) -> list[FileRange]:
        """File ranges of these cached bytes, which stay for as long as one of the ranges lives. Raises NotLoaded if
        they are no longer cached."""


class SegmentTier(Protocol):
    """A remote tier, as readers of a log see it."""

    def open(self, partition: TopicIdPartition, base_offset: int) -> ColdFile:
        """Open a segment for reading. Call this, and `read_at` of the file, only within a job of `run`. Raises
        FileNotFoundError if the tier has no such segment (any more)."""

    def aborted(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        """The aborted index of a segment, as in its file (docs/formats/aborted-index.md). Only within a job of
        `run`."""

    def index_rows(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        """INDEX_ROWs of a segment. Only within a job of `run`."""

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job that reads files of the tier, where it may wait. It may be started more than once, and must change
        nothing.

        Raises TierUnreachable, StorageError if the tier has lost an object, and the errors of the job, but no OSError
        other than FileNotFoundError. If this is cancelled, downloads under way still complete.
        """


class NoTier:
    """A tier without any segment, for brokers without a remote tier."""

    def open(self, partition: TopicIdPartition, base_offset: int) -> ColdFile:
        raise FileNotFoundError

    def aborted(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        raise FileNotFoundError

    def index_rows(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        raise FileNotFoundError

    async def run(self, job: Callable[[], T]) -> T:
        raise StorageError("the offset is in a remote tier, and this broker has none")
