"""Aborted indexes: Kafka's format, byte for byte, and look-ups compared with a naive scan of the whole log."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import AbortedTransaction
from engine.errors import NotLoaded
from engine.logs.transactions.aborted import (
    AbortedIndexDamaged,
    aborted_below,
    aborted_index_name,
    decode_aborted,
    encode_aborted,
)
from engine.logs.transactions.aborted_indexes import ANSWERS_MAX, AbortedIndexes, overlapping, touches

SOME = [AbortedTransaction(4711, 10, 20, 15), AbortedTransaction(4712, 15, 31, 32)]
# Apache Kafka 4.3.1: the output of TransactionIndex.append for the same transactions.
KAFKAS = bytes.fromhex(
    "00000000000000001267000000000000000a0000000000000014000000000000000f"
    "00000000000000001268000000000000000f000000000000001f0000000000000020"
)


class History(NamedTuple):
    """A log of batches of one record, in which transactions of several producers are interleaved."""

    aborted: list[AbortedTransaction]
    end_offset: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "data", "abort", "commit"]))))
    open_from: dict[int, int] = {}
    aborted = []
    for offset, (producer_id, step) in enumerate(steps):
        if step == "data":
            open_from.setdefault(producer_id, offset)
        elif producer_id in open_from:
            first_offset = open_from.pop(producer_id)
            if step == "abort":
                stable_offset = min(open_from.values(), default=offset + 1)
                aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
    return History(aborted, len(steps))


def test_the_bytes_are_kafkas() -> None:
    assert encode_aborted(SOME) == KAFKAS
    assert decode_aborted(KAFKAS, 0, 32) == SOME
    assert aborted_index_name(17) == "00000000000000000017.txnindex"


@given(histories())
def test_an_encoded_aborted_index_decodes_to_the_same_transactions(history: History) -> None:
    assert decode_aborted(encode_aborted(history.aborted), 0, history.end_offset) == history.aborted


@given(histories(), st.data())
def test_all_that_overlaps_is_found_wherever_segments_begin(history: History, data: st.DataObject) -> None:
    offsets = st.integers(0, history.end_offset)
    bases = sorted({0, *data.draw(st.lists(offsets, max_size=4))})
    from_offset, to_offset = data.draw(offsets), data.draw(offsets)
    ends = [*bases[1:], history.end_offset + 1]
    found, is_complete = list[AbortedTransaction](), False
    for base, end in zip(bases, ends, strict=True):
        if end > from_offset and not is_complete:
            listed = [one for one in history.aborted if base <= one.last_offset < end]
            touching, is_complete = overlapping(listed, from_offset, to_offset)
            found += touching
    assert found == [one for one in history.aborted if touches(one, from_offset, to_offset)]


def test_overlapping_returns_whether_no_later_index_has_to_be_read() -> None:
    assert overlapping(SOME, 0, 15) == (SOME[:1], True)
    assert overlapping(SOME, 0, 32) == (SOME, True)
    assert overlapping(SOME, 21, 40) == (SOME[1:], False)
    assert overlapping([], 0, 1) == ([], False)


def test_aborted_indexes_remember_their_segments_and_the_newest_lookups() -> None:
    indexes = AbortedIndexes()
    assert not indexes
    indexes.active = [*SOME]
    assert indexes.overlapping(0, 0, 40) == SOME
    indexes.finish(0, 21)
    indexes.finish(21, 30)
    assert (indexes.bases, indexes.active) == ([0], SOME[1:])
    assert indexes.overlapping(21, 21, 40) == SOME[1:]
    with pytest.raises(NotLoaded):
        indexes.overlapping(0, 5, 40)
    indexes.remember(5, 40, SOME)
    assert indexes.overlapping(0, 5, 15) == SOME[:1]
    assert indexes.overlapping(0, 21, 40) == SOME[1:]
    for from_offset, to_offset in ((4, 40), (5, 41)):
        with pytest.raises(NotLoaded):
            indexes.overlapping(0, from_offset, to_offset)
    for offset in range(ANSWERS_MAX):
        indexes.remember(offset, offset, [])
    with pytest.raises(NotLoaded):
        indexes.overlapping(0, 5, 40)


def test_aborted_indexes_follow_replaced_removed_and_truncated_segments() -> None:
    indexes = AbortedIndexes()
    indexes.know([30, 10, 20])
    assert [indexes.next_base(base) for base in (0, 10, 11, 30, 31)] == [10, 10, 20, 30, None]
    indexes.remember(10, 40, SOME)
    indexes.replace([10, 15, 20], has_any=True)
    assert indexes.bases == [10, 30]
    with pytest.raises(NotLoaded):
        indexes.overlapping(10, 10, 40)
    indexes.replace([10, 25], has_any=False)
    assert indexes.bases == [30]
    indexes.know([10])
    indexes.drop_below(30)
    assert indexes.bases == [30]
    indexes.remember(30, 40, SOME)
    indexes.truncate(30, SOME[:1])
    assert (indexes.bases, indexes.active) == ([], SOME[:1])
    indexes.know([30])
    with pytest.raises(NotLoaded):
        indexes.overlapping(30, 30, 40)


@given(histories(), st.data())
def test_a_truncation_drops_only_aborted_transactions_that_end_behind_it(history: History, data: st.DataObject) -> None:
    end_offset = data.draw(st.integers(0, history.end_offset))
    kept = aborted_below(history.aborted, end_offset)
    assert decode_aborted(encode_aborted(kept), 0, end_offset) == kept
    assert all(one.last_offset >= end_offset for one in history.aborted if one not in kept)


@pytest.mark.parametrize(
    "content",
    [
        KAFKAS[:-1],
        b"\0\1" + KAFKAS[2:],
        encode_aborted(reversed(SOME)),
        encode_aborted([SOME[0], SOME[0]]),
        encode_aborted([SOME[0]._replace(last_offset=9)]),
        encode_aborted([SOME[0]._replace(last_offset=32)]),
        encode_aborted([SOME[0]._replace(first_offset=20)]),
        encode_aborted([SOME[0]._replace(first_offset=-1)]),
        encode_aborted([SOME[0]._replace(producer_id=-1)]),
        encode_aborted([SOME[0]._replace(last_stable_offset=22)]),
        encode_aborted([SOME[0]._replace(last_stable_offset=-1)]),
    ],
)
def test_an_impossible_aborted_index_raises_aborted_index_damaged(content: bytes) -> None:
    with pytest.raises(AbortedIndexDamaged):
        decode_aborted(content, 10, 32)
