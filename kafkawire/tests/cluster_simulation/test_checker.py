"""Hand-made histories, sound ones and one for each anomaly: a checker must be able to find each anomaly."""

from __future__ import annotations

import itertools

import pytest

from kafkawire.tests.cluster_simulation.checker import check
from kafkawire.tests.cluster_simulation.machines import BROKERS
from kafkawire.tests.cluster_simulation.observer import Observations
from kafkawire.tests.simulation.checker import CORRUPT
from kafkawire.tests.simulation.history import History, Lookup, Read, ReadFailure, Restart, Send, Value
from kafkawire.tests.simulation.reader import LATEST
from kafkawire.tests.simulation.test_checker import HERE, Final, batch, final, history, read, send

A, B, C = (1, 0), (1, 1), (1, 2)
SOUND = Observations()


def life(broker_id: int, number: int = 1) -> int:
    return number * (len(BROKERS) + 1) + broker_id


def kinds(of: History, last: Final, observations: Observations = SOUND) -> set[str]:
    return {one.kind for one in check(of, last, observations)}


def sent(of: History, *values: Value, offset: int, acks: int = -1, epoch: int = 0, by: int = 1) -> Send:
    one = send(of, *values, offset=offset, acks=acks)
    one.epoch, one.life = epoch, life(by)
    return one


def seen(of: History, *values: Value, epoch: int = 0, mark: int = -1) -> Read:
    """Read from the start."""
    one = read(of, 0, *([batch(0, *values)] if values else []), mark=mark)
    one.epoch = epoch
    return one


def asked_latest(of: History, offset: int, *, epoch: int) -> None:
    of.lookups.append(Lookup(HERE, LATEST, of.tick(), of.tick(), offset, -1, epoch))


def led(*brokers: int) -> Observations:
    """The observations of partitions that these brokers led, epoch after epoch."""
    return Observations(leaders={(HERE, epoch): {life(one)} for epoch, one in enumerate(brokers)})


def test_acknowledged_records_that_are_read_and_stored_are_sound() -> None:
    of = history()
    sent(of, A, B, offset=0)
    seen(of, A, B)
    asked_latest(of, 2, epoch=0)
    sent(of, C, offset=2, acks=1)
    assert kinds(of, final(batch(0, A, B, C)), led(1)) == set()


@pytest.mark.parametrize(("has_restarted", "expected"), [(False, set()), (True, {"damaged log"})])
def test_read_failure_of_a_disk_excuses_damage_only_until_its_broker_restarts(
    *, has_restarted: bool, expected: set[str]
) -> None:
    of, brokers = history(), [History(), History()]
    clock = itertools.count(1)
    for each in (of, *brokers):
        each.now_ms = lambda: next(clock)
    brokers[1].read_failures.append(ReadFailure(brokers[1].tick(), "orders-0", is_at_start=False))
    restarted = brokers[has_restarted]  # the same, or the other one
    restarted.restarts.append(Restart(restarted.tick(), {}))
    read(of, 0, error=CORRUPT)
    assert {one.kind for one in check(of, final(), SOUND, brokers)} == expected


def test_missing_record_that_all_in_sync_replicas_acknowledged_is_a_lost_write() -> None:
    of = history()
    sent(of, A, B, offset=0)
    assert kinds(of, final(batch(0, A)), led(1, 2)) == {"lost write"}
    assert kinds(of, final(batch(0, A, C)), led(1, 2)) == {"lost write"}


@pytest.mark.parametrize(("leaders", "is_lost"), [((1,), True), ((1, 1), True), ((1, 2), False), ((1, 2, 1), False)])
def test_missing_record_with_acks_1_is_lost_unless_another_broker_led(leaders: tuple[int, ...], is_lost: bool) -> None:
    of = history()
    sent(of, A, offset=0, acks=1)
    assert kinds(of, final(batch(0)), led(*leaders)) == ({"lost write"} if is_lost else set())


