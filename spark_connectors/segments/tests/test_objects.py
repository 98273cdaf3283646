"""Segments in objects: the read-ahead has the next bytes, and no more than the part."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.segments import objects
from spark_connectors.segments.objects import SegmentObject
from spark_connectors.segments.plan import Part
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.sealed import Segment
from spark_connectors.segments.stores import Store, StoredObject

CONTENT = bytes(range(250))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "key").write_bytes(CONTENT)
    monkeypatch.setattr(objects, "AHEAD_BYTES", 16)
    return Store(str(tmp_path))


def opened(store: Store, end: int = 200) -> SegmentObject:
    return SegmentObject(store, "key", Part(Segment(0, 1, 200, 0, ""), 0, 0, end))


def test_segment_object_returns_the_stored_bytes_for_any_sequence_of_reads(store: Store) -> None:
    @given(st.lists(st.tuples(st.integers(-10, 20), st.integers(1, 40)), max_size=12))
    def read(steps: list[tuple[int, int]]) -> None:
        file, position = opened(store), 0
        for step, size_bytes in steps:
            position = max(0, min(position + step, 200 - size_bytes))
            assert bytes(file.read(position, size_bytes)) == CONTENT[position : position + size_bytes]
            position += size_bytes
        file.close()

    read()


def test_read_ahead_stops_at_the_end_of_the_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, int]] = []
    read_at = StoredObject.read_at

    def seen(self: StoredObject, position: int, size_bytes: int) -> bytes:
        reads.append((position, size_bytes))
        return read_at(self, position, size_bytes)

    monkeypatch.setattr(StoredObject, "read_at", seen)
    file = opened(store, end=50)
    for position in (0, 12, 28, 44):
        assert bytes(file.read(position, 16)) == CONTENT[position : position + 16]
    file.close()
    assert reads == [(0, 16), (16, 16), (28, 16), (44, 6), (50, 10)]


def test_missing_or_shorter_object_raises_segment_gone(store: Store) -> None:
    file = opened(store)
    with pytest.raises(SegmentGone, match="shorter"):
        file.read(240, 20)
    file.close()
    with pytest.raises(SegmentGone, match="other is not there"):
        SegmentObject(store, "other", Part(Segment(0, 1, 200, 0, ""), 0, 0, 1))
