"""Anomalies in a history: lost, doubled, reordered, changed or invented records, and offsets that go back.

Pure: a history in, anomalies out. This module alone says which records may be lost: at a power cut those that an
asynchronously flushed topic had not flushed; at any other crash none. The final state of a partition is the last
complete read after the last restart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

from kafkawire.tests.simulation.history import (
    UNANSWERED,
    History,
    Lookup,
    Outcome,
    Place,
    Read,
    Restart,
    Send,
    StoredRecord,
    Value,
    key_of,
)

OUT_OF_RANGE = 1
CORRUPT = 2
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
FETCHED_AHEAD_MS = 5000  # at most, by reads from a tier


class Anomaly(NamedTuple):
    """A violation: its name in the tests of the checker, and the evidence."""

    kind: str
    detail: str


@dataclass(slots=True)
class Facts:
    """A history, sorted by partition. `brokers`: the history of each of several brokers alone, with logical times of
    its own."""

    history: History
    brokers: Sequence[History] = ()
    acked: dict[Place, list[Send]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[Place, list[Read]] = field(default_factory=lambda: defaultdict(list))
    senders: dict[Value, Send] = field(default_factory=dict)

    def is_sync(self, place: Place) -> bool:
        return self.history.topics[place.topic_id].is_sync

    def is_compacted(self, place: Place) -> bool:
        topic = self.history.topics.get(place.topic_id)
        return topic is not None and topic.is_compacted

    def cuts(self, place: Place) -> list[Restart]:
        """Restarts after a power cut that may have taken something, with the end that it left to this partition."""
        if self.is_sync(place):
            return []
        return [one for one in self.history.restarts if place in one.cut_ends]

    def may_wait(self, read: Read) -> bool:
        """Whether the records may be under way from a remote tier."""
        topic = self.history.topics.get(read.place.topic_id)
        return topic is not None and topic.is_tiered

    def is_excused(self, read: Read) -> bool:
        """Whether the process could not read a file of the partition, which stays damaged until the next start. Or
        whether the remote tier returned wrong bytes just then: a second GET may not be enough."""
        if self.history.topics[read.place.topic_id].is_tiered and self._has_met_wrong_bytes(read):
            return True
        directory = f"{self.history.topics[read.place.topic_id].name}-{read.place.partition}"
        return any(self._could_not_read(one, directory, read) for one in self.brokers or [self.history])

    def _could_not_read(self, broker: History, directory: str, read: Read) -> bool:
        invoked, completed = (self._at(broker, time) for time in (read.invoked, read.completed))
        for failure in broker.read_failures:
            starts = sum(failure.at < one.at <= invoked for one in broker.restarts)
            if failure.directory == directory and failure.at <= completed and starts <= failure.is_at_start:
                return True
        return False

    def _at(self, broker: History, time: int) -> int:
        """The logical time of that broker at a logical time of the history."""
        if broker is self.history:
            return time
        return bisect_right(broker.times_ms, self.history.times_ms[time - 1])

    def _has_met_wrong_bytes(self, read: Read) -> bool:
        times_ms = self.history.times_ms
        since_ms = times_ms[read.invoked - 1] - FETCHED_AHEAD_MS
        return any(since_ms <= times_ms[at - 1] and at <= read.completed for at in self.history.wrong_bytes)

    def places(self) -> list[Place]:
        return sorted({*self.acked, *self.reads})


def check(history: History, final: Mapping[Place, Mapping[int, StoredRecord]]) -> list[Anomaly]:
    """All anomalies. `final` has, for each partition that must be readable in the end, its records by offset."""
    facts = sort(history)
    found = [Anomaly("trouble", text) for text in history.troubles]
    found += check_records(facts, final)
    for place in facts.places():
        found += _marks(facts, place)
        found += _epochs_of_lives(facts, place)
        found += _lost_dirs(facts, place)
        found += _out_of_range(facts, place)
    found += _lookups(facts, final)
    return found


def check_records(facts: Facts, final: Mapping[Place, Mapping[int, StoredRecord]]) -> list[Anomaly]:
    """Anomalies of records and their offsets, in logs of one leader or of several, one after the other."""
    found: list[Anomaly] = []
    for read in facts.history.reads:
        found += _check_read(read, may_have_gaps=facts.is_compacted(read.place), may_wait=facts.may_wait(read))
        if read.error == CORRUPT and not facts.is_excused(read):
            found.append(Anomaly("damaged log", f"{read.place} at {read.offset}"))
    for place in facts.places():
        found += _lost_writes(facts, place, final.get(place))
        found += _changed_offsets(facts, place)
        found += _duplicates(facts, place)
        found += _foreign_records(facts, place)
        found += _spurious_offsets(facts, place)
        found += _connection_order(facts, place)
        found += _epochs(facts, place)
    for place, records in sorted(final.items()):
        found += _producer_order(facts, place, records)
    return found


def sort(history: History, brokers: Sequence[History] = ()) -> Facts:
    """The history, sorted by partition."""
    facts = Facts(history, brokers)
    for send in history.sends:
        for value in send.values:
            facts.senders[value] = send
        if send.outcome is Outcome.OK and send.offset >= 0 and (place := history.place_of(send)) is not None:
            facts.acked[place].append(send)
    for read in history.reads:
        facts.reads[read.place].append(read)
    return facts


def _may_be_lost(facts: Facts, place: Place, send: Send) -> bool:
    """Whether a power cut came that may have lost the records."""
    last = send.offset + len(send.values) - 1
    return any(cut.at > send.completed and cut.cut_ends[place] <= last for cut in facts.cuts(place))


def _check_read(read: Read, *, may_have_gaps: bool, may_wait: bool) -> Iterator[Anomaly]:
    """Anomalies within a single reply."""
    if read.damage:
        yield Anomaly("wrong bytes", f"{read.place} at {read.offset}: {read.damage}")
    if read.error:
        return
    expected = None
    for batch in read.batches:
        is_behind = may_have_gaps and batch.base_offset > (read.offset if expected is None else expected)
        if expected is None and not (is_behind or batch.base_offset <= read.offset <= batch.last_offset):
            yield Anomaly("wrong place", f"{read.place}: {batch.base_offset} for offset {read.offset}")
        if expected is not None and not is_behind and batch.base_offset != expected:
            yield Anomaly("gap", f"{read.place}: {batch.base_offset} after {expected - 1}")
        expected = batch.last_offset + 1
    if expected is not None and expected > read.high_watermark:
        yield Anomaly("read above high watermark", f"{read.place}: {expected - 1}, mark {read.high_watermark}")
    if read.is_alone and not read.batches and read.offset < read.high_watermark and not may_wait:
        yield Anomaly("nothing below high watermark", f"{read.place}: {read.offset}, mark {read.high_watermark}")


def _lost_writes(facts: Facts, place: Place, final: Mapping[int, StoredRecord] | None) -> Iterator[Anomaly]:
    if final is None:
        return
    start = _known_start(facts, place)
    newest = {key_of(one.value): offset for offset, one in sorted(final.items())} if facts.is_compacted(place) else {}
    for send in facts.acked[place]:
        if _may_be_lost(facts, place, send):
            continue
        for offset, value in enumerate(send.values, send.offset):
            there = final.get(offset)
            if there is None and newest.get(key_of(value), -1) > offset:
                continue  # it gave way to that
            if offset >= start and (there is None or there.value != value):
                what = "nothing" if there is None else f"{there.value}"
                yield Anomaly("lost write", f"{place}: {value} acked (acks={send.acks}) at {offset}, there is {what}")


def _known_start(facts: Facts, place: Place) -> int:
    """The greatest log start offset in any reply."""
    starts = [read.log_start_offset for read in facts.reads[place]]
    starts += [one.log_start_offset for one in facts.history.deletions if one.place == place]
    starts += [one.offset for one in facts.history.lookups if one.place == place and one.timestamp_ms == EARLIEST]
    return max(starts, default=0)


def _sightings(facts: Facts, place: Place) -> Iterator[dict[int, set[Value]]]:
    """Values by offset, as acknowledged or read: a map for each span of time in which offsets must not change."""
    seen: dict[int, set[Value]] = defaultdict(set)
    events: list[tuple[int, Send | Read | Restart]] = []
    events += [(send.completed, send) for send in facts.acked[place]]
    events += [(read.completed, read) for read in facts.reads[place]]
    events += [(cut.at, cut) for cut in facts.cuts(place)]
    for _, event in sorted(events, key=lambda one: one[0]):
        if isinstance(event, Restart):
            gone = {offset for offset in seen if offset >= event.cut_ends[place]}
            if gone:
                yield {offset: seen.pop(offset) for offset in gone}
        elif isinstance(event, Send):
            for offset, value in enumerate(event.values, event.offset):
                seen[offset].add(value)
        else:
            for batch in event.batches:
                for record in batch.records:
                    seen[record.offset].add(record.value)
    yield seen


def _changed_offsets(facts: Facts, place: Place) -> Iterator[Anomaly]:
    for seen in _sightings(facts, place):
        for offset, values in sorted(seen.items()):
            if len(values) > 1:
                yield Anomaly("inconsistent offset", f"{place} at {offset}: {sorted(values)}")


def _duplicates(facts: Facts, place: Place) -> Iterator[Anomaly]:
    for seen in _sightings(facts, place):
        times = Counter(value for values in seen.values() for value in values)
        for value, count in sorted(times.items()):
            send = facts.senders.get(value)
            allowed = 1 if send is None or send.producer is not None else max(1, send.attempts)
            if count > allowed:
                yield Anomaly("duplicate", f"{place}: {value} at {count} offsets, {allowed} attempts")


def _foreign_records(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Records that were read, but never sent there, or refused, or sent to an earlier topic of that name."""
    topic = facts.history.topics[place.topic_id]
    reported = set()
    for read in facts.reads[place]:
        for batch in read.batches:
            for record in batch.records:
                send = facts.senders.get(record.value)
                if send is None or (send.topic, send.partition) != (topic.name, place.partition):
                    reason = "was never sent there"
                elif send.topic_id not in (None, place.topic_id) or send.completed < topic.creation_invoked:
                    reason = "was sent to an earlier topic"
                elif send.outcome is Outcome.FAILED:
                    reason = "was refused"
                else:
                    continue
                if record.value not in reported:
                    reported.add(record.value)
                    yield Anomaly("phantom", f"{place} at {record.offset}: {record.value} {reason}")


