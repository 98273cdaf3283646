"""Reads that followers do not confirm: the metadata confirm them, or they fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from coordinator.errors import MetadataUnavailable
from engine.waiting_reads import AsOf, EventClock, WaitingReads
from kafkawire.replication.confirmation import FOLLOWERS_FIRST_S, TIMEOUT_MS, MetadataConfirmation


class FakeLeadership:
    """A fake of `engine.waiting_reads.LeadershipReads`."""

    def __init__(self, reads: WaitingReads, *, needs_metadata: bool = False) -> None:
        self._reads = reads
        self.needs_metadata = needs_metadata
        self.waiting: list[tuple[str, AsOf]] = []
        self.outcomes: list[tuple[str, bool]] = []

    def wait(self, name: str) -> None:
        self.waiting.append((name, self._reads.clock.next()))
        self._reads.add(self)

    def __len__(self) -> int:
        return len(self.waiting)

    def check(self) -> None: ...

    def confirm(self, as_of: AsOf) -> None:
        self.outcomes += [(name, True) for name, asked_at in self.waiting if asked_at < as_of]
        self.waiting = [one for one in self.waiting if one[1] >= as_of]

    def expire(self, before_ms: int) -> None:
        self.outcomes += [(name, False) for name, asked_at in self.waiting if asked_at.ms <= before_ms]
        self.waiting = [one for one in self.waiting if one[1].ms > before_ms]


@dataclass
class FakeMetadata:
    is_away: bool = False
    takes_s: float = 0.0
    asked_at_s: list[float] = field(default_factory=list)

    async def follow_newest(self) -> None:
        self.asked_at_s.append(trio.current_time())
        await trio.sleep(self.takes_s)
        if self.is_away:
            raise MetadataUnavailable("away")


@asynccontextmanager
async def confirming() -> AsyncIterator[tuple[WaitingReads, FakeMetadata]]:
    reads, metadata = WaitingReads(EventClock(lambda: round(trio.current_time() * 1000))), FakeMetadata()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(MetadataConfirmation(reads, metadata.follow_newest).run)
        yield reads, metadata
        nursery.cancel_scope.cancel()


async def test_the_metadata_are_asked_when_followers_have_had_their_time() -> None:
    async with confirming() as (reads, metadata):
        leadership, start_s = FakeLeadership(reads), trio.current_time()
        leadership.wait("a")
        await trio.sleep(1)
        assert leadership.outcomes == [("a", True)]
        assert metadata.asked_at_s == [start_s + FOLLOWERS_FIRST_S]


async def test_the_metadata_are_asked_at_once_for_a_leader_without_successors() -> None:
    async with confirming() as (reads, metadata):
        leadership, start_s = FakeLeadership(reads, needs_metadata=True), trio.current_time()
        leadership.wait("a")
        await trio.testing.wait_all_tasks_blocked()
        assert leadership.outcomes == [("a", True)]
        assert metadata.asked_at_s == [start_s]


async def test_read_that_followers_confirm_in_time_asks_no_metadata() -> None:
    async with confirming() as (reads, metadata):
        leadership = FakeLeadership(reads)
        leadership.wait("a")
        await trio.sleep(FOLLOWERS_FIRST_S / 2)
        reads.confirm(reads.clock.next())
        await trio.sleep(1)
        assert (leadership.outcomes, metadata.asked_at_s) == ([("a", True)], [])


async def test_a_read_that_comes_while_the_metadata_are_read_is_confirmed_by_the_next_time() -> None:
    async with confirming() as (reads, metadata):
        metadata.takes_s = 1
        leadership = FakeLeadership(reads, needs_metadata=True)
        leadership.wait("a")
        await trio.sleep(0.5)
        leadership.wait("b")
        await trio.sleep(1)
        assert leadership.outcomes == [("a", True)]
        await trio.sleep(1)
        assert leadership.outcomes == [("a", True), ("b", True)]


async def test_a_read_is_given_up_while_the_metadata_are_away() -> None:
    async with confirming() as (reads, metadata):
        metadata.is_away = True
        leadership = FakeLeadership(reads)
        leadership.wait("a")
        await trio.sleep(TIMEOUT_MS / 1000 - 0.1)
        assert not leadership.outcomes
        await trio.sleep(0.7)
        assert leadership.outcomes == [("a", False)]
        assert len(metadata.asked_at_s) > 10
        leadership.wait("b")
        metadata.is_away = False
        await trio.sleep(2)
        assert leadership.outcomes == [("a", False), ("b", True)]
