"""Hand-made histories, sound ones and one for each anomaly: a checker must be able to find each anomaly."""

from __future__ import annotations

import pytest

from kafkawire.tests.simulation.checker import CORRUPT, OUT_OF_RANGE, check
from kafkawire.tests.simulation.history import (
    KEYS,
    DirFailure,
    History,
    Lookup,
    Outcome,
    Place,
    Read,
    ReadFailure,
    RecordsDeletion,
    Restart,
    Send,
    StoredBatch,
    StoredRecord,
    TopicLife,
    Value,
)

HERE = Place(b"topic-id-one", 0)
ALL_ACKS = -1
Final = dict[Place, dict[int, StoredRecord]]


def history(*, is_sync: bool = True, is_compacted: bool = False) -> History:
    found = History()
    found.topics[HERE.topic_id] = TopicLife(HERE.topic_id, "orders", is_sync, 1, found.tick(), found.tick())
    found.topics[HERE.topic_id].is_compacted = is_compacted
    return found


def send(
    of: History,
    *values: Value,
    offset: int = -1,
    acks: int = ALL_ACKS,
    producer: tuple[int, int] | None = None,
    outcome: Outcome = Outcome.OK,
    attempts: int = 1,
    life: int = 1,
) -> Send:
    """A batch that was sent and answered at once."""
    one = Send(values, "orders", HERE.topic_id, 0, acks, producer, of.tick())
    one.outcome, one.offset, one.attempts, one.life = outcome, offset, attempts, life
    if outcome is not Outcome.UNKNOWN:
        one.completed = of.tick()
    one.connection_slot = (len(of.restarts), of.tick())
    of.sends.append(one)
    return one


def batch(base_offset: int, *values: Value, epoch: int = 0, times: tuple[int, ...] = ()) -> StoredBatch:
    records = tuple(
        StoredRecord(base_offset + delta, value, times[delta] if times else 100 + base_offset + delta)
        for delta, value in enumerate(values)
    )
    return StoredBatch(base_offset, base_offset + len(values) - 1, epoch, records)


def read(of: History, offset: int, *batches: StoredBatch, mark: int = -1, start: int = 0, error: int = 0) -> Read:
    """A fetch of this partition alone, answered at once. By default the high watermark is behind the records."""
    end = batches[-1].last_offset + 1 if batches else offset
    one = Read(HERE, offset, of.tick(), of.tick(), error, end if mark < 0 else mark, start, batches, is_alone=True)
    of.reads.append(one)
    return one


def power_cut(of: History, end: int) -> None:
    of.restarts.append(Restart(of.tick(), {HERE: end}))


def final(*batches: StoredBatch) -> Final:
    return {HERE: {record.offset: record for one in batches for record in one.records}}


def kinds(of: History, end: Final | None = None) -> set[str]:
    return {anomaly.kind for anomaly in check(of, end or {})}


def test_a_sound_history_has_no_anomaly() -> None:
    one = history()
    send(one, (1, 0), (1, 1), offset=0)
    send(one, (1, 2), offset=2, acks=1)
    stored = batch(0, (1, 0), (1, 1)), batch(2, (1, 2))
    read(one, 0, *stored)
    read(one, 3)
    one.lookups.append(Lookup(HERE, 101, one.tick(), one.tick(), 1, 101))
    one.lookups.append(Lookup(HERE, -3, one.tick(), one.tick(), 2, 102))
    power_cut(one, 3)
    assert kinds(one, final(*stored)) == set()


def test_trouble_is_told() -> None:
    one = history()
    one.troubles.append("the broker did not start")
    assert kinds(one) == {"trouble"}


@pytest.mark.parametrize("found", [batch(0, (2, 0)), None])
def test_lost_write(found: StoredBatch | None) -> None:
    one = history()
    send(one, (1, 0), offset=0)
    send(one, (2, 0), outcome=Outcome.UNKNOWN)
    assert "lost write" in kinds(one, final(found) if found else {HERE: {}})


def test_lost_to_an_earlier_power_cut_is_lost() -> None:
    one = history(is_sync=False)
    power_cut(one, 0)
    send(one, (1, 0), offset=0)
    assert "lost write" in kinds(one, {HERE: {}})


@pytest.mark.parametrize("acks", [1, ALL_ACKS])
def test_power_cut_may_take_acknowledged_records_of_an_async_topic(acks: int) -> None:
    one = history(is_sync=False)
    send(one, (1, 0), offset=0, acks=acks)
    power_cut(one, 0)
    send(one, (2, 0), offset=0)
    read(one, 0, batch(0, (2, 0)))
    assert kinds(one, final(batch(0, (2, 0)))) == set()


