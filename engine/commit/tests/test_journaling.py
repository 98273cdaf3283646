"""Rows of the journal for the parts of a commit batch."""

from engine.batches.batch import Record, build_batch, parse_header, stamp
from engine.commit.appends import PartitionShare
from engine.commit.journal_format import PAGE_SIZE_BYTES, commit_batch_frame, frames, has_sound_batches
from engine.commit.journaling import journal_entries
from engine.logs.segments.chunk import Chunk
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, open_orders, running

ID = b"slot-id."


async def test_a_row_is_of_one_epoch_and_has_no_gap() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        chunk = Chunk(0, None, 700)
        for offset, leader_epoch, count in ((0, 0, 2), (2, 0, 1), (3, 1, 1), (9, 1, 2), (11, 1, 1), (12, 4, 1)):
            made = build_batch([Record(None, b"v", NOW_MS)] * count)
            stamp(memoryview(made), offset, leader_epoch)
            chunk.add(memoryview(made), parse_header(made))
        log.log.compacted_to = 10
        part = PartitionShare(log._commits, log.log)
        part.chunks = [chunk]
        entries = list(journal_entries(part))
        content = bytes(PAGE_SIZE_BYTES) + b"".join(commit_batch_frame(ID, 7, entries)) + bytes(PAGE_SIZE_BYTES)
    [frame] = frames(content, ID)
    assert [(one.leader_epoch, one.base_offset, one.end_offset) for one in frame.rows] == [
        (0, 0, 3),
        (1, 3, 4),
        (1, 9, 12),
        (4, 12, 13),
    ]
    assert all(has_sound_batches(content, one) for one in frame.rows)
    position = 700
    for row in frame.rows:
        assert row.position == position
        position += row.size_bytes
    assert position == 700 + chunk.size_bytes
