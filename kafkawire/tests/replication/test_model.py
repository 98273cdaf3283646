"""No acknowledged record is lost, in any order of events; and the model finds the errors that would lose one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.controller import elections, isr_proposals
from engine.api import NO_EPOCH
from engine.replica_log import NEVER_MS
from engine.replication import fetch_state
from engine.replication.exchange import FollowerFetch, LeaderReply, LogState
from engine.replication.fetch_state import Action, FetchState
from engine.replication.progress import Progress
from engine.replication.replicas import CommittedIsr, Replicas
from kafkawire.tests.replication import model
from kafkawire.tests.replication.model import explore
from kafkawire.tests.replication.recovery import STUCK
from kafkawire.tests.replication.scenes import QUICK

if TYPE_CHECKING:
    from collections.abc import Collection

    from coordinator.api import BrokerInfo, PartitionState
    from engine.api import EpochEnd
    from kafkawire.tests.replication.world import World, Write


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost(name: str) -> None:
    scene = QUICK[name]
    outcome = explore(scene._replace(states=min(scene.states, 3_000)))
    assert outcome.wrong is None, outcome.way
    assert outcome.is_complete or outcome.states > 900


def _asks_at_once(self: FetchState, log: LogState) -> FollowerFetch | None:
    last_epoch = log.epochs.latest
    self._asked = FollowerFetch(self.epoch, log.end_offset, last_epoch, log.high_watermark, log.start_offset)
    return self._asked


def _keeps_ends(self: Progress, others: Collection[int], *, is_enough: bool = True) -> bool:
    return self.set_in_sync(others, is_enough=is_enough)


def _proposed_alone(self: Replicas) -> frozenset[int]:
    return self._committed.in_sync if self._proposed is None else self._proposed.in_sync


def _committed_alone(self: Replicas) -> frozenset[int]:
    return self._committed.in_sync


def _joins_at_the_high_watermark(self: Replicas, replica: int, now_ms: int) -> bool:
    is_new = replica not in self._committed.in_sync and self._is_eligible(replica)
    has_all = self._end_of(replica) >= self._progress.high_watermark.offset
    return is_new and has_all and not self._is_late(replica, now_ms)


def _joins_with_anything(self: Replicas, replica: int, now_ms: int) -> bool:
    is_new = replica not in self._committed.in_sync and self._is_eligible(replica)
    return is_new and not self._is_late(replica, now_ms)


def _joins_with_all_there_is(self: Replicas, replica: int, now_ms: int) -> bool:
    return _may_join(self, replica, now_ms) and self._end_of(replica) >= self._progress.written.offset


def _joins_though_late(self: Replicas, replica: int, _: int) -> bool:
    return _may_join(self, replica, now_ms=NEVER_MS)


_may_join = Replicas._may_join


def _takes_what_comes(self: FetchState, asked: FollowerFetch, answer: LeaderReply, log: LogState) -> Action | None:
    self._asked = asked
    return _answered(self, asked, answer, log)


_answered = FetchState.answered


def _cuts_to_its_high_watermark(log: LogState, _: EpochEnd) -> int:
    return log.high_watermark


def _keeps_its_epochs(self: FetchState, epoch: int, _: LogState, unclean_since: int = NO_EPOCH) -> None:
    self.epoch, self._unclean_since, self._asked, self._is_busy = epoch, unclean_since, None, False
    self._copied_since = self._open_since = -1


def _believes_what_it_reads(self: Replicas, committed: CommittedIsr, now_ms: int) -> bool:
    if committed.version == self._committed.version:
        self._proposed = None
    return _learn(self, committed, now_ms)


_learn = Replicas.learn


def _writes_without_a_version(world: World, write: Write) -> World:
    return _carried_out(world, write._replace(version=world.newest.version))


_carried_out = model._carried_out


def _takes_any_life(_: Replicas, __: int, ___: int) -> None:
    return None


def _may_be_of_any_life(self: Replicas, replica: int) -> bool:
    return replica in self._follower_states and replica in self._committed.serving


def _serves(broker: BrokerInfo | None, _: int) -> bool:
    return broker is not None and broker.state in elections.SERVING


def _unchanged(state: PartitionState, *_: object) -> PartitionState:
    return state


WRONG: dict[str, tuple[str, tuple[tuple[object, str, object], ...]]] = {
    "ack-before-follower-sync": ("followers sync later", ((FetchState, "ask", _asks_at_once),)),
    "hw-counts-ends-of-old-epoch": ("a leader once more", ((Progress, "lead", _keeps_ends),)),
    "hw-of-smaller-isr": ("one in sync", ((Replicas, "maximal_isr", property(_proposed_alone)),)),
    "hw-of-committed-isr": ("one in sync", ((Replicas, "maximal_isr", property(_committed_alone)),)),
    "follower-below-epoch-start-enters-isr": (
        "a leader that is behind",
        ((Replicas, "_may_join", _joins_at_the_high_watermark),),
    ),
    "isr-admits-below-the-high-watermark": ("one in sync", ((Replicas, "_may_join", _joins_with_anything),)),
    "isr-demands-the-current-end": ("one in sync", ((Replicas, "_may_join", _joins_with_all_there_is),)),
    "isr-admits-late-followers": (
        "one in sync, fewer become enough",
        ((Replicas, "_may_join", _joins_though_late),),
    ),
    "late-fetch-response-accepted": ("late responses", ((FetchState, "answered", _takes_what_comes),)),
    "follower-truncates-to-high-watermark": (
        "logs that part",
        ((fetch_state, "_truncation_offset", _cuts_to_its_high_watermark),),
    ),
    "empty-leader-epoch-kept": ("leaders in turn", ((FetchState, "__init__", _keeps_its_epochs),)),
    "isr-of-equal-version-accepted": (
        "one in sync, fewer become enough",
        ((model, "_carried_out", _writes_without_a_version),),
    ),
    "outcome-read-back": ("one in sync", ((Replicas, "learn", _believes_what_it_reads),)),
    "stale-broker-epoch-accepted": (
        "not synced",
        (
            (Replicas, "_check", _takes_any_life),
            (Replicas, "_is_eligible", _may_be_of_any_life),
            (isr_proposals, "_serves_in", _serves),
        ),
    ),
    "elr-kept-with-smaller-min-isr": ("fewer in sync become enough", ((elections, "without_elr", _unchanged),)),
    "suspect-replica-not-recorded": ("not synced, and back after a crash", ((elections, "with_suspect", _unchanged),)),
}


@pytest.mark.parametrize("bug", WRONG)
def test_model_finds_each_mutant_that_breaks_a_promise(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changes = WRONG[bug]
    for where, what, instead in changes:
        monkeypatch.setattr(where, what, instead)
    outcome = explore(QUICK[name], may_stay_broken=True)
    assert outcome.wrong is not None
    assert outcome.way or QUICK[name].initial_steps


def _never(*_: object) -> bool:
    return False


def _asks_no_more(self: FetchState, log: LogState) -> FollowerFetch | None:
    return None if log.end_offset else _ask(self, log)


_ask = FetchState.ask


def _answers_nothing(*_: object) -> None:
    return None


BROKEN_FOR_GOOD: dict[str, tuple[str, tuple[object, str, object]]] = {
    "isr-admits-no-follower": ("one in sync", (Replicas, "_may_join", _never)),
    "followers-stop-fetching": ("one in sync", (FetchState, "ask", _asks_no_more)),
    "followers-drop-responses": ("two brokers", (FetchState, "answered", _answers_nothing)),
    "no-election": ("two brokers", (elections, "settled", _unchanged)),
}


@pytest.mark.parametrize("bug", BROKEN_FOR_GOOD)
def test_model_finds_each_mutant_that_gets_stuck(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = BROKEN_FOR_GOOD[bug]
    monkeypatch.setattr(*change)
    assert explore(QUICK[name]).wrong == STUCK
