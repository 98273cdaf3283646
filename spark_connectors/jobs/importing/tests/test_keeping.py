"""A partition is filled to its end despite interruptions, and records of other writers are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from engine.batches.append_at_offset_checks import check_kept, split
from spark_connectors.jobs.importing import requests
from spark_connectors.jobs.importing.errors import ImportRefused, Interrupted
from spark_connectors.jobs.importing.keeping import PATIENCE_S, Filled, Filler
from spark_connectors.jobs.importing.sides import Span
from spark_connectors.jobs.importing.tests.pieces import END, PIECES, VISIBLE, records_of
from spark_connectors.records.tests.test_plain import LIMITS, NOW_MS
from spark_connectors.source.fetching import Piece
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.tests.fakes import FakeClock

WANTED = OffsetRange(TopicPartition("t", 0), bytes(16), 3, END)


class Model:
    """Both partitions: the source has PIECES, and the target follows a broker's rules. With `rng`, requests or answers
    are lost, or a part of a request is executed.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self.log = b""
        self.now = Span(0, 0)
        self.checked: list[Span] = []
        self.requests = 0
        self._rng = rng

    def span(self) -> Span:
        return self.now

    def check(self, span: Span) -> None:
        self.checked.append(span)

    def pieces(self, start: int, *, is_earliest: bool) -> Iterator[Piece]:
        assert is_earliest is (start == WANTED.start)
        for piece in PIECES:
            if piece.batches[-1].next_offset > start:
                yield piece._replace(start=max(start, piece.start))

    def append(self, log_end: int, body: bytes) -> int:
        self.requests += 1
        mood = self._rng.random() if self._rng else 1.0
        if mood < 0.2:
            raise Interrupted("lost")
        if log_end != self.now.end:
            raise Interrupted("409")
        batches = split(memoryview(bytearray(body)))
        for batch in batches[:1] if mood < 0.4 else batches:
            header = check_kept(batch, LIMITS, NOW_MS)
            assert header.base_offset >= self.now.end
            start = header.base_offset if self.now.is_empty else self.now.start
            self.now, self.log = Span(start, header.next_offset), self.log + bytes(batch)
        if mood < 0.6:
            raise Interrupted("not answered")
        return self.now.end


def filled(model: Model, clock: FakeClock | None = None) -> Filled:
    return Filler(WANTED, 0, model, clock or FakeClock()).run()


def check(model: Model) -> None:
    assert model.now == (WANTED.start, END)
    assert [one[0] for one in records_of(model.log)] == VISIBLE


def test_a_target_is_filled_from_the_begin_to_the_end() -> None:
    model = Model()
    found = filled(model)
    check(model)
    assert (found.end, found.records, found.size_bytes) == (END, len(VISIBLE), len(model.log))
    assert model.checked == [], "there was nothing"
    again = filled(model)
    assert (again.records, model.requests) == (0, 1)
    assert model.checked == [(WANTED.start, END)]


@pytest.mark.parametrize("seed", range(40))
def test_import_appends_each_record_once_despite_interruptions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_BYTES", Random(seed).choice((1, 200, 10_000)))
    model = Model(Random(seed))
    filled(model)
    check(model)


def test_filler_without_progress_gives_up_after_its_patience() -> None:
    class Away(Model):
        def append(self, log_end: int, body: bytes) -> int:
            raise Interrupted("nobody is there")

    clock = FakeClock()
    begun_s = clock.now_s()
    with pytest.raises(Interrupted, match="nobody is there"):
        filled(Away(), clock)
    assert PATIENCE_S < clock.now_s() - begun_s < 2 * PATIENCE_S


def test_filler_checks_records_of_another_writer_before_it_continues() -> None:
    class Shared(Model):
        def append(self, log_end: int, body: bytes) -> int:
            super().append(log_end, body)
            self.now = Span(self.now.start, self.now.end + 1)
            return self.now.end

        def check(self, span: Span) -> None:
            raise ImportRefused("not its own")

    with pytest.raises(ImportRefused, match="not its own"):
        filled(Shared())


def test_the_end_of_a_source_that_has_nothing_is_kept() -> None:
    class Nothing(Model):
        def pieces(self, start: int, *, is_earliest: bool) -> Iterator[Piece]:
            return iter(())

    model = Nothing()
    Filler(OffsetRange(WANTED.place, bytes(16), 500, 500), 0, model, FakeClock()).run()
    assert (model.now.end, records_of(model.log)) == (500, [])
