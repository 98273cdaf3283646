"""Loads of a segment that only the remote tier has: the bytes that a read waits for, and the cached bytes."""

from functools import partial
from typing import cast

import pytest

from engine.batches.batch import stamp
from engine.files.filesystem import File
from engine.logs.recovery.epochs import EpochStart
from engine.logs.recovery.loading import READ_AHEAD_BYTES, Part
from engine.reading.reader import _load
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.fake_tier import ColdFile
from testkit.logs import batch

COUNT, OFFSET = 12, 2
SIZE_BYTES = len(batch(b"x" * (READ_AHEAD_BYTES // 4)))
HERE_BYTES = 3 * SIZE_BYTES + 100


class TierFile(ColdFile):
    """A segment in the tier of which a little more than three batches are cached behind each position."""

    def __init__(self, content: bytes, *, has_waited: bool) -> None:
        super().__init__(content)
        self._has_waited = has_waited

    def has_waited(self) -> bool:
        return self._has_waited

    def here_until(self, position: int) -> int:
        return position + HERE_BYTES


def content() -> bytes:
    """A segment of batches with one record each."""
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/data")
    file = filesystem.open("/data/log", create=True)
    for number in range(COUNT):
        one = batch(b"x" * (READ_AHEAD_BYTES // 4))
        stamp(memoryview(one), number, 7)
        file.write_at([one], number * SIZE_BYTES)
    return filesystem.content("/data/log")


@pytest.mark.parametrize(
    ("start", "has_waited", "batches"),
    [
        pytest.param((0, 0), True, 3, id="who seeks and has waited takes what is here"),
        pytest.param(None, True, 3, id="without an index, too"),
        pytest.param((0, 0), False, 4, id="who has not waited may, once"),
        pytest.param((OFFSET, OFFSET * SIZE_BYTES), True, 4, id="who goes on waits for more"),
    ],
)
def test_a_seek_in_the_tier_waits_only_once(start: tuple[int, int] | None, has_waited: bool, batches: int) -> None:
    file = TierFile(content(), has_waited=has_waited)
    part = Part(partial(cast, File, file), None, 0, COUNT * SIZE_BYTES, start, (EpochStart(7, 0),))
    loaded, held = _load(part, OFFSET, 1, is_cold=True)
    assert held is file
    assert (loaded.position, loaded.end_offset) == (OFFSET * SIZE_BYTES, OFFSET + batches)
