"""Checks before serving: sound batches and little more are read, and nothing behind a damaged one."""

import pytest

from engine.batches.batch import stamp
from engine.errors import CorruptMessage
from engine.files.filesystem import File
from engine.logs.recovery.epochs import EpochStart
from engine.logs.recovery.loading import FIRST_BATCH_ONLY, READ_AHEAD_BYTES, WINDOW_BYTES, Part, check, go_on, load
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import batch

PATH = "/data/00000000000000000000.log"


class CountingFile:
    """A file that counts its reads."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.read_bytes = 0

    def fileno(self) -> int | None:
        return None

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = self._file.read_at(position, size_bytes)
        self.read_bytes += len(data)
        return data


def segment_of(count: int, value_size_bytes: int, *, wrong_epoch_at: int | None = None) -> tuple[CountingFile, Part]:
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/data")
    file, position = filesystem.open(PATH, create=True), 0
    for number in range(count):
        one = batch(b"x" * value_size_bytes)
        stamp(memoryview(one), number, 8 if number == wrong_epoch_at else 7)
        file.write_at([one], position)
        position += len(one)
    return CountingFile(file), Part(lambda: file, file, 0, position, (-1, 0), (EpochStart(7, 0),))


@pytest.mark.parametrize("value_size_bytes", [2_000, 130_000, 700_000, 1_500_000])
def test_of_a_window_no_more_than_a_batch_is_read_twice(value_size_bytes: int) -> None:
    file, part = segment_of(3 * READ_AHEAD_BYTES // value_size_bytes, value_size_bytes)
    end, end_offset = check(file, 0, part, READ_AHEAD_BYTES)
    assert READ_AHEAD_BYTES <= end < READ_AHEAD_BYTES + value_size_bytes + 100
    assert end_offset * value_size_bytes < end < end_offset * (value_size_bytes + 100)
    windows = -(-end // max(value_size_bytes, WINDOW_BYTES // 2))
    assert file.read_bytes < end + windows * (value_size_bytes + 100)


def test_a_check_stops_before_a_batch_of_a_wrong_epoch() -> None:
    file, part = segment_of(5, 1_000, wrong_epoch_at=3)
    size_bytes = part.end // 5
    assert check(file, 0, part, READ_AHEAD_BYTES) == (3 * size_bytes, 3)
    with pytest.raises(CorruptMessage):
        check(file, 3 * size_bytes, part, READ_AHEAD_BYTES)


def test_the_first_batch_may_be_all_that_is_waited_for() -> None:
    _, part = segment_of(5, 1_000)
    loaded = load(part, 2, FIRST_BATCH_ONLY)
    assert (loaded.position, loaded.end_offset) == (2 * part.end // 5, 3)


def test_a_load_goes_on_over_whole_batches_that_are_here() -> None:
    _, part = segment_of(5, 2 * READ_AHEAD_BYTES // 3)
    size_bytes = part.end // 5
    loaded = load(part, 0, READ_AHEAD_BYTES)
    assert (loaded.end, loaded.end_offset) == (2 * size_bytes, 2)
    assert go_on(loaded, part, 2 * size_bytes + 70) == loaded
    further = go_on(loaded, part, 4 * size_bytes + 60)  # less than a header of the fifth is here
    assert (further.position, further.end, further.end_offset) == (0, 4 * size_bytes, 4)
    assert go_on(loaded, part, 9 * size_bytes).end == part.end


def test_a_wrong_batch_behind_a_load_ends_it_without_an_error() -> None:
    _, part = segment_of(5, 2 * READ_AHEAD_BYTES // 3, wrong_epoch_at=3)
    size_bytes = part.end // 5
    further = go_on(load(part, 0, READ_AHEAD_BYTES), part, part.end)
    assert (further.end, further.end_offset, further.is_cut_short) == (3 * size_bytes, 3, False)
    assert go_on(further, part, part.end) == further
