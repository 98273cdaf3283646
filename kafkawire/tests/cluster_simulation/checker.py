"""Anomalies in a history of brokers that replicate, and in the observations of brokers. Pure.

Records acknowledged with acks=all must stay, at the offset in the reply, and once. With acks=1 a record may be lost if
another broker came to lead, but not after a consumer has read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafkawire.tests.cluster_simulation.machines import BROKERS
from kafkawire.tests.cluster_simulation.observer import Observations
from kafkawire.tests.simulation.checker import LATEST, Anomaly, Facts, check_records, sort
from kafkawire.tests.simulation.history import UNANSWERED, History, Outcome, Place, Send, StoredRecord

ALL = -1
NO_EPOCH = -1


def broker_of(life: int) -> int:
    """See `Machine.life`."""
    return life % (len(BROKERS) + 1)


def check(
    history: History,
    final: Mapping[Place, Mapping[int, StoredRecord]],
    observations: Observations,
    brokers: Sequence[History] = (),
) -> list[Anomaly]:
    """All anomalies. `final` is as for one broker; `brokers`: the history of each broker alone."""
    acked = [one if one.acks == ALL else _unknown(one) for one in history.sends]
    facts = sort(replace(history, sends=acked), brokers)
    found = [Anomaly("trouble", text) for text in history.troubles]
    found += check_records(facts, final)
    found += _lost_with_one_ack(history, final, observations)
    for place in facts.places():
        found += _read_then_lost(facts, place, final.get(place))
        found += _marks(facts, place)
    found += _leaders(observations)
    found += [Anomaly("lacks what counts", text) for text in observations.lacking]
    found += [Anomaly("went back", f"high watermark of {text}") for text in observations.retreats]
    for place, replicas in sorted(observations.replicas.items()):
        found += _differences(place, replicas)
    return found


def _unknown(send: Send) -> Send:
    """The send without a promise: its outcome is unknown, unless it failed."""
    if send.outcome is not Outcome.OK:
        return send
    return replace(send, outcome=Outcome.UNKNOWN, completed=UNANSWERED)


def _lost_with_one_ack(
    history: History, final: Mapping[Place, Mapping[int, StoredRecord]], observations: Observations
) -> Iterator[Anomaly]:
    for send in history.sends:
        place = history.place_of(send)
        if send.acks == ALL or send.outcome is not Outcome.OK or place is None or place not in final:
            continue
        there = [final[place].get(offset) for offset in range(send.offset, send.offset + len(send.values))]
        is_there = [None if one is None else one.value for one in there] == [*send.values]
        if not is_there and not _another_led_later(place, send, observations):
            yield Anomaly("lost write", f"{place}: {send.values} acked (acks=1) at {send.offset}, and no other led")


def _another_led_later(place: Place, send: Send, observations: Observations) -> bool:
    """Whether a broker other than the answering one led later, or may have."""
    if send.epoch == NO_EPOCH:
        return True
    newest = max((epoch for where, epoch in observations.leaders if where == place), default=NO_EPOCH)
    for epoch in range(send.epoch + 1, newest + 1):
        lives = observations.leaders.get((place, epoch))
        if lives is None or {broker_of(one) for one in lives} != {broker_of(send.life)}:
            return True
    return False


def _read_then_lost(facts: Facts, place: Place, final: Mapping[int, StoredRecord] | None) -> Iterator[Anomaly]:
    """Records that a consumer has read, and that are gone or changed in the end."""
    if final is None:
        return
    reported = set()
    for read in facts.reads[place]:
        for record in (record for batch in read.batches for record in batch.records):
            there = final.get(record.offset)
            if (there is None or there.value != record.value) and record.offset not in reported:
                reported.add(record.offset)
                what = "nothing" if there is None else f"{there.value}"
                yield Anomaly("read and gone", f"{place} at {record.offset}: {record.value} was read, there is {what}")


class _Mark(NamedTuple):
    """A high watermark in a reply of that epoch. `is_latest`: by ListOffsets, which a new leader does not answer before
    it has all records that were committed before it (KIP-207)."""

    invoked: int
    completed: int
    epoch: int
    value: int
    is_exact: bool
    is_latest: bool = False


def _marks(facts: Facts, place: Place) -> Iterator[Anomaly]:
    marks = [
        _Mark(one.invoked, one.completed, one.epoch, one.high_watermark, is_exact=True)
        for one in facts.reads[place]
        if not one.error and one.epoch != NO_EPOCH
    ]
    marks += [
        _Mark(one.invoked, one.completed, one.epoch, one.offset, is_exact=True, is_latest=True)
        for one in facts.history.lookups
        if one.place == place and one.timestamp_ms == LATEST and one.epoch != NO_EPOCH
    ]
    marks += [
        _Mark(one.invoked, one.completed, one.epoch, one.offset + len(one.values), is_exact=False)
        for one in facts.acked[place]
        if one.epoch != NO_EPOCH
    ]
    events = [(mark.completed, 0, mark) for mark in marks] + [(mark.invoked, 1, mark) for mark in marks]
    known: dict[int, int] = defaultdict(int)  # by epoch
    floor: dict[int, int] = {}
    for _, is_invoked, mark in sorted(events, key=lambda one: one[:2]):
        if is_invoked:
            epochs = [one for one in known if one == mark.epoch or (mark.is_latest and one < mark.epoch)]
            floor[id(mark)] = max((known[one] for one in epochs), default=0)
        else:
            if mark.is_exact and mark.value < floor[id(mark)]:
                detail = f"{mark.value} after {floor[id(mark)]} in epoch {mark.epoch}"
                yield Anomaly("went back", f"high watermark of {place}: {detail}")
            known[mark.epoch] = max(known[mark.epoch], mark.value)


def _leaders(observations: Observations) -> Iterator[Anomaly]:
    for (place, epoch), lives in sorted(observations.leaders.items()):
        if len(lives) > 1:
            brokers = sorted(broker_of(one) for one in lives)
            yield Anomaly("epoch used twice", f"{place}: brokers {brokers} led in epoch {epoch}")


def _differences(place: Place, replicas: Mapping[int, bytes]) -> Iterator[Anomaly]:
    first, *others = sorted(replicas)
    for other in others:
        mine, theirs = replicas[first], replicas[other]
        if mine != theirs:
            differs = next((at for at, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two), None)
            where = min(len(mine), len(theirs)) if differs is None else differs
            yield Anomaly("replicas differ", f"{place}: those of {first} and {other} from byte {where} on")
