"""Retention of the change log."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.metadata.change_log import ChangeLog
from coordinator.metadata.change_retention import DROPPED_AT_ONCE_MAX, KEPT_MAX, KEPT_SIZE_MAX_BYTES, ChangeRetention
from coordinator.metadata.layout import cluster_id
from coordinator.metadata.nodes import encode_broker_configs
from coordinator.metadata.plans import write_single
from coordinator.metadata_store import paths
from coordinator.testing.fakes import FakeEnsemble

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

LARGEST_BYTES = 512 * 1024


def test_the_newest_are_kept_up_to_a_number() -> None:
    kept = ChangeRetention(newest=0)
    for _ in range(KEPT_MAX):
        assert list(kept.dropped_by(500)) == []
        kept.add(500)
    for number in range(1, 4):
        assert list(kept.dropped_by(500)) == [number]
        kept.add(500)


def test_and_up_to_a_size() -> None:
    kept, half = ChangeRetention(newest=10), KEPT_SIZE_MAX_BYTES // 2
    for _ in range(2):
        assert list(kept.dropped_by(half)) == []
        kept.add(half)
    assert list(kept.dropped_by(1)) == [11]
    assert list(kept.dropped_by(half + 1)) == [11, 12]


def test_a_multi_drops_a_limited_number_of_changes_and_later_multis_drop_the_rest() -> None:
    kept = ChangeRetention(newest=100, sizes_bytes=[KEPT_SIZE_MAX_BYTES // 20] * 100)
    for first in (1, 17, 33, 49, 65):
        assert list(kept.dropped_by(1)) == list(range(first, first + DROPPED_AT_ONCE_MAX))
        kept.add(1)
    assert list(kept.dropped_by(1)) == []


@pytest.mark.parametrize("seed", range(5))
def test_retention_after_a_load_drops_the_same_changes_as_after_following(seed: int) -> None:
    random = Random(seed)
    followed, sizes_bytes, oldest = ChangeRetention(newest=0), dict[int, int](), 1
    for number in range(1, 1_000):
        size_bytes = random.choice([500, 50_000, LARGEST_BYTES])
        loaded = ChangeRetention(number - 1, [sizes_bytes[kept] for kept in range(oldest, number)])
        dropped = followed.dropped_by(size_bytes)
        assert loaded.dropped_by(size_bytes) == dropped == range(oldest, oldest + len(dropped))
        followed.add(size_bytes)
        sizes_bytes[number], oldest = size_bytes, oldest + len(dropped)
        assert number - oldest >= min(number - 1, KEPT_SIZE_MAX_BYTES // LARGEST_BYTES - 2)


class Racing:
    """The store of a broker that loads: once, `between` runs between two of its reads."""

    def __init__(self, store: Any, between: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._between: Callable[[], Awaitable[None]] | None = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_many(self, asked: Sequence[str]) -> Any:
        if self._between is not None and asked and asked[0].startswith(paths.CHANGES):
            between, self._between = self._between, None
            await between()
        return await self._store.read_many(asked)


async def write(log: ChangeLog, size_bytes: int) -> None:
    value = encode_broker_configs({"1": {"k": "x" * size_bytes}})
    await log.commit(log.image, [], [write_single(log.image, paths.BROKER_CONFIGS, value)])


async def test_a_load_during_concurrent_writes_and_deletions_knows_the_changes_that_are_left() -> None:
    """There is more to delete than one multi has room for, as after many large changes behind many small ones."""
    ensemble, random = FakeEnsemble(), Random(0)
    store = ensemble.connect()
    one = ChangeLog(store, 1, random)
    await one.load(await cluster_id(store, random))
    for size_bytes in (*[100] * 160, *[240_000] * 36):
        await write(one, size_bytes)

    async def between() -> None:
        await write(one, 240_000)

    two_store: Any = Racing(ensemble.connect(), between)
    two = ChangeLog(two_store, 2, random)
    await two.load(one.image.cluster_id)
    assert two.image.version == one.image.version
    for writer in (two, one, two, one):
        await one.catch_up()
        await two.catch_up()
        await write(writer, 100)
