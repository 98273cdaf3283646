"""Correct segments have no findings, and wrong ones have findings that name the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Outcome
from engine.api import TopicIdPartition as Place
from engine.batches.batch import Record, parse_header, seal_batch
from engine.logs.segments.footer import Tally
from spark_connectors.jobs.audit.segments import FINDINGS_MAX, Finding, Findings, ProblemKind, SegmentAudit
from spark_connectors.records.tests.written import LOG_APPEND_TIME, NOW_MS, TRANSACTIONAL, batch
from spark_connectors.segments.sealed import Segment
from spark_connectors.source.tests.world import Log


def log_of(*sizes: int) -> Log:
    """A log with batches of these numbers of records."""
    log = Log()
    for size in sizes:
        log.append(*[b"%d" % number for number in range(size)])
    return log


def segment_of(log: Log) -> Segment:
    """Complete description of the log's segment, as from a broker."""
    tally = Tally()
    places = []
    position = 0
    for one in log.batches:
        header = parse_header(memoryview(one))
        tally.add(header)
        places.append((header.base_offset, position))
        position += len(one)
    footer = tally.footer(Place(bytes(16), "t", 0), log.start, position)
    described = log.start, log.end, position, footer.max_timestamp_ms, footer.digest.hex()
    least_ms = -1 if footer.min_timestamp_ms is None else footer.min_timestamp_ms
    return Segment(*described, tuple(log.aborted), tuple(places[1:]), min_timestamp_ms=least_ms, records=footer.records)


def audited(content: bytes, segment: Segment, chunk_bytes: int = 1 << 30, *, has_records: bool = True) -> Findings:
    findings = Findings()
    audit = SegmentAudit(segment, findings, segment.aborted, segment.positions, has_records=has_records)
    size = chunk_bytes
    while audit.position < len(content) and not audit.is_over:
        taken = audit.take(memoryview(content)[audit.position : audit.position + size])
        if not taken and audit.position + size >= len(content):
            break
        size = chunk_bytes if taken else 2 * size
    audit.finish()
    return findings


def kinds_found(content: bytes, segment: Segment) -> list[ProblemKind]:
    return [one.kind for one in audited(content, segment).kept]


def transactions(*outcomes: Outcome) -> Log:
    """A log with one transaction of each outcome, by different producers whose batches alternate."""
    log = Log()
    firsts = [log.send(number, b"a", b"b") for number in range(len(outcomes))]
    log.append(b"plain")
    for number, outcome in enumerate(outcomes):
        log.send(number, b"c")
        log.decide(number, outcome, firsts[number])
    return log


LOGS = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(lambda sizes: log_of(*sizes))


@given(LOGS, st.integers(61, 400))
def test_segment_that_matches_its_description_has_no_findings(log: Log, chunk_bytes: int) -> None:
    assert audited(b"".join(log.batches), segment_of(log), chunk_bytes) == Findings()


def test_transactions_with_their_markers_have_no_findings() -> None:
    log = transactions(Outcome.COMMIT, Outcome.ABORT, Outcome.COMMIT, Outcome.ABORT)
    assert audited(b"".join(log.batches), segment_of(log)) == Findings()


@given(LOGS, st.integers(0, 10**6), st.integers(0, 7), st.integers(61, 400))
def test_every_flipped_bit_is_found(log: Log, place: int, bit: int, chunk_bytes: int) -> None:
    content = bytearray(b"".join(log.batches))
    content[place % len(content)] ^= 1 << bit
    assert audited(bytes(content), segment_of(log), chunk_bytes, has_records=False).kept


def test_damaged_batch_is_found_and_later_batches_are_still_audited() -> None:
    log = log_of(3, 3, 3, 3)
    content = bytearray(b"".join(log.batches))
    borders = [0]
    for one in log.batches:
        borders.append(borders[-1] + len(one))
    for number in (1, 3):
        content[borders[number] + 70] ^= 1
    found = audited(bytes(content), segment_of(log)).kept
    assert [(one.kind, one.position, one.offset) for one in found] == [
        (ProblemKind.BATCH, borders[1], 3),
        (ProblemKind.BATCH, borders[3], 9),
    ]
    assert "the CRC of the batch" in found[0].detail


def test_a_length_that_is_wrong_ends_it() -> None:
    log = log_of(3, 3)
    content = bytearray(b"".join(log.batches))
    content[len(log.batches[0]) + 8] ^= 0x40
    left = len(log.batches[1])
    assert audited(bytes(content), segment_of(log)).kept == [
        Finding(ProblemKind.BATCH, "no batch begins there", left, None),
        Finding(ProblemKind.SIZE, f"behind the last batch there are {left} bytes that are none", left),
    ]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"digest": "0" * 64}, ProblemKind.DIGEST),
        ({"records": 7}, ProblemKind.RECORDS),
        ({"max_timestamp_ms": 5}, ProblemKind.TIMES),
        ({"min_timestamp_ms": 1 << 60}, ProblemKind.TIMES),
        ({"base": 1}, ProblemKind.OFFSETS),
        ({"end": 5}, ProblemKind.OFFSETS),
        ({"positions": ((3, 20),)}, ProblemKind.POSITION),
    ],
)
def test_description_that_contradicts_the_batches_is_found(changes: dict[str, Any], kind: ProblemKind) -> None:
    log = log_of(3, 3)
    found = kinds_found(b"".join(log.batches), segment_of(log)._replace(**changes))
    assert set(found) == {kind}


