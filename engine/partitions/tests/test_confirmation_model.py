"""No order of messages, elections and ISR changes confirms a read that misses an act of a successor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.partitions.confirmed_reads import ConfirmedReads
from engine.partitions.tests.confirmation_model import FOLLOWERS, explore
from engine.replication.confirmations import Confirmation
from engine.waiting_reads import AsOf

if TYPE_CHECKING:
    import pytest

STALE = "a read is confirmed that came after a successor had acted"


def test_no_read_is_confirmed_that_a_successor_has_overtaken() -> None:
    outcome = explore(min_isr=2, isr_changes=1)
    assert outcome.way is None, outcome
    assert outcome.worlds > 100_000


def test_the_model_catches_a_fetch_that_counts_from_the_time_of_its_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fetch may have waited in the socket for any time before the leader reads it."""

    def fetched(self: Confirmation) -> None:
        self.as_of = AsOf(0, 1 << 60)

    monkeypatch.setattr(Confirmation, "fetched", fetched)
    assert explore(min_isr=2, isr_changes=0).wrong == STALE


def test_the_model_finds_a_majority_that_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    """An election needs no quorum."""

    def check(self: ConfirmedReads) -> None:
        self.confirm(max(map(self._moments.by, FOLLOWERS)))

    monkeypatch.setattr(ConfirmedReads, "check", check)
    assert explore(min_isr=2, isr_changes=0).wrong == STALE