def test_missing_record_with_acks_1_is_sound_after_an_epoch_without_a_seen_leader() -> None:
    of = history()
    sent(of, A, offset=0, acks=1, epoch=2)
    observations = led(1, 2, 1)
    observations.leaders[HERE, 4] = {life(1)}
    assert kinds(of, final(batch(0)), observations) == set()


def test_other_record_at_an_offset_with_acks_1_is_sound_after_a_leader_change() -> None:
    of = history()
    sent(of, A, offset=0, acks=1)
    sent(of, B, offset=0, epoch=1, by=2)
    assert kinds(of, final(batch(0, B)), led(1, 2)) == set()


def test_missing_record_that_was_read_is_found_even_with_acks_1() -> None:
    of = history()
    sent(of, A, offset=0, acks=1)
    seen(of, A)
    assert kinds(of, final(batch(0)), led(1, 2)) == {"read and gone"}


def test_two_records_at_one_offset_are_an_inconsistent_offset() -> None:
    of = history()
    sent(of, A, offset=0, acks=1)
    sent(of, B, offset=0, acks=1, epoch=1, by=2)
    seen(of, A)
    seen(of, B, epoch=1)
    assert kinds(of, final(batch(0, B)), led(1, 2)) == {"inconsistent offset", "read and gone"}


def test_one_record_at_two_offsets_is_a_duplicate() -> None:
    of = history()
    sent(of, A, offset=0).producer = 7, 0
    seen(of, A, A)
    assert kinds(of, final(batch(0, A, A))) >= {"duplicate"}


def test_records_of_a_producer_out_of_order_are_told() -> None:
    of = history()
    for value, offset in ((B, 0), (A, 1)):
        sent(of, value, offset=offset).producer = 7, 0
    assert kinds(of, final(batch(0, B, A))) == {"reordered"}


def test_high_watermark_that_goes_back_within_an_epoch_is_found() -> None:
    of = history()
    sent(of, A, B, offset=0)
    seen(of, A, B)
    seen(of, A, mark=1)
    assert kinds(of, final(batch(0, A, B))) == {"went back"}


def test_smaller_high_watermark_of_a_new_leader_is_sound_unless_returned_as_latest_offset() -> None:
    of = history()
    sent(of, A, B, offset=0)
    seen(of, A, B)
    seen(of, A, epoch=1, mark=1)
    assert kinds(of, final(batch(0, A, B))) == set()
    asked_latest(of, 1, epoch=1)
    assert kinds(of, final(batch(0, A, B))) == {"went back"}


def test_deposed_leader_may_return_its_own_latest_offset() -> None:
    of = history()
    sent(of, A, offset=0)
    sent(of, B, offset=1, epoch=1, by=2)
    asked_latest(of, 2, epoch=1)
    asked_latest(of, 1, epoch=0)
    assert kinds(of, final(batch(0, A, B)), led(1, 2)) == set()


def test_two_leaders_in_one_epoch_are_found() -> None:
    observations = led(1, 2)
    observations.leaders[HERE, 1].add(life(3))
    assert kinds(history(), final(batch(0)), observations) == {"epoch used twice"}
    observations.leaders[HERE, 1] = {life(2), life(2, 2)}
    assert kinds(history(), final(batch(0)), observations) == {"epoch used twice"}


def test_anomalies_that_the_simulation_saw_inside_brokers_are_found() -> None:
    assert kinds(history(), final(batch(0)), Observations(lacking=["x"])) == {"lacks what counts"}
    assert kinds(history(), final(batch(0)), Observations(retreats=["x"])) == {"went back"}


def test_replicas_with_different_logs_are_found() -> None:
    sound = {1: b"ab", 2: b"ab"}
    assert kinds(history(), final(batch(0)), Observations(replicas={HERE: sound})) == set()
    for other in (b"ac", b"a", b"abc"):
        observations = Observations(replicas={HERE: {**sound, 3: other}})
        assert kinds(history(), final(batch(0)), observations) == {"replicas differ"}
