"""The sparse index never points behind the wanted batch; leader epochs are found by offset."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from engine.logs.recovery.epochs import EpochHistory
from engine.logs.segments.sparse_index import ENTRIES_MAX, INTERVAL_BYTES, START, THIN_ENTRIES_MAX, SparseIndex

batches = st.lists(st.tuples(st.integers(1, 50), st.integers(61, 9000), st.integers(0, 1000)), min_size=1, max_size=60)


@given(batches, st.integers(0, 3000), st.integers(0, 1100))
def test_positions_are_at_or_before_the_answer_and_near_it(
    sizes: list[tuple[int, int, int]], offset: int, timestamp_ms: int
) -> None:
    index = SparseIndex()
    offsets, positions, times = [], [], []
    next_offset = position = max_so_far_ms = 0
    for count, size_bytes, time in sizes:
        max_so_far_ms = max(max_so_far_ms, time)
        index.add(next_offset, position, max_so_far_ms)
        offsets.append(next_offset)
        positions.append(position)
        times.append(time)
        next_offset += count
        position += size_bytes
    holder = positions[bisect_right(offsets, offset) - 1]
    _, start = index.before_offset(offset) or START
    assert start in positions
    assert start <= holder < start + INTERVAL_BYTES
    first = next((p for p, time in zip(positions, times, strict=True) if time >= timestamp_ms), None)
    _, start = index.before_timestamp(timestamp_ms) or START
    assert first is None or start <= first
    assert len(index) <= position // INTERVAL_BYTES + 1


def test_an_empty_index_starts_at_the_beginning() -> None:
    assert SparseIndex().before_offset(5) == START
    assert SparseIndex().before_timestamp(5) == START


def test_entries_without_a_timestamp_do_not_tell() -> None:
    """The headers of their batches may have been wrong; the records may have any time."""
    index = SparseIndex()
    for number, newest_ms in enumerate([-1, -1, 100, 200]):
        index.add(number, number * INTERVAL_BYTES, newest_ms)
    assert index.before_timestamp(50) == START
    assert index.before_timestamp(150) == (2, 2 * INTERVAL_BYTES)


def test_an_index_stays_within_its_bounds_and_near_the_answer() -> None:
    index, count = SparseIndex(), 3 * ENTRIES_MAX
    for number in range(count):
        index.add(number, number * INTERVAL_BYTES, number)
        assert len(index) <= ENTRIES_MAX
    assert index.before_offset(ENTRIES_MAX + 3) == (ENTRIES_MAX, ENTRIES_MAX * INTERVAL_BYTES)
    index.thin()
    assert THIN_ENTRIES_MAX // 2 < len(index) <= THIN_ENTRIES_MAX
    step = 64  # batches for each entry that is left
    assert index.before_offset(5 * step + 7) == (5 * step, 5 * step * INTERVAL_BYTES)
    assert index.before_timestamp(5 * step + 7) == (5 * step, 5 * step * INTERVAL_BYTES)
    index.add(count, count * INTERVAL_BYTES, count)
    index.add(count + 1, (count + 1) * INTERVAL_BYTES, count)  # too near
    assert index.before_offset(count + 9) == (count, count * INTERVAL_BYTES)


def test_epochs_by_offset() -> None:
    epochs = EpochHistory()
    assert (epochs.latest, epochs.epoch_of(0)) == (-1, -1)
    epochs.note(2, 0)
    epochs.note(2, 5)  # known
    epochs.note(4, 10)
    epochs.note(5, 10)  # nothing was appended in 4
    epochs.note(3, 20)  # never goes back
    assert epochs.latest == 5
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 99)] == [2, 2, 5, 5]
