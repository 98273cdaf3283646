"""Which changes are kept."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.cluster.kept_changes import DROPPED_AT_ONCE_MAX, KEPT_MAX, KEPT_SIZE_MAX_BYTES, KeptChanges

LARGEST_BYTES = 512 * 1024


def test_the_newest_are_kept_up_to_a_number() -> None:
    kept = KeptChanges(newest=0)
    for _ in range(KEPT_MAX):
        assert list(kept.dropped_by(500)) == []
        kept.add(500)
    for number in range(1, 4):
        assert list(kept.dropped_by(500)) == [number]
        kept.add(500)


def test_and_up_to_a_size() -> None:
    kept, half = KeptChanges(newest=10), KEPT_SIZE_MAX_BYTES // 2
    for _ in range(2):
        assert list(kept.dropped_by(half)) == []
        kept.add(half)
    assert list(kept.dropped_by(1)) == [11]
    assert list(kept.dropped_by(half + 1)) == [11, 12]


def test_a_multi_takes_no_more_away_than_it_has_room_for_and_the_next_ones_go_on() -> None:
    kept = KeptChanges(newest=100, sizes_bytes=[KEPT_SIZE_MAX_BYTES // 20] * 100)
    for first in (1, 17, 33, 49, 65):
        assert list(kept.dropped_by(1)) == list(range(first, first + DROPPED_AT_ONCE_MAX))
        kept.add(1)
    assert list(kept.dropped_by(1)) == []


@pytest.mark.parametrize("seed", range(5))
def test_who_loads_knows_what_who_followed_knows(seed: int) -> None:
    random = Random(seed)
    followed, sizes_bytes, oldest = KeptChanges(newest=0), dict[int, int](), 1
    for number in range(1, 1_000):
        size_bytes = random.choice([500, 50_000, LARGEST_BYTES])
        loaded = KeptChanges(number - 1, [sizes_bytes[kept] for kept in range(oldest, number)])
        dropped = followed.dropped_by(size_bytes)
        assert loaded.dropped_by(size_bytes) == dropped == range(oldest, oldest + len(dropped))
        followed.add(size_bytes)
        sizes_bytes[number], oldest = size_bytes, oldest + len(dropped)
        assert number - oldest >= min(number - 1, KEPT_SIZE_MAX_BYTES // LARGEST_BYTES - 2)