@pytest.mark.parametrize("acks", [1, ALL_ACKS])
@pytest.mark.parametrize("is_sync", [True, False])
def test_without_a_power_cut_nothing_may_be_taken(is_sync: bool, acks: int) -> None:
    one = history(is_sync=is_sync)
    send(one, (1, 0), offset=0, acks=acks)
    one.restarts.append(Restart(one.tick(), {}))
    assert kinds(one, {HERE: {}}) == {"lost write"}


@pytest.mark.parametrize("acks", [1, ALL_ACKS])
def test_power_cut_may_not_take_acknowledged_records_of_a_sync_topic(acks: int) -> None:
    one = history()
    send(one, (1, 0), offset=0, acks=acks)
    power_cut(one, 0)
    assert "lost write" in kinds(one, {HERE: {}})


@pytest.mark.parametrize("acks", [1, ALL_ACKS])
def test_a_power_cut_may_not_give_an_offset_away_that_was_acked(acks: int) -> None:
    one = history()
    send(one, (1, 0), offset=0, acks=acks)
    power_cut(one, 0)
    send(one, (2, 0), offset=0)
    assert "inconsistent offset" in kinds(one)


def test_records_below_the_log_start_are_not_lost() -> None:
    one = history()
    send(one, (1, 0), offset=0)
    send(one, (1, 1), offset=1)
    one.deletions.append(RecordsDeletion(HERE, 1, one.tick(), one.tick(), 1))
    read(one, 1, batch(1, (1, 1)), start=1)
    assert kinds(one, final(batch(1, (1, 1)))) == set()


def test_records_that_were_all_deleted_are_not_lost() -> None:
    one = history()
    send(one, (1, 0), offset=0)
    one.deletions.append(RecordsDeletion(HERE, 1, one.tick()))
    one.lookups.append(Lookup(HERE, -2, one.tick(), one.tick(), 1, -1))
    assert kinds(one, {HERE: {}}) == set()


def test_inconsistent_offset_between_reads() -> None:
    one = history()
    send(one, (1, 0), outcome=Outcome.UNKNOWN)
    send(one, (2, 0), outcome=Outcome.UNKNOWN)
    read(one, 0, batch(0, (1, 0)))
    power_cut(one, 0)  # no excuse: records that were read from a synced topic are durable
    read(one, 0, batch(0, (2, 0)))
    assert "inconsistent offset" in kinds(one)


def test_inconsistent_offset_between_ack_and_read() -> None:
    one = history()
    send(one, (1, 0), offset=0)
    send(one, (2, 0), outcome=Outcome.UNKNOWN)
    read(one, 0, batch(0, (2, 0)))
    assert "inconsistent offset" in kinds(one)


def test_duplicate_of_an_idempotent_producer() -> None:
    one = history()
    send(one, (1, 0), offset=0, producer=(7, 0), attempts=2)
    read(one, 0, batch(0, (1, 0)), batch(1, (1, 0)))
    assert kinds(one) == {"duplicate"}


@pytest.mark.parametrize(("attempts", "expected"), [(2, set()), (1, {"duplicate"})])
def test_non_idempotent_producer_may_duplicate_only_records_it_sent_twice(attempts: int, expected: set[str]) -> None:
    one = history()
    send(one, (1, 0), outcome=Outcome.UNKNOWN, attempts=attempts)
    read(one, 0, batch(0, (1, 0)), batch(1, (1, 0)))
    assert kinds(one) == expected


def test_reordered_by_an_idempotent_producer() -> None:
    one = history()
    for number in (0, 1):
        send(one, (1, number), outcome=Outcome.UNKNOWN, producer=(7, 0))
    assert kinds(one, final(batch(0, (1, 1)), batch(1, (1, 0)))) == {"reordered"}


def test_reordered_on_one_connection() -> None:
    one = history()
    early = send(one, (1, 0), offset=1)
    late = send(one, (1, 1), offset=0)
    early.invoked, early.completed, late.invoked, late.completed = 10, 13, 11, 12
    assert kinds(one, final(batch(0, (1, 1)), batch(1, (1, 0)))) == {"reordered"}


def test_spurious_offset() -> None:
    one = history()
    send(one, (1, 0), offset=5)
    send(one, (1, 1), offset=3)
    assert "spurious offset" in kinds(one)