def _spurious_offsets(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Acknowledged offsets below the log end that was known before the batch was first sent."""
    events: list[tuple[int, int, Send | Read | Restart]] = []
    for send in facts.acked[place]:
        events += [(send.invoked, 1, send), (send.completed, 2, send)]
    events += [(read.completed, 0, read) for read in facts.reads[place]]
    events += [(cut.at, 0, cut) for cut in facts.cuts(place)]
    known = 0
    floor: dict[int, int] = {}
    for _, kind, event in sorted(events, key=lambda one: one[:2]):
        if isinstance(event, Restart):
            known = min(known, event.cut_ends[place])
        elif isinstance(event, Read):
            known = max(known, event.high_watermark)
        elif kind == 1:
            floor[id(event)] = known
        else:
            if event.offset < floor[id(event)] and not _cut_between(facts, place, event):
                yield Anomaly(
                    "spurious offset", f"{place}: {event.values[0]} acked at {event.offset}, end was {floor[id(event)]}"
                )
            known = max(known, event.offset + len(event.values))


def _cut_between(facts: Facts, place: Place, send: Send) -> bool:
    """Whether a power cut came during the request: knowledge from before need not hold after it."""
    return any(send.invoked < cut.at < send.completed for cut in facts.cuts(place))


def _connection_order(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Batches of one connection that were not appended in the order in which they were sent."""
    by_connection: dict[int, list[Send]] = defaultdict(list)
    for send in facts.acked[place]:
        if send.producer is None:
            by_connection[send.connection_slot[0]].append(send)
    for sends in by_connection.values():
        sends.sort(key=lambda send: send.connection_slot[1])
        for before, after in pairwise(sends):
            if after.offset <= before.offset:
                detail = f"{before.values[0]} at {before.offset}, {after.values[0]} at {after.offset}"
                yield Anomaly("reordered", f"{place}: {detail}")


def _producer_order(facts: Facts, place: Place, final: Mapping[int, StoredRecord]) -> Iterator[Anomaly]:
    """Records of an idempotent producer that are not in the order in which they were sent."""
    latest: dict[tuple[int, int], Value] = {}
    for _, record in sorted(final.items()):
        send = facts.senders.get(record.value)
        if send is None or send.producer is None:
            continue
        before = latest.get(send.producer)
        if before is not None and before >= record.value:
            yield Anomaly("reordered", f"{place} at {record.offset}: {record.value} after {before}")
        latest[send.producer] = record.value


class _Mark(NamedTuple):
    """A high watermark in a reply, or a lower bound of it if not `is_exact`."""

    invoked: int
    completed: int
    value: int
    is_exact: bool


def _marks(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """High watermarks and log starts that go back, except after a power cut in an asynchronously flushed topic."""
    marks = [
        _Mark(read.invoked, read.completed, read.high_watermark, True)
        for read in facts.reads[place]
        if not read.error and read.high_watermark >= 0
    ]
    marks += [
        _Mark(one.invoked, one.completed, one.offset, True)
        for one in facts.history.lookups
        if one.place == place and one.timestamp_ms == LATEST
    ]
    marks += [_Mark(send.invoked, send.completed, send.offset + len(send.values), False) for send in facts.acked[place]]
    resets = [(cut.at, cut.cut_ends[place]) for cut in facts.cuts(place)]
    yield from _monotone(f"high watermark of {place}", marks, resets)
    starts = [
        _Mark(read.invoked, read.completed, read.log_start_offset, True)
        for read in facts.reads[place]
        if not read.error and read.log_start_offset >= 0
    ]
    deletions = [one for one in facts.history.deletions if one.place == place]
    starts += [
        _Mark(one.invoked, one.completed, one.log_start_offset, False) for one in deletions if one.log_start_offset >= 0
    ]
    yield from _monotone(f"log start of {place}", starts, [])
    expired_to = _expired_to(facts, place)
    for start in starts:
        asked = max((one.offset for one in deletions if one.invoked < start.completed), default=0)
        if start.value > expired_to(start.completed, asked):
            yield Anomaly("log start ahead", f"{place}: {start.value}, nobody asked for more than {asked}")


def _expired_to(facts: Facts, place: Place) -> Callable[[int, int], int]:
    """A function that returns up to which offset retention may have moved the log start by a logical time, from an
    offset on: the first record that was read and is young enough."""
    history = facts.history
    retention_ms = history.topics[place.topic_id].retention_ms
    if retention_ms is None:
        return lambda _, start: start
    if facts.is_compacted(place):  # a young record may have been compacted away
        return lambda _, start: UNANSWERED
    records = sorted({(record.offset, record.timestamp_ms) for record in _kept_records(facts, place)})

    def at(time: int, start: int) -> int:
        young_ms = history.times_ms[min(time, len(history.times_ms)) - 1] - retention_ms
        behind = islice(records, bisect_left(records, (start,)), None)
        return next((offset for offset, timestamp_ms in behind if timestamp_ms >= young_ms), UNANSWERED)

    return at


def _kept_records(facts: Facts, place: Place) -> Iterator[StoredRecord]:
    """All records that were read, except those that a power cut lost later: other records may have their offsets
    now."""
    cuts = facts.cuts(place)
    for read in facts.reads[place]:
        end = min((cut.cut_ends[place] for cut in cuts if cut.at > read.completed), default=UNANSWERED)
        yield from (record for batch in read.batches for record in batch.records if record.offset < end)


def _monotone(what: str, marks: list[_Mark], resets: list[tuple[int, int]]) -> Iterator[Anomaly]:
    """Replies with a lower offset than an earlier reply: requests that began after the earlier reply came."""
    events: list[tuple[int, int, _Mark | int]] = [(at, 0, value) for at, value in resets]
    for mark in marks:
        events += [(mark.completed, 1, mark)]
        if mark.is_exact:
            events += [(mark.invoked, 2, mark)]
    known = 0
    floor: dict[int, int] = {}
    crossed: list[int] = []
    for at, kind, event in sorted(events, key=lambda one: one[:2]):
        if not isinstance(event, _Mark):
            known = min(known, event)
            crossed.append(at)
        elif kind == 2:
            floor[id(event)] = known
        else:
            if event.is_exact and event.value < floor[id(event)] and not any(at > event.invoked for at in crossed):
                yield Anomaly("went back", f"{what}: {event.value} after {floor[id(event)]}")
            known = max(known, event.value)


def _epochs(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Leader epochs that fall along the log."""
    for read in facts.reads[place]:
        before = -1
        for batch in read.batches:
            if batch.leader_epoch < before:
                yield Anomaly("epoch went back", f"{place} at {batch.base_offset}: {batch.leader_epoch}")
            before = batch.leader_epoch


def _epochs_of_lives(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Leader epochs that span two processes of the broker (RULES L3)."""
    epoch_at: dict[tuple[int, Value], int] = {}
    for read in facts.reads[place]:
        for batch in read.batches:
            if batch.records:
                epoch_at[batch.records[0].offset, batch.records[0].value] = batch.leader_epoch
    lives: dict[int, set[int]] = defaultdict(set)
    for send in facts.acked[place]:
        stored = (send.offset, send.values[0])
        if send.producer is None and stored in epoch_at and facts.is_sync(place):
            lives[epoch_at[stored]].add(send.life)
    for epoch, of_epoch in sorted(lives.items()):
        if len(of_epoch) > 1:
            yield Anomaly("epoch used twice", f"{place}: epoch {epoch} in lives {sorted(of_epoch)}")


def _lost_dirs(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """Appends to a log dir after a failed write or sync, even if the disk seems to work again (RULES L4)."""
    for failure in facts.history.dir_failures:
        for send in facts.acked[place]:
            if place in failure.places and send.life == failure.life and send.connection_slot[1] > failure.at:
                yield Anomaly("acked by a lost log dir", f"{place}: {send.values[0]} at {send.offset}")


def _out_of_range(facts: Facts, place: Place) -> Iterator[Anomaly]:
    """OFFSET_OUT_OF_RANGE for an offset that is known to be there."""
    sound = sorted(
        (read.completed, read.high_watermark) for read in facts.reads[place] if not read.error and facts.is_sync(place)
    )
    asked = [(one.invoked, one.offset) for one in facts.history.deletions if one.place == place]
    expired_to = _expired_to(facts, place)
    for read in facts.reads[place]:
        if read.error != OUT_OF_RANGE:
            continue
        end = max((value for completed, value in sound if completed < read.invoked), default=0)
        deleted = max((offset for invoked, offset in asked if invoked < read.completed), default=0)
        start = expired_to(read.completed, deleted)
        if start <= read.offset <= end:
            yield Anomaly("refused offset", f"{place}: {read.offset} is within [{start}, {end}]")


def _lookups(facts: Facts, final: Mapping[Place, Mapping[int, StoredRecord]]) -> Iterator[Anomaly]:
    """Lookups by timestamp that differ from a linear scan of the records that were readable then, as far as these are
    known."""
    scans: dict[Place, _Scan] = {}
    for lookup in facts.history.lookups:
        place = lookup.place
        if place not in final or not facts.is_sync(place) or lookup.timestamp_ms in (EARLIEST, LATEST):
            continue
        topic = facts.history.topics[place.topic_id]
        if topic.is_compacted or (topic.is_tiered and topic.retention_ms is not None):  # records go during the search
            continue
        if place not in scans:
            scans[place] = _Scan(final[place])
        before = [read for read in facts.reads[place] if not read.error]
        end_before = max((read.high_watermark for read in before if read.completed < lookup.invoked), default=0)
        yield from scans[place].judge(lookup, end_before)


class _Scan:
    """The records of a partition in order, to be searched without an index."""

    def __init__(self, records: Mapping[int, StoredRecord]) -> None:
        self._records = [record for _, record in sorted(records.items())]
        self._newest: list[int] = []  # greatest timestamp so far
        newest = -1
        for record in self._records:
            newest = max(newest, record.timestamp_ms)
            self._newest.append(newest)

    def first_at(self, timestamp_ms: int) -> StoredRecord | None:
        """The result of a linear scan over all records."""
        return next((one for one in self._records if one.timestamp_ms >= timestamp_ms), None)

    def judge(self, lookup: Lookup, end_before: int) -> Iterator[Anomaly]:
        """Compare a lookup with the scan. `end_before`: a high watermark that was known before the search; records
        below it were searched."""
        if not self._records:
            return
        start = self._records[0].offset
        wanted_ms = lookup.timestamp_ms
        if wanted_ms == MAX_TIMESTAMP:
            below = bisect_right(self._records, end_before - 1, key=lambda record: record.offset)
            wanted_ms = self._newest[below - 1] if below else -1
            if lookup.offset == -1 and below and end_before > start:
                yield Anomaly("index", f"{lookup.place}: no greatest timestamp, {wanted_ms} is there")
            if lookup.offset == -1:
                return
            if lookup.found_timestamp_ms < wanted_ms:
                found = lookup.found_timestamp_ms
                yield Anomaly("index", f"{lookup.place}: greatest timestamp {found}, {wanted_ms} is there")
            wanted_ms = lookup.found_timestamp_ms
        first = self.first_at(wanted_ms)
        if lookup.offset == -1:
            if first is not None and first.offset < end_before:
                yield Anomaly("index", f"{lookup.place}: nothing at {wanted_ms}, {first} is there")
        elif lookup.offset >= start and (
            first is None or (first.offset, first.timestamp_ms) != (lookup.offset, lookup.found_timestamp_ms)
        ):
            found_at = f"{lookup.offset} at {lookup.found_timestamp_ms}"
            yield Anomaly("index", f"{lookup.place}: {found_at} for {wanted_ms}, a scan finds {first}")
