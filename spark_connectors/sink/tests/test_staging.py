"""Staged batches are relayed unchanged, or an error is raised; and files are deleted when no longer needed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.locations import resolved
from spark_connectors.sink.errors import StagingLost
from spark_connectors.sink.relay import Frame
from spark_connectors.sink.staging import (
    INLINE_MAX_BYTES,
    Staged,
    StagingWriter,
    Task,
    aged,
    delete_aged,
    delete_written,
    frames_of,
)
from spark_connectors.wire import TopicPartition

BY = Task("query", 7, 3, 42)
DAY_S = 86_400.0
FRAMES = st.lists(
    st.builds(
        Frame,
        st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 3)),
        st.binary(max_size=100),
        st.integers(0, 9),
    ),
    max_size=20,
)


def stage(frames: list[Frame], directory: Path, by: Task = BY, inline_max_bytes: int = 0) -> Staged:
    writer = StagingWriter(by, str(directory), inline_max_bytes)
    for frame in frames:
        writer.add(frame)
    return writer.finish()


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


SOME = [Frame(TopicPartition("t", number % 2), b"batch %d" % number, number) for number in range(5)]


@given(FRAMES, st.sampled_from([0, 100, INLINE_MAX_BYTES]))
def test_staged_frames_are_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Frame], inline_max_bytes: int
) -> None:
    staged = stage(frames, tmp_path_factory.mktemp("staging"), inline_max_bytes=inline_max_bytes)
    assert list(frames_of(staged)) == frames
    assert staged.rows == sum(frame.records for frame in frames)
    assert set(staged.places) == {frame.place for frame in frames}


def test_small_rows_are_staged_without_a_file(tmp_path: Path) -> None:
    assert stage(SOME, tmp_path, inline_max_bytes=INLINE_MAX_BYTES).data is not None
    large = [*SOME, Frame(TopicPartition("t", 0), bytes(INLINE_MAX_BYTES), 1)]
    assert not files(tmp_path)
    staged = stage(large, tmp_path, inline_max_bytes=INLINE_MAX_BYTES)
    assert staged.data is None
    assert list(frames_of(staged)) == large


def test_each_attempt_has_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        stage(SOME, tmp_path)
    names = files(tmp_path)
    assert len(names) == 2
    assert all(name.startswith("kafkawire-spark/query/7/3-42-") for name in names)


def test_incomplete_staging_file_has_the_suffix_part_until_it_is_discarded(tmp_path: Path) -> None:
    writer = StagingWriter(BY, str(tmp_path), 0)
    writer.add(SOME[0])
    (name,) = files(tmp_path)
    assert name.endswith(".part")
    writer.discard()
    assert not files(tmp_path)
    StagingWriter(BY, str(tmp_path)).discard()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    staged = stage(SOME, tmp_path)
    Path(staged.path).unlink()
    with pytest.raises(StagingLost, match=r"file that task 3 of query has staged, .* option stagingLocation must be"):
        list(frames_of(staged))


@pytest.mark.parametrize("size_bytes", [0, 3, 10, 30, -1])
def test_a_file_that_was_cut(tmp_path: Path, size_bytes: int) -> None:
    staged = stage(SOME, tmp_path)
    os.truncate(staged.path, size_bytes if size_bytes >= 0 else staged.size_bytes - 1)
    with pytest.raises(StagingLost, match="it ends too early"):
        list(frames_of(staged))


def test_a_file_that_was_changed(tmp_path: Path) -> None:
    """Any wrong byte causes StagingLost only, and no large allocation."""
    staged = stage(SOME, tmp_path)
    path = Path(staged.path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with pytest.raises(StagingLost):
            list(frames_of(staged))
    path.write_bytes(content + b"x")
    with pytest.raises(StagingLost, match="its CRC, its size or its rows differ"):
        list(frames_of(staged))


def test_a_message_of_other_rows(tmp_path: Path) -> None:
    with pytest.raises(StagingLost, match="its rows differ"):
        list(frames_of(replace(stage(SOME, tmp_path), rows=1)))


# --- locations


def test_a_location_may_have_blanks_and_other_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in (f"file:{tmp_path}/a b%20", str(tmp_path / "ü"), "relative"):
        assert list(frames_of(stage(SOME, Path(resolved(location))))) == SOME


# --- deletion


def test_files_of_written_micro_batches_are_deleted(tmp_path: Path) -> None:
    for query in ("query", "other"):
        for batch_id in (6, 7, 8, 10):
            stage(SOME, tmp_path, replace(BY, query=query, batch_id=batch_id))
    stage(SOME, tmp_path, replace(BY, query="job", batch_id=None))
    delete_written(str(tmp_path), "query", 8)
    delete_written(str(tmp_path), "nobody's", 8)
    found = [name.split("/")[1:3] for name in files(tmp_path)]
    assert found == [["job", "0"], *(["other", number] for number in ("10", "6", "7", "8")), ["query", "10"]]
    delete_written(str(tmp_path), "job", None)
    assert not any("/job/" in name for name in files(tmp_path))


def test_abandoned_files_are_deleted_by_age(tmp_path: Path) -> None:
    """The newest file of a query counts, and files outside of the sink's folder stay."""
    now_s = 1_700_000_000.0
    for query, ages_days in (("old", [8, 9]), ("mixed", [8, 1]), ("new", [1])):
        for number, age_days in enumerate(ages_days):
            staged = stage(SOME, tmp_path, replace(BY, query=query, batch_id=number))
            made_s = now_s - age_days * DAY_S
            for path in (Path(staged.path), *Path(staged.path).parents[:2]):
                os.utime(path, (made_s, made_s))
    mine = tmp_path / "mine"
    mine.write_text("of somebody else")
    os.utime(mine, (0, 0))
    delete_aged(str(tmp_path), 7 * DAY_S, now_s)
    assert {name.split("/")[1] for name in files(tmp_path) if name != "mine"} == {"mixed", "new"}
    assert mine.exists()
    delete_aged(str(tmp_path / "nowhere"), 7 * DAY_S, now_s)


def test_folders_without_a_time_are_no_reason_to_delete() -> None:
    """Object stores show a file only when it is complete."""
    old, new = 1, 9
    begun: dict[str, int | None] = {"q": None, "q/7": None}
    assert aged(begun, 5) == []
    assert aged(begun | {"q/7/0-0": old}, 5) == ["q"]
    assert aged(begun | {"q/7/0-0": old, "q/8/0-0": new}, 5) == []