def test_an_old_batch_asked_for_again_may_have_an_old_offset() -> None:
    one = history()
    old = send(one, (1, 0), offset=0, producer=(7, 0))
    send(one, (2, 0), offset=1)
    old.completed = one.tick()
    assert kinds(one) == set()


@pytest.mark.parametrize("outcome", [Outcome.FAILED, None])
def test_phantom(outcome: Outcome | None) -> None:
    one = history()
    if outcome is not None:
        send(one, (1, 0), outcome=outcome)
    read(one, 0, batch(0, (1, 0)))
    assert kinds(one) == {"phantom"}


def test_phantom_of_a_deleted_topic() -> None:
    one = history()
    send(one, (1, 0), offset=0).topic_id = None
    another = Place(b"topic-id-two", 0)
    one.topics[HERE.topic_id].deletion_invoked, one.topics[HERE.topic_id].deleted = one.tick(), one.tick()
    one.topics[another.topic_id] = TopicLife(another.topic_id, "orders", True, 1, one.tick(), one.tick())
    read(one, 0, batch(0, (1, 0))).place = another
    assert kinds(one) == {"phantom"}


@pytest.mark.parametrize(("is_sync", "expected"), [(True, {"went back"}), (False, set())])
def test_high_watermark_goes_back_at_a_power_cut(is_sync: bool, expected: set[str]) -> None:
    one = history(is_sync=is_sync)
    read(one, 8, mark=8)
    power_cut(one, 5)
    read(one, 5, mark=5)
    assert kinds(one) == expected


@pytest.mark.parametrize("acks", [1, ALL_ACKS])
def test_high_watermark_below_an_acknowledged_record_is_found(acks: int) -> None:
    one = history()
    send(one, (1, 0), offset=8, acks=acks)
    read(one, 8, mark=8)
    assert kinds(one) == {"went back"}


def test_high_watermarks_that_overlap_are_sound() -> None:
    one = history()
    early = read(one, 8, mark=7)
    read(one, 8, mark=8)
    early.completed = one.tick()
    assert kinds(one) == set()


def test_log_start_goes_back() -> None:
    one = history()
    one.deletions.append(RecordsDeletion(HERE, 4, one.tick(), one.tick(), 4))
    read(one, 9, start=0)
    assert kinds(one) == {"went back"}


def test_log_start_ahead() -> None:
    one = history()
    one.deletions.append(RecordsDeletion(HERE, 4, one.tick()))
    read(one, 9, start=5)
    assert kinds(one) == {"log start ahead"}


@pytest.mark.parametrize(("start", "expected"), [(1, set()), (2, {"log start ahead"})])
def test_retention_may_move_the_log_start_only_to_the_first_young_record(start: int, expected: set[str]) -> None:
    one = history()
    one.topics[HERE.topic_id].retention_ms = 100
    one.now_ms = lambda: 1000
    send(one, (1, 0), (1, 1), (1, 2), outcome=Outcome.UNKNOWN)
    read(one, 0, batch(0, (1, 0), (1, 1), (1, 2), times=(899, 900, 100)))
    read(one, start, mark=3, start=start, error=0).is_alone = False
    read(one, 0, error=OUT_OF_RANGE)
    read(one, 1, error=OUT_OF_RANGE)
    assert kinds(one) == {*expected, "refused offset"}
    assert check(one, {})[-1].detail.startswith(f"{HERE}: 1 is within")


def test_deleted_young_records_do_not_hold_back_the_log_start() -> None:
    """Seed 389: younger records were deleted by a request, and retention went on behind them."""
    one = history()
    one.topics[HERE.topic_id].retention_ms = 100
    one.now_ms = lambda: 1000
    send(one, (1, 0), (1, 1), (1, 2), outcome=Outcome.UNKNOWN)
    read(one, 0, batch(0, (1, 0), (1, 1), (1, 2), times=(950, 100, 950)))
    one.deletions.append(RecordsDeletion(HERE, 1, one.tick(), one.tick(), 1))
    read(one, 2, mark=3, start=2).is_alone = False
    assert kinds(one) == set()
    read(one, 3, mark=3, start=3).is_alone = False
    assert kinds(one) == {"log start ahead"}


def test_leader_epoch_used_in_two_lives() -> None:
    one = history()
    send(one, (1, 0), offset=0, life=1)
    send(one, (1, 1), offset=1, life=2)
    read(one, 0, batch(0, (1, 0), epoch=3), batch(1, (1, 1), epoch=3))
    assert kinds(one) == {"epoch used twice"}


