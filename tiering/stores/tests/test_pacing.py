"""Pacing: a put takes its share of time, but never longer than a store accepts."""

import pytest

from tiering.object_store import Content
from tiering.stores.pacing import LEAST_BYTES_PER_S, evenly

SLICES = [b"a" * 100_000, b"b" * 100_000, b"c" * 300_000]


def came_s(spread_s: float, takes_s: float = 0.0) -> list[float]:
    """The times at which a store that takes the same time for each slice got them, and the end."""
    content, clock = Content(tuple(SLICES), Content.of(b"".join(SLICES)).crc32c, spread_s), [0.0]

    def sleep_s(seconds: float) -> None:
        clock[0] += seconds

    came, found = [], []
    for data in evenly(content, lambda: clock[0], sleep_s):
        found.append(data)
        came.append(clock[0])
        clock[0] += takes_s
    assert found == SLICES
    return [*came, clock[0]]


def test_slices_are_spread_over_their_time() -> None:
    assert came_s(0.2) == pytest.approx([0, 0.04, 0.08, 0.2])


def test_put_that_takes_longer_than_its_spread_is_not_delayed() -> None:
    assert came_s(0.0) == [0, 0, 0, 0]
    assert came_s(0.2, takes_s=0.1) == pytest.approx([0, 0.1, 0.2, 0.3])


def test_paced_put_is_not_slower_than_the_least_rate_of_a_store() -> None:
    assert came_s(1000.0)[-1] == pytest.approx(500_000 / LEAST_BYTES_PER_S)


def test_nothing_takes_no_time() -> None:
    assert list(evenly(Content.of(b""))) == [b""]
