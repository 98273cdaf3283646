"""Committed records are visible, and no others, for any start offset and any sequence of calls."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Marker, Outcome
from engine.batches.batch import Record, stamp
from engine.batches.markers import build_marker
from spark_connectors.records.batches import Batch, batches_of
from spark_connectors.records.tests.written import CONTROL, NOW_MS, TRANSACTIONAL, batch
from spark_connectors.records.visible import Aborted, Visibility, visible


@dataclass
class History:
    """A log of several producers, and the outcomes of their transactions."""

    log: bytes = b""
    end: int = 0
    open: dict[int, tuple[int, list[int]]] = field(default_factory=dict)  # producer: first offset, its batches
    aborted: list[Aborted] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)  # base offsets

    def write(self, producer: int | None, count: int = 1) -> None:
        attributes, by = (0, (-1, -1, -1)) if producer is None else (TRANSACTIONAL, (producer, 0, 0))
        self.log += batch(*[Record(b"k")] * count, base_offset=self.end, attributes=attributes, producer=by)
        if producer is None:
            self.committed.add(self.end)
        else:
            self.open.setdefault(producer, (self.end, []))[1].append(self.end)
        self.end += count

    def finish(self, producer: int, outcome: Outcome) -> None:
        made = build_marker(Marker(producer, 0, 0, outcome), NOW_MS)
        stamp(memoryview(made), self.end, 0)
        self.log += made
        first, batches = self.open.pop(producer, (self.end, []))
        if outcome is Outcome.COMMIT:
            self.committed |= {*batches}
        elif batches:
            self.aborted.append(Aborted(producer, first, self.end))
        self.end += 1

    def aborted_from(self, offset: int, *, with_ends: bool) -> list[tuple[int, int] | tuple[int, int, int]]:
        """Aborted transactions as a broker returns them to a Fetch at this offset, without those that ended before."""
        return [
            (each.producer_id, each.first_offset, each.last_offset or 0)
            if with_ends
            else (each.producer_id, each.first_offset)
            for each in self.aborted
            if each.last_offset is not None and each.last_offset >= offset
        ]


steps = st.tuples(
    st.sampled_from(["write", "write", "commit", "abort"]), st.none() | st.integers(1, 3), st.integers(1, 3)
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History()
    for what, producer, count in draw(st.lists(steps, min_size=1, max_size=25)):
        if what == "write":
            history.write(producer, count)
        elif producer is not None:
            history.finish(producer, Outcome.COMMIT if what == "commit" else Outcome.ABORT)
    history.write(None)
    for producer in sorted(history.open):  # a reader stops at the last stable offset
        history.finish(producer, draw(st.sampled_from(Outcome)))
    return history


@given(histories(), st.booleans(), st.data())
def test_read_committed(history: History, with_ends: bool, data: st.DataObject) -> None:
    batches = batches_of(history.log)
    begin = data.draw(st.integers(0, len(batches) - 1))
    fetched = batches[begin:]
    offset = data.draw(st.integers(fetched[0].base_offset, fetched[0].next_offset - 1))
    aborted = history.aborted_from(offset, with_ends=with_ends)
    expected = [one for one in fetched if one.base_offset in history.committed]
    assert visible(fetched, aborted, is_committed_only=True) == expected

    visibility = Visibility(aborted, is_committed_only=True)
    cut = data.draw(st.integers(0, len(fetched)))
    assert visibility.visible(fetched[:cut]) + visibility.visible(fetched[cut:]) == expected


@given(histories())
def test_read_uncommitted(history: History) -> None:
    batches = batches_of(history.log)
    assert visible(batches, [], is_committed_only=False) == [one for one in batches if not one.is_control]


def batches_of_history(history: History) -> list[Batch]:
    return visible(batches_of(history.log), history.aborted_from(0, with_ends=False), is_committed_only=True)


def test_committed_batch_of_a_producer_after_its_abort_is_visible() -> None:
    history = History()
    history.write(1)
    history.finish(1, Outcome.ABORT)
    history.write(1)
    history.finish(1, Outcome.COMMIT)
    assert [one.base_offset for one in batches_of_history(history)] == [2]


def test_non_transactional_batch_of_a_producer_with_an_abort_is_visible() -> None:
    log = batch(Record(), base_offset=0, producer=(1, 0, 0))
    assert len(visible(batches_of(log), [(1, 0)], is_committed_only=True)) == 1


@pytest.mark.parametrize("last_offset", [0, None])
def test_an_aborted_transaction_begun_in_an_earlier_segment(last_offset: int | None) -> None:
    """The first offset lies before all read batches. A known last offset replaces a marker that compaction removed."""
    log = batch(Record(), Record(), base_offset=10, attributes=TRANSACTIONAL, producer=(1, 0, 0))
    log += batch(Record(), base_offset=12, attributes=TRANSACTIONAL | CONTROL, producer=(1, 0, -1), kept=[])
    log += batch(Record(), base_offset=20, attributes=TRANSACTIONAL, producer=(1, 0, 5))
    found = visible(batches_of(log), [(1, 3, None if last_offset is None else 12)], is_committed_only=True)
    assert [one.base_offset for one in found] == ([] if last_offset is None else [20])
