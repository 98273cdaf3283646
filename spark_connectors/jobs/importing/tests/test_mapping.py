"""Each record is appended once, and the offset map is correct, wherever an import dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.batches.batch import parse_header
from engine.batches.produce_checks import check_produced
from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.mapping import (
    Mapped,
    Note,
    Position,
    ReadPositions,
    Step,
    WritePosition,
    load_progress,
    relayed,
)
from spark_connectors.jobs.importing.offset_map import MapFile, OffsetMap
from spark_connectors.jobs.importing.tests.pieces import END, PIECES, VISIBLE, RecordRow, records_of
from spark_connectors.records.tests.test_plain import LIMITS, NOW_MS
from spark_connectors.sink.relay import AddPartitions, AddRecord, Append, Begin, Commit, Producer
from spark_connectors.sink.requests import run
from spark_connectors.wire import TopicPartition

PLACE = TopicPartition("t", 0)
SOURCE_ID = bytes(range(16))


class Dead(Exception):
    """End of the process."""


class Target:
    """A partition with transactions of one transactional id, and its group. It dies at a step, before or after its
    effect.
    """

    def __init__(self, file: MapFile) -> None:
        self.file = file
        self.log: list[RecordRow | None] = [None] * 5  # records of another writer
        self.positions: dict[int, tuple[int, str]] = {}
        self.steps_left = 10**6
        self.is_done_before = False
        self._epoch = 0
        self._open: list[RecordRow] = []
        self._positions: dict[int, tuple[int, str]] = {}
        self._sequence = 0

    def perform(self, step: Step) -> Any:
        self.steps_left -= 1
        if self.steps_left == 0 and not self.is_done_before:
            raise Dead
        answer = self._done(step)
        if self.steps_left == 0:
            raise Dead
        return answer

    def _done(self, step: Step) -> Any:
        match step:
            case Begin():
                self._epoch += 1
                self._end(is_committed=False)
                self._sequence = 0
                return Producer(7, self._epoch)
            case ReadPositions():
                return dict(self.positions)
            case Append(producer, batches):
                return {place: self._append(producer, batch) for place, batch in batches.items()}
            case WritePosition(producer, partition, offset, metadata):
                assert producer.epoch == self._epoch
                self._positions[partition] = offset, metadata
            case Note(runs):
                self.file.add(runs)
            case Commit():
                self._end(is_committed=True)
            case AddPartitions() | AddRecord():
                pass
        return None

    def _append(self, producer: Producer, batch: bytearray) -> int:
        header = parse_header(batch)
        check_produced(memoryview(batch), LIMITS, NOW_MS, allow_zstd=True)
        assert (header.producer_id, header.producer_epoch) == (producer.id, self._epoch)
        assert header.base_sequence == self._sequence
        self._sequence += header.record_count
        offset = len(self.log) + len(self._open)
        self._open += records_of(bytes(batch))
        return offset

    def _end(self, *, is_committed: bool) -> None:
        """Aborted records and markers use offsets too."""
        self.log += [*(self._open if is_committed else [None] * len(self._open)), *([None] if self._open else [])]
        self.positions |= self._positions if is_committed else {}
        self._open, self._positions = [], {}


def imported(target: Target) -> Mapped:
    """Import the rest of the source."""
    mapped = run(load_progress(SOURCE_ID), target)
    positions = mapped.positions
    target.file.begin(
        {number: one.offset for number, one in positions.items()},
        {number: one.records for number, one in positions.items()},
    )
    for piece in PIECES:
        if 0 not in positions or positions[0].offset <= piece.start:
            run(relayed(mapped, PLACE, SOURCE_ID, piece), target)
    return mapped


def check(target: Target) -> None:
    """Compare the target and the offset map with the source."""
    source = {one[0]: one[1:] for piece in PIECES for one in records_of(bytes(piece.records)) if one[0] in VISIBLE}
    appended = [(at, one) for at, one in enumerate(target.log) if one is not None]
    assert [one[1:] for _, one in appended] == [source[at] for at in VISIBLE], "in their order, each once"
    runs = target.file.begin({0: END}, {0: len(VISIBLE)})
    found = OffsetMap(runs)
    assert {at: found.translated(at) for at in VISIBLE} == dict(zip(VISIBLE, [at for at, _ in appended], strict=True))


def test_records_are_appended_in_transactions_that_tell_how_far_the_source_was_read(tmp_path: Path) -> None:
    target = Target(MapFile(str(tmp_path / "map"), {}))
    mapped = imported(target)
    check(target)
    assert mapped.positions == {0: Position(END, len(VISIBLE))}
    assert mapped.records == len(VISIBLE)
    again = imported(target)
    assert (again.records, again.positions) == (0, mapped.positions)
    check(target)


@pytest.mark.parametrize("is_done_before", [False, True])
def test_import_killed_at_any_step_keeps_records_and_map_correct(tmp_path: Path, is_done_before: bool) -> None:
    for steps in range(1, 60):
        target = Target(MapFile(str(tmp_path / f"map {steps}"), {}))
        target.steps_left, target.is_done_before = steps, is_done_before
        try:
            imported(target)
        except Dead:
            target.steps_left = 10**6
            imported(target)
        check(target)


def test_import_killed_repeatedly_keeps_records_and_map_correct(tmp_path: Path) -> None:
    target = Target(MapFile(str(tmp_path / "map"), {}))
    for steps in (3, 5, 9, 7, 10, 9, 11, 9, 8, 12, 9, 10):
        target.steps_left, target.is_done_before = steps, bool(steps % 2)
        try:
            imported(target)
        except Dead:
            continue
    target.steps_left = 10**6
    imported(target)
    check(target)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ('{"source_id": "ff", "records": 3}', "deleted and created again"),
        ("the next micro-batch", "was not written by an import"),
        ("", "was not written by an import"),
    ],
)
def test_positions_of_something_else_are_refused(tmp_path: Path, metadata: str, reason: str) -> None:
    target = Target(MapFile(str(tmp_path / "map"), {}))
    target.positions[0] = 3, metadata
    with pytest.raises(ImportRefused, match=reason):
        imported(target)
