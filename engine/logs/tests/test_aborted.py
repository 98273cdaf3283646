"""The index of aborted transactions is Kafka's, byte for byte, and finds what a naive look at the whole log finds."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.logs.aborted import (
    AbortedIndexDamaged,
    AbortedTransaction,
    aborted_below,
    aborted_index_name,
    decode_aborted,
    encode_aborted,
    overlapping,
)

SOME = [AbortedTransaction(4711, 10, 20, 15), AbortedTransaction(4712, 15, 31, 32)]
# Apache Kafka 4.3.1: what TransactionIndex.append makes of the same.
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
    begun: dict[int, int] = {}
    aborted = []
    for offset, (producer_id, step) in enumerate(steps):
        if step == "data":
            begun.setdefault(producer_id, offset)
        elif producer_id in begun:
            first_offset = begun.pop(producer_id)
            if step == "abort":
                stable_offset = min(begun.values(), default=offset + 1)
                aborted.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
    return History(aborted, len(steps))


def test_the_bytes_are_kafkas() -> None:
    assert encode_aborted(SOME) == KAFKAS
    assert decode_aborted(KAFKAS, 0, 32) == SOME
    assert aborted_index_name(17) == "00000000000000000017.txnindex"


@given(histories())
def test_what_is_written_is_read_back(history: History) -> None:
    assert decode_aborted(encode_aborted(history.aborted), 0, history.end_offset) == history.aborted


@given(histories(), st.data())
def test_all_that_overlaps_is_found_wherever_segments_begin(history: History, data: st.DataObject) -> None:
    offsets = st.integers(0, history.end_offset)
    bases = sorted({0, *data.draw(st.lists(offsets, max_size=4))})
    fetch_offset, upper_offset = data.draw(offsets), data.draw(offsets)
    ends = [*bases[1:], history.end_offset + 1]
    segments = [
        [one for one in history.aborted if base <= one.last_offset < end]
        for base, end in zip(bases, ends, strict=True)
        if end > fetch_offset
    ]
    naive = [one for one in history.aborted if one.first_offset < upper_offset and one.last_offset >= fetch_offset]
    assert overlapping(segments, fetch_offset, upper_offset) == naive


def test_no_more_segments_are_looked_at_than_needed() -> None:
    segments = iter([SOME, SOME])
    assert overlapping(segments, 0, 32) == SOME
    assert list(segments) == [SOME]


@given(histories(), st.data())
def test_a_cut_takes_those_that_end_behind_it(history: History, data: st.DataObject) -> None:
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
def test_what_cannot_be_is_damaged(content: bytes) -> None:
    with pytest.raises(AbortedIndexDamaged):
        decode_aborted(content, 10, 32)