def test_leader_epoch_goes_back() -> None:
    one = history()
    send(one, (1, 0), (1, 1), outcome=Outcome.UNKNOWN)
    read(one, 0, batch(0, (1, 0), epoch=3), batch(1, (1, 1), epoch=2))
    assert kinds(one) == {"epoch went back"}


def test_anomalies_within_single_reads_are_found() -> None:
    one = history()
    send(one, (1, 0), (1, 1), (1, 2), outcome=Outcome.UNKNOWN)
    read(one, 1, batch(0, (1, 0)))
    read(one, 0, batch(0, (1, 0)), batch(2, (1, 2)))
    read(one, 0, batch(0, (1, 0), (1, 1)), mark=1)
    read(one, 0, mark=1)
    read(one, 0, error=CORRUPT)
    read(one, 0).damage = "wrong CRC"
    expected = {"wrong place", "gap", "read above high watermark", "nothing below high watermark"}
    assert expected | {"damaged log", "wrong bytes"} <= kinds(one)


@pytest.mark.parametrize(("life", "is_late"), [(1, True), (2, False)])
def test_acked_by_a_lost_log_dir(life: int, is_late: bool) -> None:
    one = history()
    send(one, (1, 0), offset=0)
    one.dir_failures.append(DirFailure(one.tick(), 1, frozenset({HERE})))
    send(one, (1, 1), offset=1, life=life)
    assert kinds(one) == ({"acked by a lost log dir"} if is_late else set())


@pytest.mark.parametrize(
    ("directory", "is_at_start", "restarts", "is_excused"),
    [
        ("orders-0", False, 0, True),
        ("orders-0", False, 1, False),
        ("orders-1", False, 0, False),
        ("orders-0", True, 1, True),
        ("orders-0", True, 2, False),
    ],
)
def test_read_failure_of_a_log_excuses_its_damage_only_in_the_same_process_life(
    directory: str, is_at_start: bool, restarts: int, is_excused: bool
) -> None:
    one = history()
    read(one, 0, error=CORRUPT)
    one.read_failures.append(ReadFailure(one.tick(), directory, is_at_start))
    assert kinds(one) == {"damaged log"}, "it was not before"
    one.reads.clear()
    one.restarts += [Restart(one.tick(), {}) for _ in range(restarts)]
    read(one, 0, error=CORRUPT)
    assert kinds(one) == (set() if is_excused else {"damaged log"})


def test_refused_offset() -> None:
    one = history()
    read(one, 5, mark=5)
    read(one, 3, error=OUT_OF_RANGE)
    assert kinds(one) == {"refused offset"}


def test_an_offset_below_a_log_start_that_was_asked_for_may_be_refused() -> None:
    one = history()
    read(one, 5, mark=5)
    one.deletions.append(RecordsDeletion(HERE, 4, one.tick()))
    read(one, 3, error=OUT_OF_RANGE)
    assert kinds(one) == set()


@pytest.mark.parametrize(
    ("timestamp_ms", "offset", "found_ms"),
    [
        (150, 2, 300),  # not the first
        (150, 0, 100),  # too old
        (150, 1, 201),  # the wrong time
        (150, -1, -1),  # it is there
        (301, 2, 300),  # there is none
        (-3, 1, 200),  # not the greatest
        (-3, -1, -1),  # it is there
    ],
)
def test_index_differs_from_a_scan(timestamp_ms: int, offset: int, found_ms: int) -> None:
    one = history()
    stored = batch(0, (1, 0), (1, 1), (1, 2), times=(100, 200, 300))
    send(one, (1, 0), (1, 1), (1, 2), offset=0)
    read(one, 0, stored)
    one.lookups.append(Lookup(HERE, timestamp_ms, one.tick(), one.tick(), offset, found_ms))
    assert kinds(one, final(stored)) == {"index"}


def test_compacted_topic_may_lack_only_records_with_a_later_record_of_their_key() -> None:
    old, same_key, other_key = (1, 0), (1, KEYS), (1, 1)
    one = history(is_compacted=True)
    send(one, old, offset=0)
    send(one, other_key, offset=1)
    send(one, same_key, offset=2)
    read(one, 0, batch(1, other_key), batch(2, same_key))
    there = {HERE: {1: StoredRecord(1, other_key, 0), 2: StoredRecord(2, same_key, 0)}}
    assert kinds(one, there) == set()
    del there[HERE][1]
    assert kinds(one, there) == {"lost write"}
    there = {HERE: {0: StoredRecord(0, old, 0), 1: StoredRecord(1, other_key, 0)}}
    assert kinds(one, there) == {"lost write"}
    read(one, 2, batch(1, other_key))
    assert "wrong place" in kinds(one)
