"""Answers to waiting appends: by the durable end, by the high watermark, or by an error."""

from typing import cast

from engine.api import AppendResult
from engine.batches.batch import parse_header
from engine.commit.appends import Append, Owner
from engine.errors import EngineError, NotLeaderOrFollower, StorageError
from engine.partitions.pending_acks import PendingAcks
from engine.replication.progress import Progress
from engine.replication.tests.test_progress import START, at, ends_of
from testkit.logs import batch


def append(*, wants_all: bool = True) -> Append:
    records = memoryview(batch(b"x"))
    nobody = cast(Owner, None)
    return Append(nobody, records, parse_header(records), None, wants_all=wants_all)


def result(last_offset: int) -> AppendResult:
    return AppendResult(last_offset, last_offset, -1, 0)


def answered(*appends: Append) -> list[int | type[EngineError] | None]:
    """The outcome of each append: its last offset, the class of its error, or None if it still waits."""
    outcomes = [one.outcome if one.is_settled else None for one in appends]
    return [
        one.last_offset if isinstance(one, AppendResult) else None if one is None else type(one) for one in outcomes
    ]


def leader_with_a_follower(counts: list[int]) -> Progress:
    progress = Progress(START, has_others=True)
    progress.lead([1])
    ends = ends_of(counts, 0)
    progress.note_written(ends[-1], ends)
    progress.note_durable(ends[-1])
    return progress


def test_appends_are_answered_as_the_high_watermark_passes_them() -> None:
    progress, pending = leader_with_a_follower([1, 2, 1]), PendingAcks()
    first, second, third = append(), append(), append()
    for one, last_offset in ((first, 0), (second, 2), (third, 3)):
        pending.add(one, result(last_offset), 0.0)
    pending.settle_reached(progress)
    assert answered(first, second, third) == [None, None, None]
    progress.note_replica(1, 3)
    pending.settle_reached(progress)
    assert answered(first, second, third) == [0, 2, None]
    progress.note_replica(1, 4)
    pending.settle_reached(progress)
    assert answered(third) == [3]
    assert not pending


def test_a_duplicate_waits_for_its_original_by_its_own_acks() -> None:
    progress, pending = leader_with_a_follower([1, 1]), PendingAcks()
    original, all_of_them, leader_alone = append(), append(), append(wants_all=False)
    pending.add(original, result(1), 0.0)
    pending.add_duplicate(all_of_them, result(1), 0.0)
    pending.add_duplicate(leader_alone, result(1), 0.0)
    pending.settle_reached(progress)
    assert answered(original, all_of_them, leader_alone) == [None, None, 1]
    progress.note_replica(1, 2)
    pending.settle_reached(progress)
    assert answered(original, all_of_them) == [1, 1]


def test_fail_refuses_only_appends_and_duplicates_from_the_given_offset_on() -> None:
    pending = PendingAcks()
    before, behind, duplicate = append(), append(), append()
    pending.add(before, result(3), 0.0)
    pending.add(behind, result(5), 0.0)
    pending.add_duplicate(duplicate, result(4), 0.0)
    pending.fail(StorageError("undone"), from_offset=4)
    assert answered(before, behind, duplicate) == [None, StorageError, StorageError]
    pending.fail(NotLeaderOrFollower("no more"))
    assert answered(before) == [NotLeaderOrFollower]
    assert len(pending) == 0


def test_positions_of_this_log() -> None:
    assert at(25) == (25, 20, 500, 25)


def test_appends_that_wait_hold_no_records() -> None:
    pending, released = PendingAcks(), list[str]()
    first, duplicate = append(), append()
    first.call_when_released(lambda: released.append("first"))
    duplicate.call_when_released(lambda: released.append("duplicate"))
    pending.add(first, result(0), 0.0)
    pending.add_duplicate(duplicate, result(0), 0.0)
    assert (first.records, duplicate.records) == (None, None)
    pending.fail(NotLeaderOrFollower("no more"))
    assert released == ["first", "duplicate"]


class Stopping:
    """A fake owner of appends that stop waiting."""

    def __init__(self, pending: PendingAcks, progress: Progress) -> None:
        self.pending, self.progress = pending, progress

    def append(self, *, wants_all: bool = True) -> Append:
        found = append(wants_all=wants_all)
        found.owner = cast(Owner, self)
        return found

    def stopped_waiting(self) -> None:
        self.pending.stopped_waiting(self.progress)


def test_appends_that_stop_waiting_are_forgotten_and_the_others_are_answered() -> None:
    pending = PendingAcks()
    progress = leader_with_a_follower([1] * 100)
    owner = Stopping(pending, progress)
    appends = [owner.append() for _ in range(100)]
    for offset, one in enumerate(appends):
        pending.add(one, result(offset), float(offset))
    assert pending.waiting == (100, sum(one.size_bytes for one in appends), 0.0)
    for one in appends[:90]:
        one.stop_waiting()
        one.stop_waiting()  # it has no effect twice
        assert pending.waiting.appends > len(pending) / 2 - 1
    assert pending.waiting[::2] == (10, 90.0)
    assert len(pending) <= 20
    progress.note_replica(1, 100)
    pending.settle_reached(progress)
    assert answered(*appends[90:]) == [*range(90, 100)]
    assert len(pending) == 0


def test_a_duplicate_that_stops_waiting_is_settled_when_its_original_is_durable() -> None:
    pending = PendingAcks()
    owner = Stopping(pending, leader_with_a_follower([1]))
    durable, written = owner.append(), owner.append()
    pending.add_duplicate(durable, result(0), 0.0)
    pending.add_duplicate(written, result(1), 0.0)
    durable.stop_waiting()
    written.stop_waiting()
    assert answered(durable, written) == [0, None]


def test_an_append_that_stops_waiting_before_it_is_written_waits_for_its_own_disk_alone() -> None:
    owner = Stopping(PendingAcks(), leader_with_a_follower([1]))
    one = owner.append()
    one.stop_waiting()
    assert (one.wants_all, one.is_settled) == (False, False)
