"""The remote tier in the metadata."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.api import TierDeletion, TopicInfo
from coordinator.errors import CannotStart, MetadataUnavailable
from coordinator.metadata.tier_register import TierRegister
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create
from coordinator.requests.topics import tier_deletion_operations
from coordinator.testing.fakes import FakeEnsemble, Faults

DELETION = TierDeletion(bytes(16), "orders", 3)
TOPIC = TopicInfo("orders", bytes(16), (), {})


async def test_the_location_of_the_tier_cannot_change_while_the_tier_is_used() -> None:
    ensemble = FakeEnsemble()
    register = TierRegister(ensemble.connect())
    assert await register.claim("s3://one", is_used=False) == 0
    assert await register.claim("s3://one", is_used=True) == 0
    with pytest.raises(CannotStart, match=r"tier.store is s3://two, and the segments of this cluster are in s3://one"):
        await TierRegister(ensemble.connect()).claim("s3://two", is_used=True)
    assert await register.claim("s3://two", is_used=False) == 0
    assert await register.claim("s3://two", is_used=True) == 0


async def test_the_location_of_the_tier_cannot_change_while_deletions_are_pending() -> None:
    store = FakeEnsemble().connect()
    register = TierRegister(store)
    await register.claim("s3://one", is_used=False)
    await store.multi([Create(paths.TIER_DELETIONS, b""), *tier_deletion_operations(TOPIC)])
    with pytest.raises(CannotStart):
        await register.claim("s3://two", is_used=False)


async def test_deletions_are_remembered_until_they_are_done() -> None:
    store = FakeEnsemble().connect()
    register = TierRegister(store)
    assert await register.pending() == []
    other = TopicInfo("other", bytes(15) + b"1", (), {})
    await store.multi(
        [Create(paths.TIER_DELETIONS, b""), *tier_deletion_operations(TOPIC), *tier_deletion_operations(other)]
    )
    assert [one.topic for one in await register.pending()] == ["orders", "other"]
    for _ in range(2):
        await register.done(DELETION)
    assert [one.topic for one in await register.pending()] == ["other"]


async def test_brokers_that_start_at_once_agree() -> None:
    for seed in range(20):
        ensemble = FakeEnsemble(Random(seed), Faults(request_lost=0.2, reply_lost=0.3, replica_lags=0.3))
        for _ in range(5):
            try:
                assert await TierRegister(ensemble.connect()).claim("s3://one", is_used=True) == 0
            except CannotStart as error:
                assert "did not answer" in str(error)  # noqa: PT017


async def test_a_node_of_another_format_is_not_guessed_at() -> None:
    store = FakeEnsemble().connect()
    register = TierRegister(store)
    newer = b'{"v": 2}'
    await store.multi([Create(paths.TIER_DELETIONS, b""), Create(paths.tier_deletion(bytes(16)), newer)])
    with pytest.raises(MetadataUnavailable, match="format 2"):
        await register.pending()
    await store.multi([Create(paths.TIER, newer)])
    with pytest.raises(CannotStart, match="format 2"):
        await register.claim("s3://one", is_used=False)


async def test_calls_raise_errors_while_the_store_is_disconnected() -> None:
    store = FakeEnsemble().connect()
    register = TierRegister(store)
    store.disconnected = True
    with pytest.raises(MetadataUnavailable):
        await register.done(DELETION)
    with pytest.raises(MetadataUnavailable):
        await register.pending()
    with pytest.raises(CannotStart):
        await register.claim("s3://one", is_used=False)