def test_a_position_of_another_offset_is_none() -> None:
    log = log_of(3, 3)
    segment = segment_of(log)
    ((offset, position),) = segment.positions
    (found,) = audited(b"".join(log.batches), segment._replace(positions=((offset - 1, position),))).kept
    assert found[:1] + found[2:] == (ProblemKind.POSITION, position, offset - 1)


def test_batches_that_go_back_are_found() -> None:
    log = log_of(3, 3, 3)
    log.batches[1], log.batches[2] = log.batches[2], log.batches[1]
    assert kinds_found(b"".join(log.batches), segment_of(log)) == [ProblemKind.OFFSETS]


def test_bytes_behind_the_last_batch_are_found() -> None:
    log = log_of(3)
    segment = segment_of(log)
    content = log.batches[0] + bytes(20)
    assert kinds_found(content, segment._replace(size_bytes=len(content))) == [ProblemKind.SIZE]


@pytest.mark.parametrize(
    ("outcome", "aborted", "detail"),
    [
        (Outcome.ABORT, (), "was aborted, and is not told"),
        (Outcome.ABORT, ((0, 0, 3),), "was aborted, and is not told"),
        (Outcome.COMMIT, ((0, 0, 4),), "was committed, and is told as aborted"),
        (Outcome.COMMIT, ((0, 0, 9),), "was committed, and is told as aborted"),
    ],
)
def test_transactions_and_their_markers(outcome: Outcome, aborted: Sequence[tuple[int, int, int]], detail: str) -> None:
    log = transactions(outcome)
    (found,) = audited(b"".join(log.batches), segment_of(log)._replace(aborted=tuple(aborted))).kept
    assert found.kind is ProblemKind.ABORTED
    assert found.detail.endswith(detail)
    assert found.offset == 4


def test_missing_abort_marker_is_found_unless_it_lies_beyond_the_segment() -> None:
    log = transactions(Outcome.ABORT)
    del log.batches[-1]
    segment = segment_of(log)
    (found,) = audited(b"".join(log.batches), segment).kept
    assert found.detail == "the transaction of producer 0 from 0 on has no marker at 4"
    assert audited(b"".join(log.batches), segment._replace(end=4)) == Findings()
    assert audited(b"".join(log.batches), segment._replace(aborted=None)) == Findings()


def test_abort_marker_without_records_in_the_segment_has_no_finding() -> None:
    log = transactions(Outcome.ABORT)
    del log.batches[0]
    del log.batches[1]
    assert kinds_found(b"".join(log.batches), segment_of(log)._replace(aborted=())) == []


def test_a_batch_that_was_emptied_belongs_to_no_transaction() -> None:
    log = transactions(Outcome.ABORT)
    for place in (0, 2):
        base = parse_header(memoryview(log.batches[place])).base_offset
        emptied = batch(Record(), kept=(), base_offset=base, attributes=TRANSACTIONAL, producer=(0, 0, 0))
        log.batches[place] = emptied
    assert kinds_found(b"".join(log.batches), segment_of(log)._replace(aborted=())) == []


def test_records_are_looked_at_where_that_is_asked_for() -> None:
    content = batch(Record(b"k", b"v", NOW_MS), Record(b"k", b"v", NOW_MS + 5), max_timestamp_ms=NOW_MS + 1)
    log = Log(0, 2, [content])
    (found,) = audited(content, segment_of(log)).kept
    assert found == Finding(ProblemKind.TIMES, f"a record has {NOW_MS + 5}, and its batch says {NOW_MS + 1}", 0, 0)
    assert audited(content, segment_of(log), has_records=False) == Findings()


def test_records_that_are_none_are_found_behind_a_right_crc() -> None:
    def wrong(base: int) -> bytes:
        return bytes(
            seal_batch(
                b"\x0e\0\0\0\1\1\0\0",
                record_count=1,
                base_offset=base,
                leader_epoch=0,
                attributes=0,
                timestamps_ms=(NOW_MS, NOW_MS),
                producer=(-1, -1, -1),
                last_offset_delta=0,
            )
        )

    right = batch(Record(b"k", b"v", NOW_MS), base_offset=1)
    log = Log(0, 3, [wrong(0), right, wrong(2)])
    found = audited(b"".join(log.batches), segment_of(log)).kept
    assert [(one.kind, one.offset) for one in found] == [(ProblemKind.BATCH, 0), (ProblemKind.BATCH, 2)]


def test_times_of_a_brokers_clock_are_not_before_the_least() -> None:
    content = batch(Record(b"k", b"v", 0), attributes=LOG_APPEND_TIME, max_timestamp_ms=NOW_MS)
    log = Log(0, 1, [content])
    segment = segment_of(log)
    assert segment.min_timestamp_ms == NOW_MS
    assert audited(content, segment) == Findings()
    assert set(kinds_found(content, segment._replace(min_timestamp_ms=NOW_MS + 1))) == {ProblemKind.TIMES}


def test_findings_are_bounded() -> None:
    log = log_of(*[1] * (FINDINGS_MAX + 10))
    content = bytearray(b"".join(log.batches))
    position = 0
    for one in log.batches:
        content[position + 65] ^= 1
        position += len(one)
    found = audited(bytes(content), segment_of(log))
    assert (len(found.kept), found.left_out) == (FINDINGS_MAX, 10)
