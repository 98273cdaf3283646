"""Anomalies in the history of transactions. Pure: a history in, anomalies out.

No crash and no power cut loses anything: committed records are synced, in any topic. Anomalies have Adya's names where
there are any: an aborted read is G1a; a read with some of a transaction's records in a partition, but not all that were
written by then, is G1b; transactions of one producer out of their order are G0. A log shows versions and their order,
so a search for cycles, as in Elle, is not needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.transaction_history import (
    NO_EPOCH,
    NO_OFFSET,
    Fate,
    ReadRecord,
    StableOffset,
    Transaction,
    TransactionHistory,
    Value,
    WrittenRecord,
)


def check_transactions(history: TransactionHistory) -> list[Anomaly]:
    """All anomalies."""
    return [
        *_reads(history),
        *_fractured(history),
        *_stable_ends(history),
        *_final(history),
        *_orders(history),
        *_offsets(history),
    ]


def _by_number(history: TransactionHistory) -> dict[int, Transaction]:
    return {one.number: one for one in history.transactions}


def _reads(history: TransactionHistory) -> Iterator[Anomaly]:
    """Reads of aborted or invented records, of two records at one offset, and of records out of order or twice."""
    known = _by_number(history)
    at: dict[tuple[Target, int], tuple[int, int]] = {}
    for read in history.reads:
        before = -1
        for seen in read.records:
            one = known.get(seen.value[0])
            if one is None or not any(each.value == seen.value and each.target == read.target for each in one.written):
                yield Anomaly("invented", f"{read.target} at {seen.offset}: {seen.value}")
            elif one.fate is Fate.ABORTED:
                yield Anomaly("aborted read", f"{read.target} at {seen.offset}: {seen.value}")
            if at.setdefault((read.target, seen.offset), seen.value) != seen.value:
                yield Anomaly("changed", f"{read.target} at {seen.offset}: {seen.value}")
            if seen.offset <= before or seen.offset >= read.stable_end:
                yield Anomaly("unstable read", f"{read.target} at {seen.offset}, stable to {read.stable_end}")
            before = seen.offset


def _fractured(history: TransactionHistory) -> Iterator[Anomaly]:
    """Reads that differ from the final committed records in the same range of offsets: the records below the last
    stable offset are decided, and stay so."""
    for target, records in history.final.items():
        if target in history.compacted:
            continue
        offsets = [seen.offset for seen in records]
        for read in history.reads:
            if read.target != target:
                continue
            there = records[bisect_left(offsets, read.offset) : bisect_left(offsets, read.next_offset)]
            missing = {seen.value for seen in there} - {seen.value for seen in read.records}
            surplus = {seen.value for seen in read.records} - {seen.value for seen in there}
            if missing or surplus:
                kind = "fractured read" if missing else "taken back"
                where = f"{target} from {read.offset} to {read.next_offset}"
                yield Anomaly(kind, f"{where}: {sorted(missing or surplus)}")


def _orders(history: TransactionHistory) -> Iterator[Anomaly]:
    """Records of one transactional id that are not in the order in which they were written."""
    ids = {one.number: one.transactional_id for one in history.transactions}
    for target, records in history.final.items():
        newest: dict[str, Value] = {}
        for seen in sorted(records, key=lambda one: one.offset):
            name = ids.get(seen.value[0], "")
            if seen.value < newest.get(name, seen.value):
                yield Anomaly("reordered", f"{target} at {seen.offset}: {seen.value} behind {newest[name]}")
            newest[name] = max(seen.value, newest.get(name, seen.value))


def _stable_ends(history: TransactionHistory) -> Iterator[Anomaly]:
    """Replies with a lower last stable offset than an earlier reply of the same leader epoch. A new leader may know
    less."""
    events: list[tuple[int, int, int]] = []
    for number, read in enumerate(history.reads):
        if read.epoch == NO_EPOCH:
            continue
        events += [(read.invoked, 1, number), (read.completed, 0, number)]
    stable_ends: Counter[tuple[Target, int]] = Counter()
    floors: dict[int, int] = {}
    for _, is_invocation, number in sorted(events):
        read = history.reads[number]
        if is_invocation:
            floors[number] = stable_ends[read.target, read.epoch]
            continue
        if read.stable_end < floors[number]:
            yield Anomaly("stable end went back", f"{read.target}: {read.stable_end} after {floors[number]}")
        stable_ends[read.target, read.epoch] = max(stable_ends[read.target, read.epoch], read.stable_end)


def _final(history: TransactionHistory) -> Iterator[Anomaly]:
    """Transactions that are there in part, or twice."""
    found: dict[Target, dict[tuple[int, int], int]] = {}
    for target, records in history.final.items():
        counts = Counter(seen.value for seen in records)
        found[target] = dict(counts)
        for value, count in counts.items():
            if count > 1:
                yield Anomaly("doubled", f"{target}: {value}, {count} times")
        if target in history.compacted:
            yield from _newest_of_keys(history, target, records)
    for one in history.transactions:
        lasting = [
            each for each in one.written if each.target in history.final and each.target not in history.compacted
        ]
        acked = [each for each in lasting if each.is_acked]
        missing = [each.value for each in acked if each.value not in found[each.target]]
        is_seen = any(each.value in found[each.target] for each in lasting)
        if missing and (one.fate is Fate.COMMITTED or is_seen):
            kind = "lost" if len(missing) == len(acked) else "torn"
            yield Anomaly(f"{kind} transaction", f"{one.number} of {one.transactional_id}: {missing}")


def _newest_of_keys(history: TransactionHistory, target: Target, records: list[ReadRecord]) -> Iterator[Anomaly]:
    """Committed records that the cleaner removed without a later committed record of their key.

    The order of two records is known if one producer wrote both, by their numbers, or by the offsets in reads.
    """
    seen_at = {seen.value: seen.offset for read in history.reads if read.target == target for seen in read.records}
    newest = {seen.key: seen.offset for seen in sorted(records, key=lambda one: one.offset)}
    for one in history.transactions:
        if one.fate is not Fate.COMMITTED:
            continue
        for written in one.written:
            if written.target == target and not _is_covered(written, seen_at, newest):
                yield Anomaly("lost key", f"{target}: {written.value} of key {written.key}")


def _is_covered(written: WrittenRecord, seen_at: dict[tuple[int, int], int], newest: dict[int, int]) -> bool:
    offset = seen_at.get(written.value)
    if offset is None:  # it was gone before the first read: a later record must be there
        return written.key in newest
    return newest.get(written.key, -1) >= offset


def _offsets(history: TransactionHistory) -> Iterator[Anomaly]:
    """Offsets in replies that belong to no committed transaction or plain commit, or are older than a known one."""
    fates = _by_number(history)
    effective: dict[str, list[tuple[int, int]]] = defaultdict(list)  # when it was known, and its number
    for one in history.transactions:
        if one.has_offset and one.fate is Fate.COMMITTED:
            effective[one.group].append((one.completed, one.number))
    for commit in history.plain_commits:
        effective[commit.group].append((commit.completed, commit.number))
    plain = {commit.number for commit in history.plain_commits}
    for reply in history.offsets:
        least = max((number for known, number in effective[reply.group] if known < reply.invoked), default=NO_OFFSET)
        yield from _judge(reply, least, fates, plain)


def _judge(reply: StableOffset, least: int, fates: dict[int, Transaction], plain: set[int]) -> Iterator[Anomaly]:
    if reply.number < least:
        yield Anomaly("offset lost", f"{reply.group} is told {reply.number}, {least} was committed")
    if reply.number == NO_OFFSET or reply.number in plain:
        return
    one = fates.get(reply.number)
    if one is None or one.group != reply.group or not one.has_offset:
        yield Anomaly("invented offset", f"{reply.group} is told {reply.number}")
    elif one.fate is Fate.ABORTED:
        yield Anomaly("offset of an aborted transaction", f"{reply.group} is told {reply.number}")
