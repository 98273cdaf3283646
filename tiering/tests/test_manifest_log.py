"""Writers of manifests: fencing, and the deletion of old versions."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.tiered_logs import now_ms
from tiering.errors import Fenced, TierDamaged
from tiering.manifest import manifest_log
from tiering.manifest.manifest import Fence, Manifest, begin_copy, end_copy, is_below_start, shed
from tiering.manifest.manifest_log import KEPT_MS, Author, Change, ManifestLog
from tiering.names import VERSIONS_PER_BLOCK, Place
from tiering.object_store import Content, StoreError, StoreUnavailable
from tiering.stores.memory import HEALTHY, Fault, MemoryStore, Operation, never
from tiering.tests.test_manifest import entry

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = Place("", "cluster", bytes(16), 0)
DAY_S = KEPT_MS / 1000


def log_of(store: MemoryStore, epoch: int = 0, incarnation: str = "", generation: int = 0) -> ManifestLog:
    nonces = (f"{epoch}-{incarnation}-{number}" for number in count())
    author = Author(Fence(generation, epoch), incarnation or f"of-{epoch}", lambda: next(nonces), now_ms)
    return ManifestLog(store, PLACE, author)


async def copy_next(manifest: Manifest) -> Change:
    """Copy ten more offsets."""
    base = manifest.end or 0
    if manifest.copying is None:
        return Change(begin_copy(manifest, base, base + 10, "d", 0))
    intent = manifest.copying
    return Change(end_copy(manifest, entry(intent.base, intent.end, intent.generation, intent.digest), []))


async def write(log: ManifestLog, versions: int) -> Manifest:
    for _ in range(versions):
        manifest = await log.change(copy_next)
    return manifest


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(now_ms)


async def test_versions_follow_each_other(store: MemoryStore) -> None:
    log = log_of(store)
    assert await log.load() == Manifest()
    manifest = await write(log, 3)
    assert (manifest.version, manifest.end) == (3, 10)
    assert sorted(store.objects) == [PLACE.manifest(version) for version in (1, 2, 3)]
    assert await log_of(store).load() == manifest


async def test_nothing_is_written_without_a_change(store: MemoryStore) -> None:
    async def leave(_manifest: Manifest) -> None:
        return None

    assert await log_of(store).change(leave) == Manifest()
    assert not store.objects


async def test_a_new_leader_fences_the_old_one(store: MemoryStore) -> None:
    old, new = log_of(store, 1), log_of(store, 2)
    await write(old, 2)
    await write(new, 1)
    for _ in range(2):  # and it stays so
        with pytest.raises(Fenced):
            await write(old, 1)
        with pytest.raises(Fenced):
            await old.load()
    assert (await write(new, 1)).version == 4


async def test_restored_cluster_fences_the_old_cluster_despite_greater_epochs(store: MemoryStore) -> None:
    await write(log_of(store, 9), 2)
    restored = log_of(store, 1, generation=1)
    await write(restored, 1)
    with pytest.raises(Fenced):
        await write(log_of(store, 10), 1)


async def test_two_processes_of_one_epoch_are_one_too_many(store: MemoryStore) -> None:
    await write(log_of(store, 1, "one"), 1)
    with pytest.raises(Fenced):
        await write(log_of(store, 1, "two"), 1)


async def test_next_version_follows_a_late_version_of_the_predecessor(store: MemoryStore) -> None:
    old, new = log_of(store, 1), log_of(store, 2)
    await write(old, 2)
    await new.load()
    await write(old, 1)
    seen: list[int] = []

    async def decide(manifest: Manifest) -> Change:
        seen.append(manifest.version)
        return await copy_next(manifest)

    assert (await new.change(decide)).version == 4
    assert seen == [2, 3]


def fault_of(operation: Operation, name: str, fault: Fault, times: int = 1) -> Callable[[Operation, str], Fault]:
    left = [fault] * times

    def of(asked: Operation, key: str) -> Fault:
        return left.pop() if left and asked is operation and name in key else HEALTHY

    return of


async def test_reply_lost_after_commit_is_recognised_as_own(store: MemoryStore) -> None:
    """The version that was written counts; the next decision builds on it."""
    log = log_of(store)
    store.fault = fault_of(Operation.PUT, "manifest", Fault(is_reply_lost=True))
    with pytest.raises(StoreUnavailable):
        await write(log, 1)
    assert (await write(log, 1)).end == 10
    assert len(store.objects) == 2


async def test_a_put_that_was_tried_again_underneath_is_recognised_as_own(store: MemoryStore) -> None:
    """A library or a proxy has sent the put twice: the reply says that the object exists already."""
    log, put = log_of(store), store.put

    async def twice(key: str, content: Content, *, if_absent: bool = False) -> None:
        await put(key, content, if_absent=if_absent)
        await put(key, content, if_absent=if_absent)

    store.put = twice  # type: ignore[method-assign]
    assert (await write(log, 2)).version == 2


@pytest.mark.parametrize("fault", [Fault(is_lost=True), Fault(is_reply_lost=True), Fault(late_s=5.0)])
async def test_a_version_that_arrives_late_is_no_second_one(fault: Fault) -> None:
    async with trio.open_nursery() as nursery:
        store = MemoryStore(now_ms, fault_of(Operation.PUT, "manifest", fault), nursery)
        log = log_of(store)
        with pytest.raises(StoreUnavailable):
            await write(log, 1)
        await write(log, 2)
        before = await log_of(store).load()
        await trio.sleep(10)
        assert await log_of(store).load() == before
        assert before.end == 10


async def test_a_listing_that_lags_behind_is_no_matter(store: MemoryStore) -> None:
    manifest = await write(log_of(store), 5)
    store.fault = fault_of(Operation.LIST, "", Fault(is_stale=True), 2)
    assert await log_of(store).load() == manifest


async def test_a_damaged_version_is_told_and_stays_the_newest(store: MemoryStore) -> None:
    await write(log_of(store), 2)
    data, moment_ms = store.objects[PLACE.manifest(2)]
    store.objects[PLACE.manifest(2)] = data[:-20] + b"x" + data[-19:], moment_ms
    with pytest.raises(TierDamaged, match=PLACE.manifest(2)):
        await log_of(store).load()


# Pages


async def test_many_entries_move_to_a_page(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_log, "MANIFEST_MAX_BYTES", 2_000)
    monkeypatch.setattr(manifest_log, "PAGE_ENTRIES", 4)
    log = log_of(store)
    manifest = await write(log, 42)
    assert manifest.end == 210
    assert manifest.first_offset == 0
    assert sum(page.count for page in manifest.pages) + len(manifest.entries) == 21
    entries = [one for page in manifest.pages for one in await log.page(page)] + list(manifest.entries)
    assert [one.base for one in entries] == list(range(0, 210, 10))


async def test_a_log_start_within_a_page_leaves_another_page(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_log, "MANIFEST_MAX_BYTES", 2_000)
    monkeypatch.setattr(manifest_log, "PAGE_ENTRIES", 4)
    log = log_of(store)
    manifest = await write(log, 42)
    first = await log.page(manifest.pages[0])

    async def decide(manifest: Manifest) -> Change:
        after, rest = shed(manifest, 25, 0, first)
        return Change(after, rest)

    after = await log.change(decide)
    assert [one.base for one in await log.page(after.pages[0])] == [20, 30]
    assert after.first_offset == 20
    assert {PLACE.doomed(one) for one in after.doomed} == {
        PLACE.page(manifest.pages[0]),
        *(PLACE.segment(one) for one in first[:2]),
    }
    assert is_below_start(after)
    assert shed(after, 25, 0, first[2:]).manifest == after


# Old versions


async def test_old_versions_are_deleted_by_blocks(store: MemoryStore) -> None:
    log = log_of(store)
    manifest = await write(log, 3 * VERSIONS_PER_BLOCK)
    assert await log.collect() == 0  # they are young
    await trio.sleep(DAY_S)
    assert await log.collect() == 2 * VERSIONS_PER_BLOCK - 1  # there is no version 0
    assert {key for key in store.objects if "collected" in key} == {PLACE.collected(0), PLACE.collected(1)}
    assert await log_of(store).load() == manifest
    assert await log.collect() == 0


async def test_minimum_number_of_versions_is_kept_despite_their_age(store: MemoryStore) -> None:
    log = log_of(store)
    await write(log, VERSIONS_PER_BLOCK + manifest_log.KEPT_VERSIONS_MIN - 2)
    await trio.sleep(2 * DAY_S)
    assert await log.collect() == 0
    await write(log, 1)
    assert await log.collect() == VERSIONS_PER_BLOCK - 1


async def test_a_collection_that_was_cut_short_goes_on(store: MemoryStore) -> None:
    log = log_of(store)
    manifest = await write(log, 2 * VERSIONS_PER_BLOCK)
    await trio.sleep(DAY_S)
    store.fault = fault_of(Operation.DELETE, "00000000000000000020", Fault(is_lost=True))
    with pytest.raises(StoreUnavailable):
        await log.collect()
    assert await log_of(store).load() == manifest
    assert await log.collect() == VERSIONS_PER_BLOCK - 20
    assert await log.collect() == 0


async def test_zombie_writes_into_a_collected_version_and_is_fenced(store: MemoryStore) -> None:
    zombie, leader = log_of(store, 1), log_of(store, 2)
    await write(zombie, 3)
    manifest = await write(leader, 3 * VERSIONS_PER_BLOCK)
    await trio.sleep(DAY_S)
    await leader.collect()
    with pytest.raises(Fenced, match="collected"):
        await write(zombie, 1)
    assert await leader.load() == manifest
    assert await log_of(store, 3).load() == manifest


async def test_load_of_the_newest_version_ignores_a_version_of_a_zombie(store: MemoryStore) -> None:
    """The zombie has filled the version behind the last one that the slow reader has seen."""
    zombie, leader, reader = log_of(store, 1), log_of(store, 2), log_of(store, 3)
    await write(zombie, 3)
    await reader.load()
    manifest = await write(leader, 3 * VERSIONS_PER_BLOCK)
    await trio.sleep(DAY_S)
    await leader.collect()
    with pytest.raises(Fenced):
        await write(zombie, 1)
    assert await reader.load() == manifest


async def test_collected_log_with_a_lagging_listing_is_not_taken_for_a_new_log(store: MemoryStore) -> None:
    log = log_of(store)
    await write(log, 2 * VERSIONS_PER_BLOCK)
    await trio.sleep(DAY_S)
    await log.collect()

    async def nothing(*_arguments: object) -> list[object]:
        return []

    store.list_after = nothing  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable, match="lags behind"):
        await log_of(store).load()


# Two writers, pauses and collection


class World:
    """Leaders one after the other, each of which goes on until it is fenced; a store with all faults."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        self._random = Random(seed)
        self.store = MemoryStore(now_ms, self._fault, nursery)
        self._worst: list[Fault] = [
            Fault(is_lost=True),
            Fault(is_reply_lost=True),
            Fault(late_s=self._random.choice([1.0, 100.0, 2 * DAY_S])),
            Fault(is_stale=True),
            Fault(wait_s=2 * DAY_S),
            Fault(wait_s=self._random.random() * 100),
        ]
        self.acknowledged: dict[str, int] = {}  # the ends of copied segments, by digest

    def _fault(self, _operation: Operation, _key: str) -> Fault:
        return self._random.choice(self._worst) if self._random.random() < 0.15 else Fault(wait_s=self._random.random())

    async def lead(self, epoch: int) -> None:
        log, digests = log_of(self.store, epoch), (f"{epoch}-{number}" for number in count())
        for _ in range(self._random.randrange(5, 60)):
            digest = next(digests)

            async def decide(manifest: Manifest, digest: str = digest) -> Change | None:
                if any(one.digest == digest for one in manifest.entries):
                    return None
                if manifest.copying is None or manifest.copying.digest != digest:
                    base = manifest.end or 0
                    return Change(begin_copy(manifest, base, base + 10, digest, 0))
                return await copy_next(manifest)

            try:
                begun = await log.change(decide)
                done = begun if begun.copying is None else await log.change(decide)
                if self._random.random() < 0.2:
                    await log.collect()
            except Fenced:
                return
            except StoreError:
                continue
            if any(one.digest == digest for one in done.entries):
                self.acknowledged[digest] = done.end or 0

    async def check(self) -> None:
        self.store.fault = never
        manifest = await log_of(self.store, 10**6).load()
        ends = {one.digest: one.end for one in manifest.entries}
        assert {digest: ends.get(digest) for digest in self.acknowledged} == self.acknowledged
        epochs = [int(one.digest.split("-")[0]) for one in manifest.entries]
        assert epochs == sorted(epochs), "an old leader has written behind a new one"


@given(st.integers(0, 2**32))
@settings(max_examples=100)
def test_acknowledged_manifests_survive_all_writers_and_faults(seed: int) -> None:
    async def run() -> None:
        async with trio.open_nursery() as late:
            world = World(seed, late)
            async with trio.open_nursery() as nursery:
                for epoch in range(3):
                    nursery.start_soon(world.lead, epoch)
                    await trio.sleep(20)
            await world.check()
            await trio.sleep(3 * DAY_S)  # late requests arrive
            await world.check()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
