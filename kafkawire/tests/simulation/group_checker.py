"""Anomalies in a history of groups: partitions owned twice, stale commits that were accepted, lost offsets.

Pure, as `checker` is. Kafka keeps the record of a group, written after the leader has assigned: a SyncGroup with a
reply is known for ever. A JoinGroup reply is forgotten with the coordinator, and counts within an *era* alone.
Committed offsets are registers, one per group and partition, and each value is written once: such a history is
linearizable if no two values were there at the same time (Gibbons and Korach).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.group_history import AWAY, NO_ERA, Call, GroupHistory, Kind, OffsetRead, Removal
from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.plan import Target

SIMPLE = -1  # the generation of a client that is no member
CLOCK_MS = 5  # the greatest difference between two readings of one instant
# Errors of commits that certainly have no effect. After any other error a commit may be under way.
REFUSED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
STABLE, EMPTY = "Stable", "Empty"


@dataclass
class Facts:
    """A history, sorted by group."""

    history: GroupHistory
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[OffsetRead]] = field(default_factory=lambda: defaultdict(list))
    removals: dict[str, list[Removal]] = field(default_factory=lambda: defaultdict(list))

    def taken(self, group: str, *kinds: Kind) -> list[Call]:
        """Requests that a coordinator accepted when it had loaded: during a load it accepts every heartbeat."""
        informed: dict[int, int] = {}  # of each era, when it had certainly loaded
        for call in self.calls[group]:
            if call.kind is not Kind.HEARTBEAT and call.code not in AWAY and call.era != NO_ERA:
                informed[call.era] = min(call.completed, informed.get(call.era, UNANSWERED))
        return [
            call
            for call in self.answered(group, *kinds)
            if call.kind is not Kind.HEARTBEAT or informed.get(call.era, UNANSWERED) < call.invoked
        ]

    def answered(self, group: str, *kinds: Kind) -> list[Call]:
        """Successful requests, in the order of the replies."""
        found = [call for call in self.calls[group] if call.is_ok and call.kind in kinds]
        return sorted(found, key=lambda call: call.completed)


def check_groups(history: GroupHistory, *, may_be_stale: bool = False) -> list[Anomaly]:
    """All anomalies. `may_be_stale`: whether an offset may be stale if it was not requested as a stable one; see
    `stale_offsets`."""
    facts = _facts(history)
    found: list[Anomaly] = []
    for group in sorted({*facts.calls, *facts.reads}):
        found += _owners(facts, group)
        found += _leaders(facts, group)
        found += _generations(facts, group)
        found += _stale(facts, group)
        found += _fenced(facts, group)
        found += _thrown_out(facts, group)
        found += _offsets(facts, group, may_be_stale=may_be_stale)
        found += _last_words(facts, group)
    return found


def _facts(history: GroupHistory) -> Facts:
    facts = Facts(history)
    for call in history.calls:
        facts.calls[call.group].append(call)
    for read in history.reads:
        facts.reads[read.group].append(read)
    for removal in history.removals:
        facts.removals[removal.group].append(removal)
    return facts


# Membership


def _owners(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Partitions with two owners in a generation, and owners with two assignments."""
    assigned: dict[int, dict[str, tuple[Target, ...]]] = defaultdict(dict)
    for call in facts.answered(group, Kind.SYNC):
        there = assigned[call.generation].setdefault(call.owner, call.assigned)
        if there != call.assigned:
            yield Anomaly("assigned anew", f"{group}/{call.generation}: {call.owner} has {there}, then {call.assigned}")
    for generation, owners in sorted(assigned.items()):
        for (one, its), (other, others) in combinations(sorted(owners.items()), 2):
            if both := set(its) & set(others):
                detail = f"{group}/{generation}: {sorted(both)} of {one} and {other}"
                yield Anomaly("owned twice", detail)


