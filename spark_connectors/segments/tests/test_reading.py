"""Rows of sealed segments from a task, and its behaviour if segments have changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Outcome
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.segments import reading
from spark_connectors.segments.plan import SealedRange, cut, narrowed
from spark_connectors.segments.reading import SegmentGone
from spark_connectors.segments.tests.made import Memory, fetch_of, read_of, rows, sealed_of, tasks_of, whole
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.tests.world import Log, World

COMMITTED, ALL = (
    World().options(**{"kafka.isolation.level": level}) for level in ("read_committed", "read_uncommitted")
)


def log_of(*sizes: int) -> Log:
    log = Log()
    for number, size in enumerate(sizes):
        log.append(*(b"value %d" % (number * 10 + place) for place in range(size)))
    return log


def in_order(log: Log, chosen: SourceOptions = ALL) -> list[tuple[int, bytes, bytes]]:
    """All rows of the log, fetched."""
    _, fetch = fetch_of(log)
    return rows(fetch(whole(log)), chosen, whole(log))  # type: ignore[operator]


def read_all(
    log: Log, tasks: list[OffsetRange], memory: Memory, chosen: SourceOptions = ALL
) -> tuple[list[tuple[int, bytes, bytes]], list[OffsetRange]]:
    """Rows of the tasks, and the ranges that were fetched."""
    found: list[tuple[int, bytes, bytes]] = []
    fetched, fetch = fetch_of(log)
    for one in tasks:
        if isinstance(one, SealedRange):
            pieces = read_of(one, memory, fetch, is_committed_only=chosen.is_committed_only).pieces()
        else:
            pieces = fetch(one)  # type: ignore[operator]
        found += rows(pieces, chosen, one)
    return found, fetched


Step = int | tuple[int, int, Outcome] | None
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.integers(1, 4),
        st.tuples(st.sampled_from([11, 12]), st.integers(1, 3), st.sampled_from(list(Outcome))),
        st.just(None),
    ),
    min_size=1,
    max_size=14,
)


def made(story: list[Step]) -> Log:
    """A log with batches, decided transactions, gaps, and perhaps a start within a batch."""
    log = Log()
    for step in story:
        if isinstance(step, int):
            log.append(*(b"%d" % place for place in range(step)))
        elif step is None:
            log.leave_gap(3)
        else:
            producer, count, outcome = step
            first = log.send(producer, *(b"t%d" % place for place in range(count)))
            log.append(b"between")
            log.decide(producer, outcome, first)
    return log


@given(steps, st.lists(st.integers(1, 4), max_size=6), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_each_row_comes_once_and_in_order(
    story: list[Step], batches_each: list[int], count: int, start: int, is_committed_only: bool
) -> None:
    log = made(story)
    log.delete_before(min(start, log.end))
    chosen = COMMITTED if is_committed_only else ALL
    sealed, objects = sealed_of(log, batches_each)
    memory = Memory(objects)
    found, fetched = read_all(log, tasks_of(log, sealed, count), memory, chosen)
    assert found == in_order(log, chosen)
    assert all(one.start >= sealed.end for one in fetched)
    assert all(one.is_closed for one in memory.opened)


@given(steps, st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_a_border_within_a_batch_gives_each_row_to_one_side(
    story: list[Step], batches_each: list[int], data: st.DataObject
) -> None:
    log = made(story)
    sealed, objects = sealed_of(log, batches_each)
    wide = next((one for one in cut(whole(log), sealed) if isinstance(one, SealedRange)), None)
    if wide is None:
        return
    borders = sorted(data.draw(st.sets(st.integers(wide.start + 1, max(wide.start + 1, wide.end - 1)), max_size=4)))
    edges = [wide.start, *(one for one in borders if one < wide.end), wide.end]
    tasks = [narrowed(wide, start, end) for start, end in pairwise(edges)]
    found, fetched = read_all(log, [*tasks], Memory(objects), COMMITTED)
    assert (found, fetched) == ([one for one in in_order(log, COMMITTED) if one[0] < wide.end], [])


@given(steps, st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 4), st.data())
def test_wrong_positions_cost_no_row_and_double_none(
    story: list[Step], batches_each: list[int], count: int, data: st.DataObject
) -> None:
    """An index may be wrong, and the planner does not read batches."""
    log = made(story)
    sealed, objects = sealed_of(log, batches_each)
    segments = []
    for one in sealed.segments:
        wrong = st.tuples(st.integers(one.base, max(one.base, one.end - 1)), st.integers(1, max(one.size_bytes - 1, 1)))
        places = data.draw(st.lists(wrong, max_size=3, unique_by=lambda place: place[0]))
        positions = sorted(position for _, position in places)
        offsets = sorted(offset for offset, _ in places)
        segments.append(one._replace(positions=tuple(zip(offsets, positions, strict=True))))
    tasks = tasks_of(log, replace(sealed, segments=tuple(segments)), count)
    found, fetched = read_all(log, tasks, Memory(objects))
    assert found == in_order(log)
    assert all(one.start >= sealed.end for one in fetched)


def first_task(log: Log, *batches_each: int) -> tuple[SealedRange, Memory]:
    """A task that reads the whole sealed part."""
    sealed, objects = sealed_of(log, batches_each)
    [task] = [one for one in tasks_of(log, sealed, 1) if isinstance(one, SealedRange)]
    return task, Memory(objects)


def test_a_segment_compacted_between_plan_and_read_is_looked_for_again() -> None:
    log = log_of(2, 3, 2, 1)
    task, memory = first_task(log, 2, 2)
    memory.objects.clear()
    sealed, objects = sealed_of(log, [1, 1, 2])
    memory.objects, memory.known = objects, sealed
    found, fetched = read_all(log, [task], memory)
    assert (found, fetched, memory.asked) == (in_order(log), [], [(0, 8)])


def test_rows_read_before_a_segment_moved_are_not_returned_again() -> None:
    log = log_of(2, 3, 2, 1)
    task, memory = first_task(log, 2, 2)
    second = task.parts[1].segment
    content = memory.objects.pop(second.key or "")
    renamed = second._replace(key="elsewhere")
    sealed, _ = sealed_of(log, [2, 2])
    memory.objects["elsewhere"] = content
    memory.known = replace(sealed, segments=(sealed.segments[0], renamed))
    found, fetched = read_all(log, [task], memory)
    assert (found, fetched, memory.asked) == (in_order(log), [], [(5, 8)])


@pytest.mark.parametrize("known", ["away", "nothing", "the same"])
def test_segment_without_another_known_location_is_fetched(known: str) -> None:
    log = log_of(2, 3, 2, 1)
    task, memory = first_task(log, 2, 2)
    del memory.objects[task.parts[1].segment.key or ""]
    memory.is_away = known == "away"
    if known == "the same":
        memory.known, _ = sealed_of(log, [2, 2])
    found, fetched = read_all(log, [task], memory)
    assert found == in_order(log)
    assert [(one.start, one.end, type(one)) for one in fetched] == [(5, 8, OffsetRange)]


@pytest.mark.parametrize("position", [5, 20, 30, 70])
def test_damaged_segment_is_fetched_from_the_broker(position: int) -> None:
    log = log_of(2, 3)
    task, memory = first_task(log, 2)
    key = task.parts[0].segment.key or ""
    content = bytearray(memory.objects[key])
    content[position] ^= 1
    memory.objects[key] = bytes(content)
    memory.known, _ = sealed_of(log, [2])
    found, fetched = read_all(log, [task], memory)
    assert found == in_order(log)
    assert [(one.start, one.end) for one in fetched] == [(0, 5)]


def test_shortened_segment_is_fetched_from_the_broker() -> None:
    log = log_of(2, 3, 4)
    task, memory = first_task(log, 3)
    key = task.parts[0].segment.key or ""
    memory.objects[key] = memory.objects[key][: len(log.batches[0])]
    found, fetched = read_all(log, [task], memory)
    assert found == in_order(log)
    assert [(one.start, one.end) for one in fetched] == [(0, 9)]


def test_offsets_of_another_segment_are_not_taken() -> None:
    log, other = log_of(2, 3), Log(start=7, end=7)
    other.append(b"of another")
    other.append(*(b"x" * 10 for _ in range(3)))
    task, memory = first_task(log, 2)
    [part] = task.parts
    content = b"".join(other.batches)
    memory.objects[part.segment.key or ""] = content
    size_bytes = len(content)
    segment = part.segment._replace(size_bytes=size_bytes)
    task = replace(task, parts=(part._replace(segment=segment, end=size_bytes),))
    found, fetched = read_all(log, [task], memory)
    assert (found, len(fetched)) == (in_order(log), 1)


def test_missing_or_damaged_segment_raises_without_a_broker() -> None:
    log = log_of(2, 3)
    task, memory = first_task(log, 2)
    memory.objects.clear()
    with pytest.raises(SegmentGone):
        list(read_of(task, memory, None, is_committed_only=False).pieces())
    task, memory = first_task(log, 2)
    memory.objects = {key: bytes(len(content)) for key, content in memory.objects.items()}
    with pytest.raises(MalformedBatch):
        list(read_of(task, memory, None, is_committed_only=False).pieces())


def test_aborted_transactions_are_looked_up_only_for_read_committed() -> None:
    log = Log()
    first = log.send(11, b"taken back")
    log.append(b"stays")
    log.decide(11, Outcome.ABORT, first)
    sealed, objects = sealed_of(log, [3], tells_aborted=False)
    [task] = cut(whole(log), sealed)
    memory = Memory(objects, aborted_by_key={key: tuple(log.aborted) for key in objects})
    assert read_all(log, [task], memory, COMMITTED)[0] == in_order(log, COMMITTED)
    memory.aborted_by_key = {}
    assert [offset for offset, _, _ in read_all(log, [task], memory, ALL)[0]] == [0, 1]


def test_a_transaction_that_was_aborted_in_a_later_segment_is_left_out() -> None:
    log = Log()
    first = log.send(11, b"taken back")
    log.append(b"stays")
    log.decide(11, Outcome.ABORT, first)
    log.append(b"behind")
    for batches_each in ([1, 1, 1, 1], [1, 3], [2, 2], [3, 1]):
        sealed, objects = sealed_of(log, batches_each)
        found, _ = read_all(log, tasks_of(log, sealed, 4), Memory(objects), COMMITTED)
        assert [value for _, _, value in found] == [b"stays", b"behind"]


def test_batches_larger_than_a_read_chunk_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for number in range(6):
        log.append(b"x" * (300 * number), b"small")
    monkeypatch.setattr(reading, "CHUNK_BYTES", 128)
    monkeypatch.setattr(reading, "BORDER_BYTES", 64)
    for count in (1, 2, 5):
        sealed, objects = sealed_of(log, [6])
        found, fetched = read_all(log, tasks_of(log, sealed, count), Memory(objects))
        assert (found, fetched) == (in_order(log), [])


def test_no_more_is_read_than_a_task_needs() -> None:
    log = log_of(*[3] * 20)
    sealed, objects = sealed_of(log, [20])
    size_bytes = sealed.segments[0].size_bytes
    memory = Memory(objects)
    tasks = tasks_of(log, sealed, 4)
    found, _ = read_all(log, tasks, memory)
    assert found == in_order(log)
    assert sum(size for _, size in memory.reads) == size_bytes
    assert len(memory.reads) == len(tasks)
