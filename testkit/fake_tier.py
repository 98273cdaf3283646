"""A remote tier in memory, which no crash of the broker touches. See `engine.tier`."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import trio

from engine.api import AbortedTransaction, FileRange, TopicIdPartition
from engine.errors import TierUnreachable
from engine.log_dirs.local_starts import note_tiered
from engine.logs.segments.sparse_index import Summary
from engine.logs.transactions.aborted import encode_aborted
from engine.logs.transactions.aborted_files import aborted_of
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem

T = TypeVar("T")
HERE_BYTES = 5_000  # cached behind a position: some batches of most tests
Key = tuple[bytes, int, int]  # topic id, partition, base offset


class ColdFile:
    """A segment in the tier. The parts that were read count as cached."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._loaded: list[tuple[int, int]] = []
        self.fails = False

    def fileno(self) -> None:
        return None

    def size(self) -> int:
        return len(self._content)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._loaded.append((position, position + size_bytes))
        return self._content[position : position + size_bytes]

    def read_cached(self, position: int, size_bytes: int) -> bytes | None:
        if self.fails:
            raise OSError(errno.EIO, "injected")
        return self._content[position : position + size_bytes] if self.is_cached(position, size_bytes) else None

    def is_cached(self, position: int, size_bytes: int) -> bool:
        size_bytes = min(size_bytes, len(self._content) - position)
        return self.cached_size(position, size_bytes) >= size_bytes

    def cached_size(self, position: int, size_bytes: int) -> int:
        behind = position
        for start, stop in sorted(self._loaded):
            if start <= behind:
                behind = max(behind, stop)
        return min(behind - position, size_bytes)

    def has_waited(self) -> bool:
        return len(self._loaded) % 2 == 1  # so that tests get both answers

    def here_until(self, position: int) -> int:
        return min(position + HERE_BYTES, len(self._content))

    def hold(self, position: int, end: int) -> object:
        return self

    def note_checked(self, position: int, end: int) -> None: ...

    def parts(self, position: int, size_bytes: int) -> list[FileRange]:
        assert self.is_cached(position, size_bytes)
        middle = position + size_bytes // 2
        return [FileRange(self, position, middle - position), FileRange(self, middle, position + size_bytes - middle)]

    def forget(self) -> None:
        self._loaded.clear()

    def read_ahead(self, position: int, size_bytes: int) -> None: ...

    def write_at(self, buffers: Sequence[memoryview | bytes | bytearray], position: int) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")

    def truncate(self, size_bytes: int) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")

    def allocate(self, size_bytes: int) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")

    def fdatasync(self) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")

    def sync_and_forget(self) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")

    def trim(self) -> NoReturn:
        raise OSError(errno.EBADF, "opened to be read")


@dataclass
class FakeTier:
    """A fake remote tier. Each segment has the moment of its upload, so that `as_of` gives the tier of an earlier
    moment."""

    segments: dict[Key, list[tuple[int, bytes]]] = field(default_factory=dict)
    summaries: dict[Key, Summary] = field(default_factory=dict)
    indexes: dict[Key, Sequence[AbortedTransaction]] = field(default_factory=dict)  # of aborted transactions
    until: int = 2**63 - 1
    is_unreachable: bool = False
    opened: list[ColdFile] = field(default_factory=list)

    def as_of(self, moment: int) -> FakeTier:
        return FakeTier(self.segments, self.summaries, self.indexes, until=moment)

    def open(self, partition: TopicIdPartition, base_offset: int) -> ColdFile:
        versions = self.segments.get((partition.topic_id, partition.partition, base_offset), [])
        number = bisect_right([moment for moment, _ in versions], self.until) - 1
        if number < 0:
            raise FileNotFoundError
        self.opened.append(ColdFile(versions[number][1]))
        return self.opened[-1]

    def aborted(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        return encode_aborted(self.indexes.get((partition.topic_id, partition.partition, base_offset), ()))

    def index_rows(self, partition: TopicIdPartition, base_offset: int) -> bytes:
        return b""  # none are kept

    def forget(self) -> None:
        """Empty the caches of all opened segments."""
        for one in self.opened:
            one.forget()

    async def run(self, job: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        if self.is_unreachable:
            raise TierUnreachable("the tier cannot be reached")
        return job()

    def upload(self, filesystem: SimulatedFileSystem, one: Partition, *, moment: int = 0) -> int:
        """Upload the finished segments below the LSO; returns the offset up to which the tier has the log now."""
        log, topic_id, number = one.log, one.partition.topic_id, one.partition.partition
        tiered_to = log.tiered_to if log.tiered_to is not None else log.local_start_offset
        for segment in log.segments[:-1]:
            if tiered_to < segment.end_offset <= one.last_stable_offset:
                key = topic_id, number, segment.base_offset
                content = filesystem.content(log.path_of(segment.base_offset))[: segment.size_bytes]
                self.segments.setdefault(key, []).append((moment, content))
                self.summaries[key] = log.summary_of(segment)
                if segment.base_offset in log.aborted.bases:
                    index = aborted_of(filesystem, log.directory, segment.base_offset, segment.end_offset)
                    self.indexes[key] = index
                tiered_to = segment.end_offset
        note_tiered(one.log_dir, one, tiered_to)
        return tiered_to

    def summaries_of(self, partition: TopicIdPartition) -> dict[int, Summary]:
        """Summaries of a partition's segments by base offset, as a manifest has them."""
        of_partition = partition.topic_id, partition.partition
        return {key[2]: one for key, one in self.summaries.items() if key[:2] == of_partition}

    def rot(self, partition: TopicIdPartition, base_offset: int, position: int) -> None:
        versions = self.segments[partition.topic_id, partition.partition, base_offset]
        content = bytearray(versions[-1][1])
        content[position] ^= 1
        versions[-1] = versions[-1][0], bytes(content)
