"""Elections of leaders, and ISRs: pure, from a partition's state and the brokers to its next state.

A leader is the first serving replica, in the order of the replicas, that is in the ISR, else in the ELR. If there is
none, the partition waits. The last member of an ISR is never removed, so that a replica with all acknowledged records
is always listed. A replica that may lack some of them, as its broker says, is a *suspect replica*, which is not
elected. A replica that does not serve is *offline*: not elected either, but in the ELR as long as it lacks nothing. The
leader epoch grows when the leader changes or its registration does, and never with the ISR alone (KAFKA-15021). After
Kafka's PartitionChangeBuilder and KIP-966; the last member, the suspect replicas and `offline` are ours.

A member of the ISR whose process ended since it entered the ISR is *restarted*. A restarted member is not elected
before the controller knows where the logs of the other members end, or has waited for that (RULES K33).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coordinator.api import NO_EPOCH, NO_LEADER, BrokerState, PartitionState
from coordinator.controller import reassignments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coordinator.api import BrokerInfo
    from coordinator.ports import ReplicaEnd

LogEnd = tuple[int, int]  # the epoch of the last record and the offset behind it: of two logs the greater has more
NO_LOG: LogEnd = (-1, -1)
_UNKNOWN: LogEnd = (-1, 2**63 - 1)  # more than a log that was begun from scratch, whose last epoch is not known
SERVING = (BrokerState.SERVING,)
UP = (BrokerState.SERVING, BrokerState.LEAVING)


@dataclass(frozen=True, slots=True)
class Electorate:
    """The brokers that one election chooses from, and the knowledge that it has of them.

    `min_isr` is min.insync.replicas; `ends`: where logs end, as far as that was asked. `answers`: of restarted members,
    each bound to the registration that answered. `is_over`: the election waits for no more answers. `lived_on`: the
    leader is known to have been up after the restart of the members that have restarted.
    """

    brokers: Mapping[int, BrokerInfo]
    min_isr: int = 1
    ends: Mapping[int, LogEnd] = field(default_factory=dict)
    answers: Mapping[int, ReplicaEnd] = field(default_factory=dict)
    is_over: bool = False
    lived_on: bool = False

    def leads_well(self, state: PartitionState) -> bool:
        """Whether the leader is up, and still has the registration in which it was elected."""
        leader = self.brokers.get(state.leader)
        return leader is not None and leader.is_up and leader.incarnation == state.incarnation

    def is_up(self, broker_id: int) -> bool:
        """Whether the broker can lead at all."""
        return bool(self.among([broker_id], UP))

    def is_serving(self, broker_id: int) -> bool:
        """Whether the broker serves, and is not leaving."""
        return bool(self.among([broker_id], SERVING))

    def among(self, candidates: Iterable[int], states: Collection[BrokerState]) -> list[int]:
        """The candidates that have one of the states, in their order."""
        return [one for one in candidates if one in self.brokers and self.brokers[one].state in states]

    def best(self, candidates: Iterable[int], states: Collection[BrokerState]) -> int:
        """The first candidate in one of the states, or, of those whose ends are known, the one with the longest log."""
        return max(self.among(candidates, states), key=lambda one: self.ends.get(one, _UNKNOWN), default=NO_LEADER)

    def restarted(self, state: PartitionState) -> Collection[int]:
        """Listed replicas whose process is known to have ended since the replica entered the ISR; it is not known of a
        broker of the version before. The leader of an epoch has not restarted, even if such a broker has left an entry
        in the state."""
        brokers, found = self.brokers, []
        for one, entered in state.processes:
            broker = brokers.get(one)
            if broker is None or broker.process_epoch == entered or broker.process_epoch == NO_EPOCH:
                continue
            if one != state.leader or broker.incarnation != state.incarnation:
                found.append(one)
        return found

    def not_restarted(self, state: PartitionState, candidates: Iterable[int]) -> list[int]:
        """The candidates that have not restarted, in their order."""
        restarted = self.restarted(state)
        return [one for one in candidates if one not in restarted]


def settled(state: PartitionState, electorate: Electorate) -> PartitionState:
    """The state as the brokers are now: a replica that is down or leaving is out of the ISR if another member is left
    in it, a reassignment is over if it can be, and there is a leader if there can be one. The same object when nothing
    changes."""
    if (awaited := awaited_members(state, electorate)) and not is_decidable(awaited, electorate):
        return _led_by(state, NO_LEADER, electorate)
    without_short = _without_short(state, electorate) if awaited else state
    staying = _staying_members(without_short, electorate, by_end=bool(awaited))
    shrunk = with_isr(without_short, staying, electorate.min_isr)
    if awaited and shrunk.elr:  # of a shorter log it is not known whether it has all acknowledged records
        shrunk = replace(shrunk, elr=tuple(one for one in shrunk.elr if one not in electorate.answers))
    shrunk = reassignments.ended(shrunk, {*electorate.among(shrunk.isr, SERVING)} - _barred(shrunk))
    leader = _leader(shrunk, electorate)
    if leader != NO_LEADER and leader not in shrunk.isr:
        shrunk = with_isr(shrunk, [leader], electorate.min_isr)
    elected = _led_by(shrunk, leader, electorate)
    if elected is state or leader == NO_LEADER:
        return elected
    return with_processes(elected, electorate.brokers, elected.isr if awaited else [leader])


def awaited_members(state: PartitionState, electorate: Electorate) -> list[int]:
    """The members of an ISR whose log ends decide the election; none if the election goes by the ISR alone.

    The ISR alone decides if a member is up that has not restarted, as after the failure of one broker, if the ISR has
    one member, and as long as no replica is up that could be elected.
    """
    if len(state.isr) == 1 or not electorate.restarted(state):
        return []
    members, others = (_ordered(state, {*group} - _barred(state)) for group in (state.isr, state.elr))
    up = electorate.among(members, UP) or electorate.among(others, UP)
    return [] if not up or electorate.not_restarted(state, up) else list(members)


def is_decidable(awaited: Iterable[int], electorate: Electorate) -> bool:
    """Whether all of these serve and have answered, or the wait is over."""
    return electorate.is_over or all(one in electorate.answers and electorate.is_serving(one) for one in awaited)


def short_members(state: PartitionState, electorate: Electorate) -> dict[int, bool]:
    """Members that have answered and end before another one of the same last epoch, or before the high watermark that
    another one knows; with whether it is the latter: then the member lacks acknowledged records. The member with the
    greatest end is never among them."""
    answers = {one: electorate.answers[one] for one in state.isr if one in electorate.answers}
    best = max((answer.log_end for answer in answers.values()), default=NO_LOG)
    high_watermark = max((answer.high_watermark for answer in answers.values()), default=0)
    behind = {one: answer for one, answer in answers.items() if answer.log_end < best}
    lacks = {one: answer.end_offset < high_watermark for one, answer in behind.items()}
    return {one: lacks[one] for one, answer in behind.items() if lacks[one] or answer.last_epoch == best[0]}


def _without_short(state: PartitionState, electorate: Electorate) -> PartitionState:
    for one, lacks in short_members(state, electorate).items():
        if lacks:
            state = with_suspect(state, one, electorate.answers[one].log_end, electorate.min_isr)
    return state


def preferred(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Elect the preferred leader, the first of the replicas, if it can lead; the same object when nothing changes."""
    first = state.replicas[0]
    can_lead = first in state.isr and first not in _barred(state) and first not in electorate.restarted(state)
    return _led_by(state, first, electorate) if can_lead and electorate.is_serving(first) else state


