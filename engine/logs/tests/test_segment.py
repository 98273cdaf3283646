"""Segment files: finding batches, and how few bytes are read for that."""

import pytest

from engine.errors import NotLoaded
from engine.logs.segments.segment import MARKS_MAX, Located, Segment, find_batch
from engine.logs.segments.sparse_index import START
from testkit.logs import batch


class CountingReads:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sizes: list[int] = []

    def read(self, position: int, size_bytes: int) -> bytes:
        self.sizes.append(size_bytes)
        return self.data[position : position + size_bytes]


def segment_of(count: int, value_size_bytes: int) -> tuple[CountingReads, int]:
    data = bytearray()
    for number in range(count):
        one = batch(b"x" * value_size_bytes)
        one[:8] = number.to_bytes(8, "big")
        data += one
    return CountingReads(bytes(data)), len(data) // count


@pytest.mark.parametrize(
    ("value_size_bytes", "reads_max", "read_bytes_max"),
    [(10, 2, 40_000), (1_000, 6, 170_000), (4_000, 21, 680_000), (16_000, 101, 111_000)],
)
def test_small_batches_are_walked_many_at_a_time(value_size_bytes: int, reads_max: int, read_bytes_max: int) -> None:
    file, size_bytes = segment_of(150, value_size_bytes)
    assert find_batch(file.read, (0, 0), len(file.data), 100) == Located(100 * size_bytes, size_bytes)
    assert len(file.sizes) <= reads_max
    assert sum(file.sizes) <= read_bytes_max


def test_a_batch_that_is_near_takes_one_read() -> None:
    file, size_bytes = segment_of(10, 1_000)
    assert find_batch(file.read, (1, size_bytes), len(file.data), 7).position == 7 * size_bytes
    assert file.sizes == [8192]


def test_a_batch_that_is_marked_takes_one_short_read() -> None:
    file, size_bytes = segment_of(10, 1_000)
    found = find_batch(file.read, (-1, 4 * size_bytes), len(file.data), 4, headers_max=0)
    assert (found.position, file.sizes) == (4 * size_bytes, [1024])
    with pytest.raises(NotLoaded):
        find_batch(file.read, (-1, 4 * size_bytes), len(file.data), 5, headers_max=0)


def test_the_latest_marks_are_kept() -> None:
    segment = Segment(0)
    for number in range(MARKS_MAX + 5):
        segment.mark(number, 100 * number)
    assert list(segment.marks) == list(range(5, MARKS_MAX + 5))
    assert segment.start_for_offset(5) == (-1, 500)
    assert segment.start_for_offset(4) == START
