"""The objects of deleted topics go from the tier, also after failures and restarts in between."""

from __future__ import annotations

import random

import trio

from coordinator.api import TierDeletion
from kafkawire.adapters.tier_deletions import BACKOFF_MAX_MS, DeletionDeps, DeletionOptions, TierDeletions
from kafkawire.config.tests.test_enforced import ask
from kafkawire.config.tests.test_tier_enforced import SOON, TIER, create_tiered, segments, tiered
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.testing import MemoryDeps, open_broker
from tiering.cluster_objects import ClusterObjects
from tiering.names import Place
from tiering.object_store import Content, StoreRefused
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation
from tiering.upload.uploader import Identity

LATE_PUT_S = 900
BACKOFF_MAX_S = BACKOFF_MAX_MS / 1000
OTHER = TierDeletion(b"another topic id", "payments", 1)
DELETION = TierDeletion(b"topic id of 16 b", "orders", 3)


class Register:
    """A fake of the metadata store's list of pending deletions."""

    def __init__(self) -> None:
        self.deletions = [DELETION]

    async def claim(self, _url: str, *, is_used: bool) -> int:
        assert is_used
        return 0

    async def pending(self) -> list[TierDeletion]:
        return list(self.deletions)

    async def done(self, deletion: TierDeletion) -> None:
        self.deletions.remove(deletion)


class Deleting:
    """An object store with objects of each partition, and the deletions under test."""

    def __init__(self) -> None:
        self.store = MemoryStore(lambda: int(trio.current_time() * 1000))
        self.register = Register()
        self.problems: list[str] = []
        self.deletions = self.new_deletions()

    def new_deletions(self) -> TierDeletions:
        deps = DeletionDeps(lambda: int(trio.current_time() * 1000), random.Random(1), self.problems.append)
        identity, copies = Identity("lake/", "c", 0, ""), ClusterObjects(self.store, "lake/", "c")
        return TierDeletions(self.store, identity, copies, self.register, DeletionOptions(1), deps)

    def place(self, number: int) -> Place:
        return Place("lake/", "c", DELETION.topic_id, number)

    async def fill(self, name: str) -> None:
        for number in range(3):
            await self.store.put(f"{self.place(number).prefix}{name}", Content.of(b"records"))

    def named(self, name: str) -> int:
        return sum(key.endswith(name) for key in self.store.objects)


async def test_an_object_that_arrives_after_the_deletion_is_deleted_too() -> None:
    deleting = Deleting()
    await deleting.fill("segment")
    await deleting.deletions.try_due()
    assert not deleting.named("segment")
    await deleting.fill("late")
    await deleting.deletions.try_due()
    assert deleting.named("late") == 3
    assert deleting.register.deletions
    await trio.sleep(LATE_PUT_S)
    await deleting.deletions.try_due()
    assert not deleting.named("late")
    assert not deleting.register.deletions
    requests = sum(deleting.store.requests.values())
    await deleting.deletions.try_due()
    assert sum(deleting.store.requests.values()) == requests


async def test_a_broker_that_stops_in_between_begins_again() -> None:
    deleting = Deleting()
    await deleting.deletions.try_due()
    await trio.sleep(LATE_PUT_S)
    later = deleting.new_deletions()
    await later.try_due()
    assert deleting.register.deletions
    await trio.sleep(LATE_PUT_S)
    await later.try_due()
    assert not deleting.register.deletions


async def test_a_deletion_waits_for_an_unreachable_store_and_logs_one_kind_of_problem() -> None:
    deleting = Deleting()
    await deleting.fill("segment")
    deleting.store.fault = lambda operation, _key: Fault(is_lost=operation is Operation.DELETE)
    for _ in range(3):
        await deleting.deletions.try_due()
        await trio.sleep(BACKOFF_MAX_S)
    assert len({one.partition(":")[0] for one in deleting.problems}) == 1
    assert deleting.named("segment") == 3
    deleting.store.fault = lambda _operation, _key: HEALTHY
    await deleting.deletions.try_due()
    assert not deleting.named("segment")


def refusing(deleting: Deleting, reason: str) -> None:
    """Let the store refuse all requests for the first topic."""

    def fault(_operation: Operation, key: str) -> Fault:
        if DELETION.topic_id.hex() in key:
            raise StoreRefused(reason)
        return HEALTHY

    deleting.store.fault = fault


async def other_filled(deleting: Deleting) -> None:
    deleting.register.deletions.append(OTHER)
    await deleting.store.put(f"{Place('lake/', 'c', OTHER.topic_id, 0).prefix}of-another", Content.of(b"records"))


async def test_a_topic_that_the_tier_cannot_delete_delays_no_other() -> None:
    deleting = Deleting()
    await deleting.fill("segment")
    await other_filled(deleting)
    refusing(deleting, "locked by a retention policy")
    await deleting.deletions.try_due()
    assert deleting.named("segment") == 3
    assert not deleting.named("of-another")
    assert (deleting.deletions.failing, deleting.deletions.errors) == (1, 1)
    await trio.sleep(LATE_PUT_S)
    await deleting.deletions.try_due()
    assert deleting.register.deletions == [DELETION]


async def test_a_failing_topic_is_tried_with_a_backoff_of_its_own() -> None:
    deleting = Deleting()
    await deleting.fill("segment")
    refusing(deleting, "locked")
    tries: list[int] = []
    for _ in range(120):  # an hour of looks, 30 s apart
        before = deleting.deletions.errors
        await deleting.deletions.try_due()
        tries.append(deleting.deletions.errors - before)
        await trio.sleep(30)
    assert tries[:16] == [1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert sum(tries[16:]) == 5
    deleting.store.fault = lambda _operation, _key: HEALTHY
    await trio.sleep(BACKOFF_MAX_S)
    await deleting.deletions.try_due()
    assert not deleting.named("segment")
    assert deleting.deletions.failing == 0


async def test_a_failing_topic_is_told_once_per_change_of_reason() -> None:
    deleting = Deleting()
    await deleting.fill("segment")
    for reason in ("locked", "locked", "access denied"):
        refusing(deleting, reason)
        await deleting.deletions.try_due()
        await trio.sleep(BACKOFF_MAX_S)
    assert [reason in one for one, reason in zip(deleting.problems, ("locked", "denied"), strict=True)] == [True, True]
    assert all(f"orders ({DELETION.topic_id.hex()})" in one for one in deleting.problems)


async def test_a_deleted_topic_of_a_broker_goes_and_others_stay() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (_, client):
        await create_tiered(client, "kept")
        await trio.sleep(5)
        assert len(segments(deps)) == 6
        reply = await ask(client, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        assert reply.responses[0].error_code == 0
        await trio.sleep(2)
        assert not segments(deps)


async def test_a_topic_is_deleted_by_the_next_life() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (_, client):
        await trio.sleep(5)
        deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
        await ask(client, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        await trio.sleep(100)
        assert len(segments(deps)) == 6
    deps.objects.fault = lambda _operation, _key: HEALTHY
    async with open_broker(deps, **TIER, **SOON):
        await trio.sleep(2)
        assert not segments(deps)


async def test_wiped_metadata_store_deletes_nothing_from_the_bucket() -> None:
    deps = MemoryDeps()
    async with tiered(deps):
        await trio.sleep(5)
        before = set(deps.objects.objects)
    wiped = MemoryDeps(objects=deps.objects)
    async with open_broker(wiped, **TIER, **SOON):
        await trio.sleep(2 * LATE_PUT_S)
        assert before <= set(deps.objects.objects)
