"""Notices to followers: how far the tier has their logs, by their own segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
import trio
from msgspec.structs import replace

from engine.errors import CorruptMessage, EngineError
from engine.log_config import LogConfig
from engine.tier import SegmentFacts
from testkit.logs import ORDERS
from tiering.errors import OtherVersion
from tiering.manifest.manifest import Manifest, Page, SegmentEntry
from tiering.manifest.manifest_log import ManifestLog
from tiering.object_store import StoreError, StoreUnavailable
from tiering.tests.test_manifest import entry as an_entry
from tiering.upload.follower_notices import LEADER_INTERVALS, FollowerNotices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.tier import TierableLog
    from tiering.errors import TierError

SIZE = 10  # of each segment


def entry(base: int, size: int = SIZE) -> SegmentEntry:
    return replace(an_entry(base, base + size), records_digest="aa")


@dataclass(eq=False)
class Catalogue(ManifestLog):
    """Fake manifests of a partition, with the pages that were read."""

    manifest: Manifest = field(default_factory=Manifest)
    pages: Mapping[int, tuple[SegmentEntry, ...]] = field(default_factory=dict)
    error: StoreError | TierError | None = None
    read: list[int] = field(default_factory=list)

    async def load(self) -> Manifest:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return self.manifest

    async def page(self, page: Page) -> tuple[SegmentEntry, ...]:
        await trio.lowlevel.checkpoint()
        self.read.append(page.first)
        return self.pages[page.first]


@dataclass
class FakeLog:
    """A fake log with sealed segments of one size, from its local start on."""

    end: int
    log_start_offset: int = 0
    tiered_to: int | None = None
    is_tier_confirmed: bool = False
    leader_epoch: int = 5
    config: LogConfig = field(default_factory=lambda: LogConfig(remote_storage=True))
    partition = ORDERS
    digests: dict[int, str] = field(default_factory=dict)
    error: EngineError | None = None
    becomes_another: bool = False
    gave_up: bool = False

    def to_copy(self) -> Sequence[tuple[int, int]]:
        behind = max(self.log_start_offset, self.tiered_to or 0)
        return [(base, base + SIZE) for base in range(0, self.end, SIZE) if base + SIZE > behind]

    async def facts_of(self, base_offset: int) -> SegmentFacts:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        self.leader_epoch += self.becomes_another
        digest = bytes.fromhex(self.digests.get(base_offset, "aa"))
        return SegmentFacts(base_offset, base_offset + SIZE, 1, SIZE, 0, 0, 0, digest, has_aborted=False)

    def note_tiered(self, offset: int) -> None:
        self.tiered_to, self.is_tier_confirmed = offset, True

    async def give_up_cold(self) -> None:
        await trio.lowlevel.checkpoint()
        self.gave_up = True

    def note_untiered(self) -> None:
        assert self.gave_up
        self.tiered_to = None


def copied(*bases: int) -> Manifest:
    return Manifest(version=1, entries=tuple(map(entry, bases)))


async def looked(log: FakeLog, catalogue: Catalogue) -> FakeLog:
    logs = FollowerNotices(lambda: [cast("TierableLog", log)], lambda _partition: catalogue, interval_ms=1000)
    await logs.check_all()
    return log


async def test_follower_log_is_tiered_to_the_end_of_its_matching_segments() -> None:
    catalogue = Catalogue(copied(0, 10, 20))
    assert (await looked(FakeLog(end=20), catalogue)).tiered_to == 20
    assert (await looked(FakeLog(end=50), catalogue)).tiered_to == 30
    assert (await looked(FakeLog(end=50, digests={10: "bb"}), catalogue)).tiered_to == 10
    assert (await looked(FakeLog(end=50, log_start_offset=15), catalogue)).tiered_to == 30
    assert (await looked(FakeLog(end=50, tiered_to=20), catalogue)).tiered_to == 30


async def test_follower_log_with_other_segment_bounds_is_not_tiered() -> None:
    manifest = Manifest(version=1, entries=(entry(0, size=12),))
    assert (await looked(FakeLog(end=20), Catalogue(manifest))).tiered_to == 0


async def test_tiered_to_is_unchanged_if_the_tier_lacks_expected_segments() -> None:
    for log, catalogue in (
        (FakeLog(end=20), Catalogue()),
        (FakeLog(end=20), Catalogue(copied(10))),
        (FakeLog(end=40, tiered_to=30), Catalogue(copied(0, 10))),
    ):
        before = log.tiered_to
        assert ((await looked(log, catalogue)).tiered_to, log.is_tier_confirmed) == (before, False)


async def test_tiered_to_of_the_checkpoint_is_confirmed_without_new_segments() -> None:
    assert (await looked(FakeLog(end=20, tiered_to=20), Catalogue(copied(0, 10)))).is_tier_confirmed


async def test_log_whose_leader_epoch_changes_during_the_look_is_not_updated() -> None:
    assert (await looked(FakeLog(end=20, becomes_another=True), Catalogue(copied(0, 10)))).tiered_to is None


async def test_only_pages_with_something_new_are_read() -> None:
    pages = {0: (entry(0),), 10: (entry(10),)}
    listed = tuple(Page(base, base + SIZE, 1, "d", 1, 1) for base in pages)
    catalogue = Catalogue(Manifest(version=1, pages=listed, entries=(entry(20),)), pages)
    assert (await looked(FakeLog(end=40, tiered_to=10), catalogue)).tiered_to == 30
    assert catalogue.read == [10]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OtherVersion("newer")])
async def test_a_tier_that_says_nothing_is_asked_again(error: StoreError | TierError) -> None:
    log, catalogue = FakeLog(end=20), Catalogue(copied(0, 10), error=error)
    logs = FollowerNotices(lambda: [cast("TierableLog", log)], lambda _partition: catalogue, interval_ms=1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.serve)
        await trio.sleep(1.5 * LEADER_INTERVALS)
        before, catalogue.error = log.tiered_to, None
        await trio.sleep(LEADER_INTERVALS)
        assert (before, log.tiered_to) == (None, 20)
        nursery.cancel_scope.cancel()


async def test_segment_with_an_unreadable_footer_is_not_marked_as_tiered() -> None:
    assert (await looked(FakeLog(end=20, error=CorruptMessage("footer")), Catalogue(copied(0)))).tiered_to is None


async def test_follower_log_without_remote_storage_gives_up_its_cold_segments() -> None:
    log = FakeLog(end=20, tiered_to=20, config=LogConfig())
    assert ((await looked(log, Catalogue())).gave_up, log.tiered_to) == (True, None)
    assert not (await looked(FakeLog(end=20, config=LogConfig()), Catalogue())).gave_up
