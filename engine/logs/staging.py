"""Staging of batches that do not all fit into the active segment. Pure."""

from collections.abc import Callable, Sequence

from engine.batches.batch import BatchHeader
from engine.logs.segments.chunk import Chunk
from engine.logs.segments.roll_policy import SEGMENT_OFFSETS_MAX, RollPolicy
from engine.logs.segments.segment import Segment


def empty_chunk(offset: int, policy: RollPolicy) -> Chunk:
    """A chunk without batches that begins a segment at `offset`."""
    chunk = Chunk(offset, None, 0, rolls=True)
    chunk.allocate_bytes = policy.allocated_bytes
    return chunk


def stage_rolling(
    active: Segment,
    batches: Sequence[memoryview],
    headers: Sequence[BatchHeader],
    is_over: Callable[[BatchHeader], bool],
    policy: RollPolicy,
    now_ms: int,
) -> list[Chunk]:
    """Distribute batches that continue a log over segments.

    A segment begins before each batch that does not fit any more, or for which `is_over` says that `active` is full.
    """
    chunk = Chunk(active.base_offset, active.file, active.size_bytes)
    chunks, end_offset = [chunk], active.end_offset
    for batch, header in zip(batches, headers, strict=True):
        end = chunk.position + chunk.size_bytes
        if end and (
            end + len(batch) > policy.segment_size_bytes
            or header.next_offset - chunk.base_offset > SEGMENT_OFFSETS_MAX
            or (chunk.base_offset == active.base_offset and is_over(header))
        ):
            chunk = empty_chunk(end_offset, policy)  # there may be a gap before the batch
            chunk.started_ms = now_ms
            chunks.append(chunk)
        chunk.add(batch, header)
        end_offset = header.next_offset
    return chunks if chunks[0].batches else chunks[1:]
