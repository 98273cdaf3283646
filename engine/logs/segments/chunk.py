"""A chunk: the batches that an append puts into one segment."""

from dataclasses import dataclass, field

from engine.api import NO_TIMESTAMP_MS
from engine.batches.batch import BatchHeader
from engine.files.filesystem import File
from engine.logs.producers.snapshot import Snapshot


@dataclass(slots=True)
class Chunk:
    """Consecutive batches for one segment, with their final base offsets and epochs in the buffers and headers alike.

    `file` is None while the segment is still to be created, or opened.
    """

    base_offset: int
    file: File | None
    position: int
    batches: list[memoryview] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    size_bytes: int = 0
    rolls: bool = False
    started_ms: int = NO_TIMESTAMP_MS
    snapshot: Snapshot | None = None  # of the producers before a chunk that rolls
    allocate_bytes: int = 0  # bytes to preallocate for a new segment
    unallocated: str | None = None  # why preallocation failed

    def add(self, batch: memoryview, header: BatchHeader) -> None:
        self.batches.append(batch)
        self.headers.append(header)
        self.size_bytes += len(batch)
