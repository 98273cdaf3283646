"""Count of swaps, and the swap after which no record was left that removed tombstones and markers decide about."""

from hypothesis import given
from hypothesis import strategies as st

from engine.compaction_horizon import SPANS, STAMPS_MAX, CompactionHorizon, Swaps

SPAN_MS = 10
RETENTION_MS = SPANS * SPAN_MS


def test_a_part_of_a_copy_that_leads_again_and_again_is_still_one() -> None:
    """An incomplete copy that is elected several times, without an append in between."""
    led = CompactionHorizon(replaced_to=100, replaced_in=5).led_from(30, 6)
    assert led == CompactionHorizon(31, 0, 31, 6)
    assert led.led_from(30, 7) == led.below(30).led_from(30, 7) == led._replace(replaced_in=7)
    assert led.led_from(40, 7) == led


@given(st.lists(st.tuples(st.none() | st.integers(0, 3000), st.none() | st.integers(0, 99)), max_size=300))
def test_no_stamp_is_taken_for_an_earlier_one(steps: list[tuple[int | None, int | None]]) -> None:
    """Delete horizons may go back, as clocks may."""
    swaps, stamps = Swaps(), list[tuple[int, int]]()
    for horizon_ms, dropped in steps:
        count, dropped_ms = 0, None
        if dropped is not None and stamps:
            count, dropped_ms = stamps[dropped % len(stamps)]
        swaps.note(horizon_ms, dropped_ms, RETENTION_MS)
        assert count <= swaps.gone_by <= swaps.count
        if horizon_ms is not None:
            stamps.append((swaps.count, horizon_ms))
        assert len(swaps._stamps) <= STAMPS_MAX


def test_a_stamp_is_known_to_a_span() -> None:
    """The precision of a span holds for any number of stamps within delete.retention.ms."""
    swaps = Swaps()
    for now_ms in range(5 * RETENTION_MS):
        swaps.note(now_ms + RETENTION_MS, now_ms if now_ms >= RETENTION_MS else None, RETENTION_MS)
        if now_ms >= RETENTION_MS:
            stamped_by = now_ms - RETENTION_MS + 1
            assert stamped_by <= swaps.gone_by < stamped_by + SPAN_MS


def test_dropped_tombstones_stamped_before_the_log_was_opened_do_not_raise_gone_by() -> None:
    swaps = Swaps()
    swaps.note(1000, 900, RETENTION_MS)
    swaps.note(1100, 999, RETENTION_MS)
    assert (swaps.count, swaps.gone_by) == (2, 0)
    swaps.note(None, 1000, RETENTION_MS)
    assert (swaps.count, swaps.gone_by) == (3, 1)


def test_beside_takes_the_greater_of_each_horizon_and_below_limits_all() -> None:
    both = CompactionHorizon(1, 5, 2).merged_with(CompactionHorizon(3, 4, 1))
    assert both == CompactionHorizon(3, 5, 2)
    assert both.covers(CompactionHorizon(3, 5, 2))
    assert not any(
        both.covers(one) for one in (CompactionHorizon(4, 0, 0), CompactionHorizon(0, 6, 0), CompactionHorizon(0, 0, 3))
    )
    assert both.below(2) == CompactionHorizon(2, 2, 2)