def _leaders(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Generations with two leaders, or with different members for the leader."""
    leaders: dict[int, list[Call]] = defaultdict(list)
    for call in facts.answered(group, Kind.JOIN):
        if call.is_leader:
            leaders[call.generation].append(call)
    synced = {call.generation: call.completed for call in reversed(facts.answered(group, Kind.SYNC))}
    for generation, calls in sorted(leaders.items()):
        for one, other in combinations(calls, 2):
            same_era = one.era == other.era != NO_ERA
            if not same_era and synced.get(generation, UNANSWERED) > other.invoked:
                continue  # a generation that was not written is repeated after the loss of the coordinator
            if one.owner != other.owner:
                yield Anomaly("two leaders", f"{group}/{generation}: {one.owner} and {other.owner}")
            elif one.members != other.members:
                yield Anomaly("generation reused", f"{group}/{generation}: {one.members} and {other.members}")


class _Known(NamedTuple):
    """The knowledge that a generation had begun."""

    at: int
    generation: int
    era: int | None  # None: for ever


def _known(facts: Facts, group: str) -> list[_Known]:
    return [
        _Known(call.completed, call.generation, None if call.kind is Kind.SYNC else call.era)
        for call in facts.answered(group, Kind.JOIN, Kind.SYNC)
    ]


def _newest(known: list[_Known], call: Call) -> int:
    """The newest generation that must have been known when the request came."""
    counted = (
        one.generation for one in known if one.at < call.invoked and (one.era is None or one.era == call.era != NO_ERA)
    )
    return max(counted, default=0)


def _generations(facts: Facts, group: str) -> Iterator[Anomaly]:
    known = _known(facts, group)
    for call in facts.answered(group, Kind.JOIN, Kind.SYNC):
        newest = _newest(known, call)
        if call.generation < newest:
            yield Anomaly("generation went back", f"{group}: {call.kind.value} in {call.generation} after {newest}")


def _stale(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Accepted requests of a member of an earlier generation."""
    known = _known(facts, group)
    for call in facts.taken(group, Kind.COMMIT, Kind.HEARTBEAT):
        newest = _newest(known, call)
        if SIMPLE < call.generation < newest:
            detail = f"{group}: {call.kind.value} of {call.owner} in {call.generation}, {newest} had begun"
            yield Anomaly("stale generation", detail)


class _Gone(NamedTuple):
    """The time from which on a member id is invalid, and the reason."""

    at: int
    era: int | None  # None: for ever
    why: str


def _fenced(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Accepted requests of a member that was replaced, has left, or was told that it is unknown."""
    gone = _gone(facts, group)
    for call in facts.taken(group, Kind.COMMIT, Kind.HEARTBEAT, Kind.SYNC):
        for at, era, why in gone.get(call.member_id, ()):
            if at < call.invoked and (era is None or era == call.era != NO_ERA):
                yield Anomaly(f"{why} member", f"{group}: {call.kind.value} of {call.member_id} is taken")
                break


def _gone(facts: Facts, group: str) -> dict[str, list[_Gone]]:
    gone: dict[str, list[_Gone]] = defaultdict(list)
    came: dict[str, list[Call]] = defaultdict(list)  # by instance
    for call in facts.answered(group, Kind.JOIN, Kind.SYNC):
        if call.instance_id is None:
            continue
        era = None if call.kind is Kind.SYNC else call.era
        for before in came[call.instance_id]:
            if before.member_id != call.member_id and before.completed < _first(came, call).invoked:
                gone[before.member_id].append(_Gone(call.completed, era, "fenced"))
        came[call.instance_id].append(call)
    for call in facts.calls[group]:
        if call.kind is Kind.LEAVE and call.is_ok:
            gone[call.member_id].append(_Gone(call.completed, call.era, "left"))
        elif call.code == ErrorCode.UNKNOWN_MEMBER_ID and call.member_id:
            gone[call.member_id].append(_Gone(call.completed, call.era, "unknown"))
    return gone


def _first(came: dict[str, list[Call]], call: Call) -> Call:
    """The call in which this member id appeared first."""
    known = came[call.instance_id or ""]
    return next((one for one in known if one.member_id == call.member_id), call)


def _thrown_out(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Members that were removed although they synced and sent heartbeats. A member has a session's time, and during a
    rebalance the time for that."""
    stays_ms = min(facts.history.session_timeouts_ms[group], facts.history.rebalance_timeouts_ms[group])
    synced: set[tuple[str, int]] = set()
    beaten_ms: dict[str, int] = {}
    beats = {id(call) for call in facts.taken(group, Kind.HEARTBEAT)}
    left = {call.member_id: call.invoked for call in facts.calls[group] if call.kind is Kind.LEAVE}  # answered or not
    for call in sorted(facts.calls[group], key=lambda call: call.completed):
        if call.instance_id is not None or not call.member_id:
            continue
        if call.kind is Kind.SYNC and call.is_ok:
            synced.add((call.member_id, call.generation))
        elif id(call) in beats and (call.member_id, call.generation) in synced:
            beaten_ms[call.member_id] = call.invoked_ms
        elif call.code == ErrorCode.UNKNOWN_MEMBER_ID and call.completed < left.get(call.member_id, UNANSWERED):
            since_ms = call.completed_ms - beaten_ms.get(call.member_id, -UNANSWERED)
            if since_ms < stays_ms - CLOCK_MS:
                detail = f"{group}: {call.member_id} is not known {since_ms} ms after a heartbeat"
                yield Anomaly("thrown out", detail)


# Offsets


@dataclass
class _Register:
    """The commits of one group for one partition."""

    name: str
    writes: dict[int, Call] = field(default_factory=dict)
    reads: dict[int, list[OffsetRead]] = field(default_factory=lambda: defaultdict(list))
    empty_reads: list[OffsetRead] = field(default_factory=list)
    doubtful: list[tuple[OffsetRead, int | None]] = field(default_factory=list)  # maybe from a deposed coordinator
    removals: list[Removal] = field(default_factory=list)

    def note(self, read: OffsetRead, number: int | None, *, is_doubtful: bool) -> None:
        if is_doubtful:
            self.doubtful.append((read, number))
        elif number is None:
            self.empty_reads.append(read)
        else:
            self.reads[number].append(read)


class _Zone(NamedTuple):
    """The time in which a value was there for certain (`first` < `last`); else the value was there at some instant from
    `last` to `first`."""

    first: int
    last: int
    what: str


def _offsets(facts: Facts, group: str, *, may_be_stale: bool) -> Iterator[Anomaly]:
    for register in _registers(facts, group, may_be_stale=may_be_stale):
        yield from _phantoms(register)
        yield from _went_back(register)
        yield from _lost(register)


def _registers(facts: Facts, group: str, *, may_be_stale: bool) -> list[_Register]:
    found: dict[Target, _Register] = {}

    def at(target: Target) -> _Register:
        return found.setdefault(target, _Register(f"{group} at {target.topic}-{target.partition}"))

    for call in facts.calls[group]:
        for target, number in call.offsets.items():
            at(target).writes[number] = call
    for read in facts.reads[group]:
        for target, found_number in read.found.items():
            at(target).note(read, found_number, is_doubtful=may_be_stale and not read.is_stable)
    for removal in facts.removals[group]:
        for target, register in found.items():
            if removal.concerns(target):
                register.removals.append(removal)
    return [register for _, register in sorted(found.items())]


def _phantoms(register: _Register) -> Iterator[Anomaly]:
    """Offsets that were read before they were committed, or although they were refused."""
    by_number: dict[int, list[OffsetRead]] = defaultdict(list)
    for number, reads in register.reads.items():
        by_number[number] += reads
    for read, doubtful in register.doubtful:
        if doubtful is not None:
            by_number[doubtful].append(read)
    for number, reads in sorted(by_number.items()):
        call = register.writes.get(number)
        if call is None or min(read.completed for read in reads) < call.invoked:
            yield Anomaly("phantom commit", f"{register.name}: {number} was not committed when it was read")
        elif call.code in REFUSED:
            yield Anomaly("phantom commit", f"{register.name}: {number} was refused with {call.code}, and is there")


def _effective_end(register: _Register, number: int) -> int:
    """The time by which the value was there; UNANSWERED if it may never have been."""
    call = register.writes[number]
    ends = [read.completed for read in register.reads.get(number, ())]
    return min([*ends, call.completed if call.is_ok else UNANSWERED])


def _zones(register: _Register) -> list[_Zone]:
    """A zone for each value that was there, for each deletion, and for each read that found none."""
    zones = []
    for number, call in register.writes.items():
        end = _effective_end(register, number)
        if end < UNANSWERED:
            last = max([call.invoked, *(read.invoked for read in register.reads.get(number, ()))])
            zones.append(_Zone(end, last, str(number)))
    zones += [_Zone(one.completed, one.invoked, "deletion") for one in register.removals if one.is_done]
    zones += [_Zone(one.completed, one.invoked, "nothing") for one in register.empty_reads]
    return zones


def _went_back(register: _Register) -> Iterator[Anomaly]:
    """Values that are there before and after another value."""
    lasting: _Zone | None = None  # the zone with the latest end, among those with an extent
    for zone in sorted(_zones(register)):
        is_brief = zone.first >= zone.last
        if lasting is not None and zone.first < lasting.last and (not is_brief or lasting.first < zone.last):
            yield Anomaly("offset went back", f"{register.name}: {lasting.what} is there before and after {zone.what}")
        if not is_brief and (lasting is None or zone.last > lasting.last):
            lasting = zone


def _lost(register: _Register) -> Iterator[Anomaly]:
    """Reads that find no value after a commit, without a deletion or an expiry."""
    for read in register.empty_reads:
        for number in register.writes:
            end = _effective_end(register, number)
            if end < read.invoked and not _may_be_gone(register, register.writes[number], read):
                yield Anomaly("lost commit", f"{register.name}: {number} was there, nothing is")
                break


def _may_be_gone(register: _Register, committed: Call, read: OffsetRead) -> bool:
    """Whether a deletion or an expiry came after the commit, or at the same time."""
    for removal in register.removals:
        if removal.invoked < read.completed and removal.completed > committed.invoked:
            return True
    for number, other in register.writes.items():
        if other.retention_ms is None or other.invoked > read.completed:
            continue
        is_over = other.invoked_ms + other.retention_ms <= read.completed_ms + CLOCK_MS
        if is_over and _effective_end(register, number) >= committed.invoked:
            return True
    return False


class StaleOffset(NamedTuple):
    """A reply with an offset that another commit had replaced `age_ms` before."""

    detail: str
    age_ms: int


def stale_offsets(history: GroupHistory) -> list[StaleOffset]:
    """Replies of deposed coordinators to requests without stable offsets, as far as that is certain."""
    facts = _facts(history)
    registers = [one for group in sorted(facts.reads) for one in _registers(facts, group, may_be_stale=True)]
    return [stale for register in registers for stale in _stale_of(register)]


def _stale_of(register: _Register) -> Iterator[StaleOffset]:
    for read, number in register.doubtful:
        if number is not None and number not in register.writes:
            continue  # a phantom
        replaced_ms = [
            call.completed_ms for call in register.writes.values() if _replaces(register, call, read, number)
        ]
        if replaced_ms:
            yield StaleOffset(f"{register.name}: {number}", read.completed_ms - min(replaced_ms))


def _replaces(register: _Register, call: Call, read: OffsetRead, number: int | None) -> bool:
    """Whether that commit was certainly there at the request, and came certainly after the number in the reply."""
    if not call.is_ok or call.completed >= read.invoked:
        return False
    if number is None:
        return not _may_be_gone(register, call, read)
    return _effective_end(register, number) < call.invoked


# The end


def _last_words(facts: Facts, group: str) -> Iterator[Anomaly]:
    """Differences between the broker's final description of a group and the knowledge of its members."""
    words = facts.history.last_words
    if words is None or group not in words.described:
        return
    state, members = words.described[group]
    living = {one.member_id: one.assigned for one in words.living.get(group, ())}
    keeps_offsets = all(call.retention_ms is None for call in facts.calls[group])
    last_read = max(facts.reads[group], key=lambda read: read.completed)
    has_offsets = keeps_offsets and any(number is not None for number in last_read.found.values())
    if set(members) != set(living):
        yield Anomaly("wrong members", f"{group}: {sorted(members)} are described, {sorted(living)} live")
    elif members != living:
        yield Anomaly("wrong assignment", f"{group}: {members} are described, the members know {living}")
    if (living or has_offsets) and state != (STABLE if living else EMPTY):
        yield Anomaly("wrong state", f"{group} is {state} with {len(living)} members")
    if (living or has_offsets) and words.listed.get(group) != state:
        yield Anomaly("wrong list", f"{group} is {state}, and listed as {words.listed.get(group)}")
