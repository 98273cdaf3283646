"""Rate of replication traffic, measured like Kafka's SimpleRate."""

from __future__ import annotations

from engine.log_config import EVERY_REPLICA
from kafkawire.requests.throttles import NO_LIMIT, Throttle

ME = 2


class Clock:
    def __init__(self) -> None:
        self.now_ms = 5_000

    def __call__(self) -> int:
        return self.now_ms


def throttle(clock: Clock, limit: int = NO_LIMIT) -> Throttle:
    found = Throttle(ME, clock, samples=3, sample_ms=1_000)
    found.limit_bytes_per_s = limit
    return found


def test_throttle_covers_only_replicas_of_this_broker_that_the_topic_names() -> None:
    one = throttle(Clock())
    assert one.covers(frozenset({(0, ME), (1, 3)}), 0)
    assert not one.covers(frozenset({(0, ME), (1, 3)}), 1)
    assert one.covers(frozenset({EVERY_REPLICA}), 7)
    assert not one.covers(frozenset(), 0)


def test_rate_forgets_traffic_after_the_configured_number_of_samples() -> None:
    clock = Clock()
    one = throttle(clock)
    assert one.bytes_per_s == 0
    one.note(600)
    assert one.bytes_per_s == 600, "a sample is the least it is measured over"
    clock.now_ms += 2_000
    one.note(600)
    assert one.bytes_per_s == 600
    clock.now_ms += 999
    assert one.bytes_per_s == 1200 * 1000 / 2999
    clock.now_ms += 1
    assert one.bytes_per_s == 600, "the first is gone"
    clock.now_ms += 2_000
    assert one.bytes_per_s == 0


def test_traffic_within_one_sample_is_added_up() -> None:
    clock = Clock()
    one = throttle(clock)
    for _ in range(1000):
        one.note(1)
        clock.now_ms += 1
    assert one.bytes_per_s == 1000


def test_a_limit_holds_until_enough_time_is_over() -> None:
    clock = Clock()
    one = throttle(clock, limit=100)
    found = []
    for _ in range(2):
        one.note(100)
        found.append(one.is_exceeded)
    clock.now_ms += 2_000
    assert [*found, one.is_exceeded] == [False, True, False]


def test_nothing_may_go_at_a_limit_of_nothing_once_something_went() -> None:
    one = throttle(Clock(), limit=0)
    before = one.is_exceeded
    one.note(1)
    assert (before, one.is_exceeded) == (False, True)


def test_without_a_limit_nothing_is_held() -> None:
    one = throttle(Clock())
    one.note(2**63)
    assert not one.is_exceeded
