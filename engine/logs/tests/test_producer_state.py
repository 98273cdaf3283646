"""The producer table against a naive model; snapshots keep it, and damaged ones are never believed."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import AbortedTransaction
from engine.batches.batch import BatchHeader
from engine.errors import EngineError, InvalidProducerEpoch, OutOfOrderSequence
from engine.logs.producers import state
from engine.logs.producers.snapshot import (
    Snapshot,
    SnapshotDamaged,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from engine.logs.producers.state import SEQUENCE_MAX, ProducerTable, rebuilt
from engine.testing.simulated_disk import SimulatedFileSystem


def header(producer_id: int, epoch: int, sequence: int, count: int, base_offset: int = 0) -> BatchHeader:
    return BatchHeader(base_offset, 100, 0, 2, 0, 0, count - 1, 1000, 1000, producer_id, epoch, sequence, count)


def table_of(headers: list[BatchHeader]) -> ProducerTable:
    """The table after these batches."""
    return rebuilt(ProducerTable(), [(one, None) for one in headers])[0]


def test_a_producer_goes_on_with_the_next_sequence_and_duplicates_are_recognised() -> None:
    table = ProducerTable()
    assert table.check(header(1, 0, 0, 3)) is None
    table.apply(header(1, 0, 0, 3, base_offset=10))
    assert table.check(header(1, 0, 3, 1)) is None
    for sequence in (1, 2, 4, 100):
        with pytest.raises(OutOfOrderSequence):
            table.check(header(1, 0, sequence, 1))
    duplicate = table.check(header(1, 0, 0, 3))
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 12)
    with pytest.raises(OutOfOrderSequence):
        table.check(header(1, 0, 0, 2))  # begins like a batch it had, but is another


def test_the_last_five_batches_are_recognised_and_no_more() -> None:
    table = ProducerTable()
    for number in range(6):
        table.apply(header(1, 0, number, 1, base_offset=number))
    assert [table.check(header(1, 0, number, 1)) is not None for number in range(1, 6)] == [True] * 5
    with pytest.raises(OutOfOrderSequence):
        table.check(header(1, 0, 0, 1))


def test_epochs() -> None:
    table = ProducerTable()
    table.apply(header(1, 3, 0, 1))
    with pytest.raises(InvalidProducerEpoch):
        table.check(header(1, 2, 1, 1))
    with pytest.raises(OutOfOrderSequence):
        table.check(header(1, 4, 1, 1))
    assert table.check(header(1, 4, 0, 1)) is None
    table.apply(header(1, 4, 0, 1, base_offset=1))
    with pytest.raises(InvalidProducerEpoch):
        table.check(header(1, 3, 1, 1))


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert ProducerTable().check(header(1, 5, 17, 1)) is None


@pytest.mark.parametrize(("sequence", "count", "following"), [(SEQUENCE_MAX, 1, 0), (SEQUENCE_MAX - 1, 4, 2)])
def test_sequences_wrap_around(sequence: int, count: int, following: int) -> None:
    table = ProducerTable()
    table.apply(header(1, 0, sequence, count))
    assert table.check(header(1, 0, following, 1)) is None
    duplicate = table.check(header(1, 0, sequence, count))
    assert duplicate is not None
    assert duplicate.first_sequence == sequence


def test_silent_producers_expire_and_the_longest_silent_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProducerTable()
    table.apply(header(1, 0, 0, 1))
    table.expire(before_ms=999)
    assert len(table) == 1
    table.expire(before_ms=1000)
    assert len(table) == 0
    monkeypatch.setattr(state, "PRODUCERS_MAX", 2)
    for producer_id in (1, 2, 1, 3):
        table.apply(header(producer_id, 0, 0, 1))
    table.trim()
    assert [producer_id for producer_id, _ in table] == [1, 3]


def test_behind_a_beginning_that_was_turned_away_nothing_is_a_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProducerTable()
    for sequence in (6, 5, 7):
        table.turn_away(header(1, 2, sequence, 1))
    table.turn_away(header(1, 1, 0, 1))
    for sequence in (6, 7, SEQUENCE_MAX):
        with pytest.raises(OutOfOrderSequence):
            table.check(header(1, 2, sequence, 1))
    assert table.check(header(1, 3, 9, 1)) is None, "of another epoch nothing was turned away"
    assert table.check(header(1, 2, 0, 1)) is None, "the client counts anew"
    assert table.check(header(1, 2, 5, 1)) is None
    table.apply(header(1, 2, 5, 1))
    assert table.check(header(1, 2, 6, 1)) is None
    table.turn_away(header(1, 2, 6, 1))
    table.restore(1, None)
    assert table.check(header(1, 2, 6, 1)) is None, "a producer that was known waits for nothing"
    table.turn_away(header(-1, -1, -1, 1))
    table.turn_away(header(1, 2, 5, 1))
    table.expire(0)
    with pytest.raises(OutOfOrderSequence):
        table.check(header(1, 2, 6, 1))
    table.expire(0)
    assert table.check(header(1, 2, 6, 1)) is None, "it is long ago"
    monkeypatch.setattr(state, "PRODUCERS_MAX", 2)
    for producer_id in (1, 2, 3):
        table.turn_away(header(producer_id, 0, 0, 1))
    assert table.check(header(1, 0, 1, 1)) is None, "too many to remember"


@dataclass
class Model:
    """Every batch ever accepted, per producer and epoch."""

    accepted: list[BatchHeader] = field(default_factory=list)

    def verdict(self, new: BatchHeader) -> str:
        mine = [one for one in self.accepted if one.producer_id == new.producer_id]
        if not mine or new.producer_epoch > mine[-1].producer_epoch:
            return "new" if not mine or new.base_sequence == 0 else "OutOfOrderSequence"
        if new.producer_epoch < mine[-1].producer_epoch:
            return "InvalidProducerEpoch"
        mine = [one for one in mine if one.producer_epoch == new.producer_epoch]
        if any((one.base_sequence, one.record_count) == (new.base_sequence, new.record_count) for one in mine[-5:]):
            return "duplicate"
        end = (mine[-1].base_sequence + mine[-1].record_count) % (SEQUENCE_MAX + 1)
        return "new" if new.base_sequence == end else "OutOfOrderSequence"


batches = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 12), st.integers(1, 3)), min_size=1, max_size=60
)


@settings(max_examples=300)
@given(batches)
def test_table_equals_model_and_survives_a_snapshot_and_a_rebuild(sent: list[tuple[int, int, int, int]]) -> None:
    table, model, offset = ProducerTable(), Model(), 0
    for producer_id, epoch, sequence, count in sent:
        new = header(producer_id, epoch, sequence, count, offset)
        try:
            verdict = "new" if table.check(new) is None else "duplicate"
        except EngineError as error:
            verdict = type(error).__name__
        assert verdict == model.verdict(new)
        if verdict == "new":
            before = list(table)
            table.restore(producer_id, table.apply(new))
            assert sorted(table) == sorted(before)
            table.apply(new)
            model.accepted.append(new)
            offset += count
    snapshot = decode_snapshot(encode_snapshot(Snapshot(offset, table, 0)), offset)
    assert list(snapshot.producers) == list(table)
    assert list(table_of(model.accepted)) == list(table)


@given(st.data())
def test_a_snapshot_with_a_flipped_bit_is_not_believed(data: st.DataObject) -> None:
    table = table_of([header(1, 0, n, 1, n) for n in range(7)] + [header(2, 1, 0, 1, 7)])
    content = bytearray(encode_snapshot(Snapshot(8, table, 0, [AbortedTransaction(1, 2, 3, 4)])))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotDamaged):
        decode_snapshot(bytes(content), 8)


@given(st.integers(0, 200))
def test_a_torn_snapshot_is_not_believed(size_bytes: int) -> None:
    content = encode_snapshot(Snapshot(7, table_of([header(1, 0, n, 1, n) for n in range(7)]), 0))
    with pytest.raises(SnapshotDamaged):
        decode_snapshot(content[: min(size_bytes, len(content) - 1)], 7)


def test_a_temporary_snapshot_left_by_a_crash_is_gone_after_the_next_snapshot() -> None:
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/orders-0")
    filesystem.open("/orders-0/snapshot.tmp", create=True).write_at([bytes(10_000)], 0)
    table = table_of([header(1, 0, n, 1, n) for n in range(7)])
    write_snapshot(filesystem, "/orders-0", Snapshot(7, table, 0))
    assert filesystem.list_dir("/orders-0") == ["00000000000000000007.snapshot"]
    assert list(read_snapshot(filesystem, "/orders-0", 7).producers) == list(table)
