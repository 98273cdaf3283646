"""Who leads a partition, and who is in sync: pure, from a partition's state and the brokers to its next state.

A leader is the first serving replica, in the order of the replicas, that is in the ISR, else in the ELR, else nobody:
then the partition waits. The last member of an ISR is never removed, so what was acknowledged always has somebody
listed who has it; who says of itself that it may lack some of that is *marked*, and not elected. The leader epoch grows
when the leader changes or its registration does, and never with the ISR alone (KAFKA-15021). After Kafka's
PartitionChangeBuilder and KIP-966; the last member and the marks are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerState, PartitionState
from coordinator.cluster import reassignments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coordinator.api import BrokerInfo

LogEnd = tuple[int, int]  # the epoch of the last record and the offset behind it: of two logs the greater has more
NO_LOG: LogEnd = (-1, -1)
_UNKNOWN: LogEnd = (-1, 2**63 - 1)  # more than who has begun anew, of whose last epoch nothing is known
SERVING = (BrokerState.SERVING,)
UP = (BrokerState.SERVING, BrokerState.LEAVING)


@dataclass(frozen=True, slots=True)
class Electorate:
    """Of whom one election chooses.

    `min_isr` is min.insync.replicas; `ends`: where logs end, as far as that was asked.
    """

    brokers: Mapping[int, BrokerInfo]
    min_isr: int = 1
    ends: Mapping[int, LogEnd] = field(default_factory=dict)

    def leads_well(self, state: PartitionState) -> bool:
        """Whether the leader is up, and still in the life in which it was elected."""
        leader = self.brokers.get(state.leader)
        return leader is not None and leader.is_up and leader.incarnation == state.incarnation

    def is_up(self, broker_id: int) -> bool:
        """Whether it can lead at all."""
        return bool(self.among([broker_id], UP))

    def among(self, candidates: Iterable[int], states: Collection[BrokerState]) -> list[int]:
        """Those that have one of the states, in their order."""
        return [one for one in candidates if one in self.brokers and self.brokers[one].state in states]

    def best(self, candidates: Iterable[int], states: Collection[BrokerState]) -> int:
        """The first of them, or of those whose ends are known the one with most."""
        return max(self.among(candidates, states), key=lambda one: self.ends.get(one, _UNKNOWN), default=NO_LEADER)


def settled(state: PartitionState, electorate: Electorate) -> PartitionState:
    """What the state becomes as the brokers are now: who is down or leaving is out of the ISR as far as somebody is
    left in it, a reassignment is over if it can be, and there is a leader if there can be one. The same object when
    nothing changes."""
    shrunk = with_isr(state, _standing(state, electorate), electorate.min_isr)
    shrunk = reassignments.ended(shrunk, {*electorate.among(shrunk.isr, SERVING)} - _marked(shrunk))
    leader = _leader(shrunk, electorate)
    if leader != NO_LEADER and leader not in shrunk.isr:
        shrunk = with_isr(shrunk, [leader], electorate.min_isr)
    return _led_by(shrunk, leader, electorate)


def preferred(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Led by the first of its replicas, if that can; the same object when nothing changes."""
    first = state.replicas[0]
    if first in state.isr and first not in _marked(state) and electorate.among([first], SERVING):
        return _led_by(state, first, electorate)
    return state