def unclean(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Elect a replica that may lack acknowledged records, if no other can lead: by order, or by the topic's config.

    Of suspect replicas, the one with the longest log is elected. An empty log is taken only if there is no other, and
    so is a replica that a reassignment has yet to fill.
    """
    found = settled(state, electorate)
    if found.leader != NO_LEADER:
        return found
    awaited = awaited_members(state, electorate)
    is_waiting = awaited and not is_decidable(awaited, electorate)
    return found if is_waiting else forced(state, electorate) or found


def forced(state: PartitionState, electorate: Electorate) -> PartitionState | None:
    """Elect a serving replica, in sync or not; None when none serves."""
    suspect_ends = {broker_id: (epoch, end) for broker_id, epoch, end in state.suspect_replicas}
    by_suspect_ends = replace(electorate, ends={**electorate.ends, **suspect_ends})
    online = _online(state, state.replicas)
    before, added = [one for one in online if one not in state.adding], [one for one in online if one in state.adding]
    found = (by_suspect_ends.best(group, SERVING) for group in (before, added))
    leader = next((one for one in found if one != NO_LEADER), NO_LEADER)
    if leader == NO_LEADER:
        return None
    elected = _led_by(replace(state, isr=(leader,), elr=()), leader, electorate)
    known = with_processes(elected, electorate.brokers, [leader])
    return replace(known, unclean_since=elected.leader_epoch)


def reconciled(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Elect a leader of a topic that is not synced: once all its replicas are back, and all members of its ISR say that
    they may lack something, the longest log leads. If a replica has lost its whole log, an administrator has to order
    the election."""
    before = set(state.replicas) - set(state.adding)
    lost = {broker_id for broker_id, *end in state.suspect_replicas if tuple(end) == NO_LOG}
    is_reported = set(state.isr) <= _suspect_ids(state) and before.isdisjoint(lost)
    is_complete = is_reported and len(electorate.among(_online(state, before), SERVING)) == len(before)
    return unclean(state, electorate) if state.leader == NO_LEADER and is_complete else state


def recounted(state: PartitionState, electorate: Electorate) -> PartitionState:
    """Elect a leader after an accepted rollback: the ISR is as of an earlier time, and no clean election is possible.
    Once all replicas serve, and each has told where its log ends, the one with the longest log leads. A replica without
    a log has told nothing: an administrator has to order an election then."""
    ends = {broker_id: (epoch, end) for broker_id, epoch, end in state.suspect_replicas if (epoch, end) != NO_LOG}
    voters = [one for one in state.replicas if one not in state.adding or one in ends]
    serving_now = electorate.among(_online(state, voters), SERVING)
    if len(serving_now) < len(voters) or not ends.keys() >= {*voters}:
        return state
    leader = replace(electorate, ends=ends).best(voters, SERVING)
    elected = _led_by(replace(state, isr=(leader,), elr=()), leader, electorate)
    return with_processes(elected, electorate.brokers, [leader])


def with_isr(state: PartitionState, isr: Iterable[int], min_isr: int) -> PartitionState:
    """The state with another ISR. While the ISR is too small, nothing is acknowledged, so replicas that have left it
    since it was large enough have all acknowledged records: they are the ELR. The same object when nothing changes."""
    members = set(isr)
    assert members, "the last member of an ISR stays"
    if members == set(state.isr):
        return state
    suspect_replicas = tuple(
        suspect for suspect in state.suspect_replicas if suspect[0] not in members - set(state.isr)
    )
    is_enough = len(members) >= reassignments.enough_in_sync(state, min_isr)
    elr = set() if is_enough else {*state.elr, *state.isr} - members - _suspect_ids(state)
    processes = tuple(known for known in state.processes if known[0] in members & {*state.isr} or known[0] in elr)
    return replace(
        state,
        isr=_ordered(state, members),
        elr=_ordered(state, elr),
        suspect_replicas=suspect_replicas,
        processes=processes,
    )


def processes_of(replicas: Iterable[int], brokers: Mapping[int, BrokerInfo]) -> tuple[tuple[int, int], ...]:
    """The processes of a new partition's replicas, which are all in its ISR."""
    epochs = ((one, brokers[one].process_epoch) for one in replicas)
    return tuple((one, epoch) for one, epoch in epochs if epoch != NO_EPOCH)


def with_processes(
    state: PartitionState, brokers: Mapping[int, BrokerInfo], entered: Collection[int]
) -> PartitionState:
    """The state with the processes of the listed replicas: those of `entered`, and unknown ones, as they are registered
    now. Nothing is noted of a broker of the version before. The same object when nothing changes."""
    known, listed = dict(state.processes), [one for one in state.replicas if one in (*state.isr, *state.elr)]
    for one in listed:
        broker = brokers.get(one)
        if broker is not None and broker.is_up and (one in entered or one not in known):
            known[one] = broker.process_epoch
    processes = tuple((one, known[one]) for one in listed if known.get(one, NO_EPOCH) != NO_EPOCH)
    return state if processes == state.processes else replace(state, processes=processes)


def without_elr(state: PartitionState) -> PartitionState:
    """The state without its ELR, before min.insync.replicas becomes smaller: a small ISR may acknowledge from then
    on."""
    return replace(state, elr=()) if state.elr else state


def with_suspect(state: PartitionState, broker_id: int, end: LogEnd, min_isr: int) -> PartitionState:
    """The state for a broker whose log, up to `end`, may lack acknowledged records: marked as suspect, out of the ELR,
    and out of the ISR if another member is left in it. If it was to lead, another one does, or none."""
    suspects = {suspect[0]: suspect for suspect in state.suspect_replicas} | {broker_id: (broker_id, *end)}
    listed = replace(state, suspect_replicas=tuple(suspect for _, suspect in sorted(suspects.items())))
    rest = [one for one in state.isr if one != broker_id]
    shrunk = with_isr(listed, rest, min_isr) if rest else listed
    return replace(shrunk, elr=tuple(one for one in shrunk.elr if one != broker_id))


def not_serving(state: PartitionState, broker_id: int, electorate: Electorate) -> PartitionState:
    """The state for a broker whose log is not open: out of the ISR if another member serves, and in the ELR as
    before."""
    with_offline = replace(state, offline=_ordered(state, {*state.offline, broker_id}))
    rest = [one for one in state.isr if one != broker_id]
    not_restarted = electorate.not_restarted(with_offline, _online(with_offline, rest))
    return (
        with_isr(with_offline, rest, electorate.min_isr) if electorate.among(not_restarted, SERVING) else with_offline
    )


def serving(state: PartitionState, broker_id: int) -> PartitionState:
    """The state for a broker whose log is open again; the same object if nothing changes."""
    if broker_id not in state.offline:
        return state
    return replace(state, offline=tuple(one for one in state.offline if one != broker_id))


def returned(state: PartitionState, broker_id: int) -> PartitionState:
    """The state for a lost log that is back, of the last member of an ISR: no other replica can have been written
    meanwhile."""
    lost = (broker_id, *NO_LOG)
    is_back = lost in state.suspect_replicas and broker_id in state.isr
    return (
        replace(state, suspect_replicas=tuple(suspect for suspect in state.suspect_replicas if suspect != lost))
        if is_back
        else state
    )


def is_led(state: PartitionState, electorate: Electorate) -> bool:
    """Whether a broker leads that is up and has all acknowledged records: an election would leave it the leader."""
    return electorate.leads_well(state) and _leader(state, electorate) == state.leader


def _staying_members(state: PartitionState, electorate: Electorate, *, by_end: bool) -> list[int]:
    """Members that stay in the ISR: serving ones, else those of brokers that are leaving, else all. `by_end`: only
    those with the greatest end, as far as ends are known."""
    online = _online(state, state.isr)
    staying = _preferably_not_restarted(state, electorate, online)
    if not electorate.lived_on and len(staying) < len(online):
        staying = online  # a leader that seems to serve may have ended, and may never come back
    if by_end:
        staying = _longest(electorate, staying)
    return electorate.among(staying, SERVING) or electorate.among(staying, UP) or list(state.isr)


def _longest(electorate: Electorate, candidates: list[int]) -> list[int]:
    """The serving candidates with the greatest end; all if no end is known."""
    answers = electorate.answers
    ends = {one: answers[one].log_end for one in electorate.among(candidates, SERVING) if one in answers}
    return [one for one, end in ends.items() if end == max(ends.values())] or candidates


def _preferably_not_restarted(state: PartitionState, electorate: Electorate, candidates: Iterable[int]) -> list[int]:
    """The candidates that have not restarted, if one of them is up, else all."""
    candidates = [*candidates]
    if not electorate.restarted(state):
        return candidates
    not_restarted = electorate.not_restarted(state, candidates)
    return not_restarted if electorate.among(not_restarted, UP) else candidates


def _leader(state: PartitionState, electorate: Electorate) -> int:
    """The broker that is to lead: the present leader stays, but a leaving one gives way to another in sync."""
    barred = _barred(state)
    stays = electorate.leads_well(state) and state.leader in state.isr and state.leader not in barred
    if stays and electorate.is_serving(state.leader):
        return state.leader
    groups = (_ordered(state, {*group} - barred) for group in (state.isr, state.elr))
    isr, elr = (_preferably_not_restarted(state, electorate, group) for group in groups)
    if stays:
        return next(iter(electorate.among(isr, SERVING)), state.leader)
    found = (electorate.best(group, states) for states in (SERVING, UP) for group in (isr, elr))
    return next((one for one in found if one != NO_LEADER), NO_LEADER)


def _led_by(state: PartitionState, leader: int, electorate: Electorate) -> PartitionState:
    """Another leader, or the same broker in another registration, begins an epoch."""
    if leader == state.leader and (leader == NO_LEADER or electorate.leads_well(state)):
        return state
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        incarnation=bytes(16) if leader == NO_LEADER else electorate.brokers[leader].incarnation,
        last_known_leader=state.leader if leader == NO_LEADER else NO_LEADER,
        suspect_replicas=tuple(suspect for suspect in state.suspect_replicas if suspect[0] != leader),
        recount=state.recount and leader == NO_LEADER,
    )


def _suspect_ids(state: PartitionState) -> set[int]:
    return {suspect[0] for suspect in state.suspect_replicas}


def _barred(state: PartitionState) -> set[int]:
    """Replicas that no clean election takes; after an accepted rollback `recounted` alone elects."""
    return {*state.replicas} if state.recount else _suspect_ids(state) | {*state.offline}


def _online(state: PartitionState, candidates: Iterable[int]) -> list[int]:
    return [one for one in candidates if one not in state.offline]


def _ordered(state: PartitionState, members: Iterable[int]) -> tuple[int, ...]:
    wanted = set(members)
    return tuple(one for one in state.replicas if one in wanted)
