"""Where segments are read that have no file in a log dir any more.

A source of its own, beside the disk: what goes wrong with it is not the disk's fault, and takes no log dir offline.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from engine.api import AbortedTransaction, TopicPartition
from engine.errors import StorageError
from engine.files.filesystem import File

T = TypeVar("T")


class SegmentTier(Protocol):
    """A remote tier as whoever reads a log sees it."""

    def open(self, partition: TopicPartition, base_offset: int) -> File:
        """A segment, to be read only, with the positions its file had. Within a job of `run`, as `read_at` of it; but
        what is in memory, by its own account, is given at once, by `read_cached` and to a socket, whatever happens to
        the tier. FileNotFoundError: there is no such segment (any more)."""

    def aborted(self, partition: TopicPartition, base_offset: int) -> Sequence[AbortedTransaction]:
        """What is in the aborted index of a segment; within a job, as above."""

    async def run(self, job: Callable[[], T]) -> T:
        """Do work on such files where it may wait. Raises StorageError while the tier cannot be reached; what the job
        raises otherwise, but no OSError other than FileNotFoundError."""


class NoTier:
    """Nothing is in it."""

    def open(self, partition: TopicPartition, base_offset: int) -> File:
        raise FileNotFoundError

    def aborted(self, partition: TopicPartition, base_offset: int) -> Sequence[AbortedTransaction]:
        raise FileNotFoundError

    async def run(self, job: Callable[[], T]) -> T:
        raise StorageError("what was asked for is in a remote tier, and there is none")