def unclean(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Led by somebody who may lack what was acknowledged, if nobody else can lead: by order, or the topic's config.

    Of marked replicas it is the one whose log has most; an empty log is only taken for want of any other, and so is one
    that a reassignment has yet to fill.
    """
    found = settled(state, electorate)
    return found if found.leader != NO_LEADER else forced(state, electorate) or found


def forced(state: PartitionState, electorate: Electorate) -> PartitionState | None:
    """Led by one that serves, whoever is in sync; None when nobody does."""
    marks = {broker_id: (epoch, end) for broker_id, epoch, end in state.marks}
    by_marks = replace(electorate, ends={**electorate.ends, **marks})
    before = [one for one in state.replicas if one not in state.adding]
    found = (by_marks.best(group, SERVING) for group in (before, state.adding))
    leader = next((one for one in found if one != NO_LEADER), NO_LEADER)
    if leader == NO_LEADER:
        return None
    elected = _led_by(replace(state, isr=(leader,), elr=()), leader, electorate)
    return replace(elected, unclean_since=elected.leader_epoch)


def reconciled(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Of a topic that is not synced: once all its replicas are back, and whoever was in sync says that it may lack
    something, the one of those that has most leads. None may have lost its whole log: then somebody has to order it."""
    before = set(state.replicas) - set(state.adding)
    lost = {broker_id for broker_id, *end in state.marks if tuple(end) == NO_LOG}
    is_told = set(state.isr) <= _marked(state) and before.isdisjoint(lost)
    is_complete = is_told and len(electorate.among(before, SERVING)) == len(before)
    return unclean(state, electorate) if state.leader == NO_LEADER and is_complete else state


def with_isr(state: PartitionState, isr: Iterable[int], min_isr: int) -> PartitionState:
    """With another ISR. As long as it is too small nothing is acknowledged, so whoever has left it since it was large
    enough has all that was: they are the ELR. The same object when nothing changes."""
    members = set(isr)
    assert members, "the last member of an ISR stays"
    if members == set(state.isr):
        return state
    marks = tuple(mark for mark in state.marks if mark[0] not in members - set(state.isr))
    is_enough = len(members) >= reassignments.enough_in_sync(state, min_isr)
    left = set() if is_enough else {*state.elr, *state.isr} - members - _marked(state)
    return replace(state, isr=_ordered(state, members), elr=_ordered(state, left), marks=marks)


def without_elr(state: PartitionState) -> PartitionState:
    """Before min.insync.replicas becomes smaller: an ISR that was too small may acknowledge from then on."""
    return replace(state, elr=()) if state.elr else state


def repudiated(state: PartitionState, broker_id: int, end: LogEnd, min_isr: int) -> PartitionState:
    """As a broker wants it whose log, up to `end`, may lack what was acknowledged: out of the ISR, if somebody is left
    in it, and of the ELR, and marked. If it was to lead, another one does, or nobody."""
    marks = {mark[0]: mark for mark in state.marks} | {broker_id: (broker_id, *end)}
    marked = replace(state, marks=tuple(mark for _, mark in sorted(marks.items())))
    rest = [one for one in state.isr if one != broker_id]
    shrunk = with_isr(marked, rest, min_isr) if rest else marked
    return replace(shrunk, elr=tuple(one for one in shrunk.elr if one != broker_id))


def returned(state: PartitionState, broker_id: int) -> PartitionState:
    """Whoever is listed for want of another, and had no log, has it again: nobody else can have written meanwhile."""
    lost = (broker_id, *NO_LOG)
    is_back = lost in state.marks and broker_id in state.isr
    return replace(state, marks=tuple(mark for mark in state.marks if mark != lost)) if is_back else state


def is_led(state: PartitionState, electorate: Electorate) -> bool:
    """By who lives, and has all that counts: an election would leave it to that one."""
    return electorate.leads_well(state) and _leader(state, electorate) == state.leader


def _standing(state: PartitionState, electorate: Electorate) -> list[int]:
    """Who stays in the ISR: those who serve, else those who leave, else all."""
    return electorate.among(state.isr, SERVING) or electorate.among(state.isr, UP) or list(state.isr)


def _leader(state: PartitionState, electorate: Electorate) -> int:
    """Who leads, or is to lead: whoever does stays, but one that is leaving gives way to another in sync."""
    isr, elr = (_ordered(state, {*group} - _marked(state)) for group in (state.isr, state.elr))
    if electorate.leads_well(state) and state.leader in isr:
        serves = electorate.brokers[state.leader].state is BrokerState.SERVING
        return state.leader if serves or not (others := electorate.among(isr, SERVING)) else others[0]
    found = (electorate.best(group, states) for states in (SERVING, UP) for group in (isr, elr))
    return next((one for one in found if one != NO_LEADER), NO_LEADER)


def _led_by(state: PartitionState, leader: int, electorate: Electorate) -> PartitionState:
    """Another leader, or the same broker in another life, begins an epoch."""
    if leader == state.leader and (leader == NO_LEADER or electorate.leads_well(state)):
        return state
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        incarnation=bytes(16) if leader == NO_LEADER else electorate.brokers[leader].incarnation,
        last_known_leader=state.leader if leader == NO_LEADER else NO_LEADER,
        marks=tuple(mark for mark in state.marks if mark[0] != leader),
    )


def _marked(state: PartitionState) -> set[int]:
    return {mark[0] for mark in state.marks}


def _ordered(state: PartitionState, members: Iterable[int]) -> tuple[int, ...]:
    wanted = set(members)
    return tuple(one for one in state.replicas if one in wanted)
