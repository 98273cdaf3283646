"""Translation of offsets, and a file that has committed runs only."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.offset_map import MapFile, OffsetMap, Run

TOPICS = {"source": "a", "source_id": "00", "target": "b", "target_id": "01"}
RUNS = [Run(0, 100, 7, 3), Run(0, 110, 10, 2), Run(1, 0, 0, 5)]


def test_an_offset_becomes_that_of_the_first_record_at_or_behind_it() -> None:
    found = OffsetMap(RUNS[:2])
    wanted = {0: 7, 100: 7, 102: 9, 103: 10, 109: 10, 110: 10, 111: 11, 112: 12, 999: 12}
    assert {offset: found.translated(offset) for offset in wanted} == wanted
    assert OffsetMap([]).translated(5) is None


def test_uncommitted_runs_are_dropped_from_the_map(tmp_path: Path) -> None:
    path = tmp_path / "map"
    file = MapFile(str(path), TOPICS)
    assert file.begin({}, {}) == []
    file.add(RUNS)
    assert file.begin({0: 105, 1: 5}, {0: 3, 1: 5}) == [RUNS[0], RUNS[2]]
    file.add(RUNS[1:2])
    assert file.begin({0: 112, 1: 5}, {0: 5, 1: 5}) == [RUNS[0], RUNS[2], RUNS[1]]
    assert file.begin({}, {}) == [], "nothing was, as the group has forgotten it, or never knew"


def test_a_line_that_was_begun_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "map"
    file = MapFile(str(path), TOPICS)
    file.begin({}, {})
    file.add(RUNS[:1])
    whole = path.read_bytes()
    for size_bytes in range(len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:size_bytes])
        assert file.begin({}, {}) == []
        path.write_bytes(whole)
    path.write_bytes(whole + whole[-20:])
    assert file.begin({0: 103}, {0: 3}) == RUNS[:1]


@pytest.mark.parametrize("text", ["{}\n", "something else\n", '{"format": 2}\n'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "map"
    path.write_text(text)
    with pytest.raises(ImportRefused, match="is not the offset map of this import"):
        MapFile(str(path), TOPICS).begin({}, {})
    assert path.read_text() == text


def test_map_file_that_lacks_imported_records_is_refused(tmp_path: Path) -> None:
    file = MapFile(str(tmp_path / "map"), TOPICS)
    with pytest.raises(ImportRefused, match="has 0 records of partition 0, and 3 were imported"):
        file.begin({0: 103}, {0: 3})
