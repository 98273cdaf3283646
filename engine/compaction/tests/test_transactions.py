"""Compaction of transactions: single batches, one after the other."""

from engine.api import AbortedTransaction, Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT, BatchHeader, Record, build_batch, parse_header
from engine.batches.markers import build_marker, parse_marker
from engine.compaction.rules import NewestOffsets, Rules
from engine.compaction.transactions import PassedTransactions
from testkit.logs import NOW_MS

RETENTION_MS = 1000
FAR = 1 << 40
ABORTED = AbortedTransaction(7, 0, 2, 3)


def placed(batch: bytearray, offset: int) -> tuple[memoryview, BatchHeader]:
    batch[:8] = offset.to_bytes(8, "big")
    return memoryview(batch), parse_header(batch)


def data(offset: int, producer_id: int = 7, key: bytes = b"k") -> tuple[memoryview, BatchHeader]:
    made = build_batch([Record(key, b"v", NOW_MS)], attributes=TRANSACTIONAL_BIT, producer=(producer_id, 0, offset))
    return placed(made, offset)


def marker(offset: int, outcome: Outcome, producer_id: int = 7) -> tuple[memoryview, BatchHeader]:
    return placed(build_marker(Marker(producer_id, 0, 4, outcome), NOW_MS), offset)


def rules(
    *, end_offset: int = FAR, now_ms: int = NOW_MS, last_offsets: dict[int, int] | None = None, clean_to: int = FAR
) -> Rules:
    newest = NewestOffsets(FAR, clean_to)
    newest.end_offset = end_offset
    return Rules(newest, now_ms, RETENTION_MS, last_offsets or {})


def test_aborted_records_do_not_replace_others_and_are_dropped() -> None:
    newest = NewestOffsets(FAR, 0)
    newest.transactions.expect([AbortedTransaction(7, 1, 2, 3)])
    for batch, header in (data(0), data(1), marker(2, Outcome.ABORT), data(3, key=b"other")):
        newest.note(batch, header)
    assert newest.offsets == {b"k": 0, b"other": 3}
    made = Rules(newest, NOW_MS, RETENTION_MS, {})
    made.transactions.expect([AbortedTransaction(7, 1, 2, 3)])
    cleaned = [made.cleaned(*one, FAR) for one in (data(0), data(1), marker(2, Outcome.ABORT), data(3, key=b"other"))]
    assert [one is not None for one in cleaned] == [True, False, True, True]
    assert made.transactions.aborted_to == 3, "the marker is why"
    assert made.kept == [AbortedTransaction(7, 1, 2, 3)], "its marker is still there"


def test_the_last_batch_of_a_producer_or_segment_keeps_its_header() -> None:
    for last_offsets, end_offset in (({7: 0}, FAR), ({}, 1)):
        made = rules(last_offsets=last_offsets)
        made.transactions.expect([ABORTED])
        cleaned = made.cleaned(*data(0), end_offset)
        assert cleaned is not None
        assert (parse_header(cleaned).record_count, parse_header(cleaned).is_transactional) == (0, True)


def test_a_marker_stays_while_any_batch_of_its_transaction_is_left() -> None:
    for outcome in Outcome:
        made = rules(now_ms=NOW_MS + 10 * RETENTION_MS)
        batch, header = data(0)
        made.cleaned(batch, header._replace(record_count=0), FAR)  # even a header without records
        ends = marker(2, outcome)
        assert made.cleaned(*ends, FAR) is ends[0]


