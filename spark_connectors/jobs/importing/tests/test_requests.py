"""Batches for a target that keeps the offsets of its source: all committed records, and the same end."""

from __future__ import annotations

import pytest

from engine.batches.append_at_offset_checks import check_kept, split
from spark_connectors.jobs.importing import requests
from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.requests import Plain, plain_of, requests_of
from spark_connectors.jobs.importing.tests.pieces import END, PIECES, VISIBLE, piece_of, records_of
from spark_connectors.records.tests.test_plain import LIMITS, NOW_MS, batch_of


def plain() -> list[Plain]:
    found: list[Plain] = []
    for piece in PIECES:
        found += plain_of(piece, found[-1].end if found else 0)
    return found


def test_target_has_the_committed_records_and_the_end_of_its_source() -> None:
    batches = plain()
    assert [one[0] for one in records_of(b"".join(one.batch for one in batches))] == VISIBLE
    assert sum(one.records for one in batches) == len(VISIBLE)
    assert batches[-1].end == END
    ends = [check_kept(memoryview(one.batch), LIMITS, NOW_MS).next_offset for one in batches]
    assert ends == [one.end for one in batches]


def test_each_piece_ends_where_the_next_one_begins() -> None:
    """Then an interrupted import continues at the end of a batch of the source."""
    for piece in PIECES:
        *_, last = plain_of(piece, piece.start)
        assert last.end == piece.batches[-1].next_offset


def test_aborted_records_become_an_empty_batch_of_their_offsets() -> None:
    (only,) = plain_of(PIECES[1], 8)
    header = check_kept(memoryview(only.batch), LIMITS, NOW_MS)
    assert (header.base_offset, header.next_offset, header.record_count) == (8, 11, 0)


def test_empty_target_begins_at_the_start_of_its_source() -> None:
    """The start of the target is that of the source, so an import that died there finds it."""
    piece = piece_of(8, batch_of([11, 12]))
    for begins, first in [(True, 8), (False, 11)]:
        batches = list(plain_of(piece, 0, begins=begins))
        assert check_kept(memoryview(batches[0].batch), LIMITS, NOW_MS).base_offset == first
        assert [one[0] for one in records_of(b"".join(one.batch for one in batches))] == [11, 12]


def test_requests_are_as_large_as_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = plain()
    monkeypatch.setattr(requests, "REQUEST_BYTES", 200)
    made = list(requests_of(batches))
    assert b"".join(one.body for one in made) == b"".join(one.batch for one in batches)
    assert sum(one.batches for one in made) == len(batches)
    assert len(made) > 2
    assert all(len(one.body) <= 200 or one.batches == 1 for one in made)
    assert [len(split(memoryview(one.body))) for one in made] == [one.batches for one in made]
    assert made[-1].end == END
    monkeypatch.setattr(requests, "REQUEST_BATCHES", 2)
    assert {one.batches for one in requests_of(batches)} <= {1, 2}


def test_a_batch_that_no_request_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_MAX_BYTES", 70)
    with pytest.raises(ImportRefused, match="does not fit into a request of 70"):
        list(requests_of(plain()))