def test_a_marker_that_came_with_a_horizon_has_none_while_anything_is_left_here() -> None:
    """The marker was copied from a log without other records of the transaction.

    When no record is left here either, it gets a new horizon, even if the old one is past.
    """
    for outcome in Outcome:
        bare = marker(2, outcome)
        horizon = rules().cleaned(*bare, FAR)
        assert horizon is not None
        copied = memoryview(horizon), parse_header(horizon)
        made = rules(now_ms=NOW_MS + 10 * RETENTION_MS)
        made.cleaned(*data(0), FAR)
        assert made.cleaned(*copied, FAR) == bare[0]
        assert (made.stamped_ms, made.markers_to) == (None, 0)
        for clean_to in (0, 2):
            made = rules(now_ms=NOW_MS + 10 * RETENTION_MS, clean_to=clean_to)
            cleaned = made.cleaned(*copied, FAR)
            assert cleaned is not None
            assert parse_header(cleaned).delete_horizon_ms == NOW_MS + 11 * RETENTION_MS
            stamped_ms = NOW_MS + 11 * RETENTION_MS
            assert (made.stamped_ms, made.markers_to, made.dropped_ms) == (stamped_ms, 0, None)
        made = rules(now_ms=NOW_MS + 10 * RETENTION_MS, clean_to=3)
        assert made.cleaned(*copied, FAR) is None
        assert (made.stamped_ms, made.markers_to, made.dropped_ms) == (None, 3, NOW_MS + RETENTION_MS)


def test_a_marker_that_ends_nothing_gets_a_horizon_and_goes_behind_it() -> None:
    for outcome in Outcome:
        made = rules()
        made.transactions.expect([ABORTED] if outcome is Outcome.ABORT else [])
        cleaned = made.cleaned(*marker(2, outcome), FAR)
        assert cleaned is not None
        header = parse_header(cleaned)
        assert header.delete_horizon_ms == NOW_MS + RETENTION_MS
        assert header.max_timestamp_ms == NOW_MS
        assert parse_marker(header, cleaned) == Marker(7, 0, 4, outcome)
        assert made.kept == [], "its entry goes before it"
        again = memoryview(cleaned), header
        assert rules(now_ms=NOW_MS + RETENTION_MS - 1).cleaned(*again, FAR) is again[0]
        late = NOW_MS + RETENTION_MS
        assert rules(now_ms=late).cleaned(*again, FAR) is None
        assert rules(now_ms=late, last_offsets={7: 2}).cleaned(*again, FAR) is again[0], "it tells the epoch"
        emptied = rules(now_ms=late).cleaned(*again, 3)
        assert emptied is not None
        assert parse_header(emptied).record_count == 0
        last = memoryview(emptied), parse_header(emptied)
        assert rules().cleaned(*last, 3) is last[0], "it tells where the segment ends"
        assert rules().cleaned(*last, FAR) is None
        assert rules(end_offset=2).cleaned(*last, FAR) is last[0], "nobody has looked there"


def test_aborted_batches_and_markers_behind_the_end_of_the_pass_stay() -> None:
    made = rules(end_offset=1)
    made.transactions.expect([AbortedTransaction(7, 1, 2, 3)])
    for one in (data(1), marker(2, Outcome.ABORT)):
        assert made.cleaned(*one, FAR) is one[0]
    assert made.kept == [AbortedTransaction(7, 1, 2, 3)]


def test_a_transaction_ends_with_its_marker() -> None:
    passed = PassedTransactions()
    later = AbortedTransaction(7, 5, 6, 7)
    passed.expect([ABORTED, later])
    passed.expect([ABORTED, later])  # of the next segment, which they touch too
    _, header = data(0)
    assert passed.has_aborted(header)
    assert not passed.has_aborted(data(1, producer_id=8)[1])
    batch, header = marker(2, Outcome.ABORT)
    ends = parse_marker(header, batch)
    assert ends is not None
    assert passed.end(header, ends) == (False, ABORTED)
    assert not passed.has_aborted(data(3)[1]), "of a transaction that was committed"
    batch, header = marker(4, Outcome.COMMIT)
    ends = parse_marker(header, batch)
    assert ends is not None
    assert passed.end(header, ends) == (False, None)
    assert passed.has_aborted(data(5)[1])
    assert not passed.has_aborted(data(9)[1]), "behind its marker, which is gone"


def test_plain_batches_are_of_no_transaction() -> None:
    passed = PassedTransactions()
    passed.expect([AbortedTransaction(-1, 0, 9, 9)])
    _, header = placed(build_batch([Record(b"k", b"v", NOW_MS)]), 1)
    assert not passed.has_aborted(header)
