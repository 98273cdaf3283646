"""The transactional ids of one partition of `__transaction_state`: commands in; answers, records and markers out. Pure.

A table of a shard, as `coordinator.groups.table` is; `transitions` has the transitions. Where Kafka answers
CONCURRENT_TRANSACTIONS because the transaction before is decided and its markers are on their way, a command is parked
and tried again when they are written, 100 ms later at the latest: clients would wait longer by themselves. A command
that needs a producer id is parked as well if there is none in reserve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic

from coordinator.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    TransactionError,
    TransactionTooLarge,
    UnknownTransactionalId,
)
from coordinator.shards.table import NEVER_MS, Effects, FutureT
from coordinator.state.log import StateMarker, StateProducer, StateRecord
from coordinator.state.record_fields import UnknownRecord
from coordinator.transactions import transitions
from coordinator.transactions.api import (
    NO_TIME_MS,
    SECOND_PROTOCOL,
    TransactionCounters,
    TransactionDescription,
    TransactionFigures,
    TransactionListing,
    TransactionState,
)
from coordinator.transactions.entry import PARKED_MAX, PARKED_MS, Attempt, DueMarkers, TransactionEntry
from coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from coordinator.transactions.transitions import Transaction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coordinator.shards.table import Moment
    from coordinator.transactions.api import Partition, ProducerIdentity
    from coordinator.transactions.entry import TransactionDeps, TransactionSettings, TransitionStep

_TRY_AGAIN: Final = object()  # the answer of a step that has begun an abort: the step is tried again


@dataclass(slots=True)
class _Results(Generic[FutureT]):
    """The results of a command so far."""

    answers: list[tuple[FutureT, object]] = field(default_factory=list)
    records: list[StateRecord] = field(default_factory=list)
    outbox: list[DueMarkers] = field(default_factory=list)

    def effects(self, entry: TransactionEntry[FutureT]) -> Effects[FutureT]:
        return Effects(entry, self.answers, self.records, outbox=self.outbox)


class TransactionTable(Generic[FutureT]):
    """A `coordinator.shards.table.StateTable`."""

    def __init__(
        self, settings: TransactionSettings, deps: TransactionDeps, counters: TransactionCounters | None = None
    ) -> None:
        self._settings = settings
        self._deps = deps
        self._entries: dict[str, TransactionEntry[FutureT]] = {}
        self._open: dict[str, None] = {}  # transactional ids with an open transaction, which may take too long
        self._parked: list[tuple[int, str]] = []  # deadlines of parked commands, with their transactional ids
        self._next_check_ms = NEVER_MS
        self._without_id: dict[str, None] = {}  # transactional ids with parked commands that need a producer id
        self.counters = counters or TransactionCounters()

    # Commands of producers

    def initialise(
        self,
        moment: Moment,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        future: FutureT,
    ) -> Effects[FutureT]:
        """See `TransactionService.initialise`."""
        if not 0 < timeout_ms <= self._settings.timeout_max_ms:
            return Effects(None, [(future, InvalidTransactionTimeout(f"{timeout_ms} ms"))], [])
        entry = self._entries.get(transactional_id) or TransactionEntry(transactional_id)

        def step(moment: Moment) -> tuple[Transaction | None, object]:
            new_id, protocol = self._deps.new_id, self._deps.protocol()
            following = transitions.initialised(entry.known, expected, timeout_ms, moment.wall_ms, new_id, protocol)
            return following, _TRY_AGAIN if following.is_prepared else following.identity

        return self._try(moment, entry, future, step)

    def add_partitions(
        self,
        moment: Moment,
        transactional_id: str,
        asking: ProducerIdentity,
        partitions: Collection[Partition],
        protocol: int,
        future: FutureT,
    ) -> Effects[FutureT]:
        """See `TransactionService.add_partitions`."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return _unknown(future, asking)

        def step(moment: Moment) -> tuple[Transaction | None, object]:
            return transitions.with_partitions(entry.known, asking, partitions, moment.wall_ms, protocol), None

        return self._try(moment, entry, future, step)

    def end(
        self,
        moment: Moment,
        transactional_id: str,
        asking: ProducerIdentity,
        future: FutureT,
        *,
        is_commit: bool,
        protocol: int,
    ) -> Effects[FutureT]:
        """See `TransactionService.end`."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return _unknown(future, asking)

        def step(moment: Moment) -> tuple[Transaction | None, object]:
            now_ms, new_id = moment.wall_ms, self._deps.new_id
            if protocol >= SECOND_PROTOCOL:
                ended = transitions.ended_in_own_epoch(
                    entry.known, asking, commits=is_commit, now_ms=now_ms, new_id=new_id
                )
            else:
                ended = transitions.ended(entry.known, asking, commits=is_commit, now_ms=now_ms)
            return ended, ended.identity_after_markers

        return self._try(moment, entry, future, step)

    def verify_partitions(
        self, transactional_id: str, asking: ProducerIdentity, partitions: Sequence[Partition], future: FutureT
    ) -> Effects[FutureT]:
        """See `TransactionService.verify_partitions`."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return _unknown(future, asking)
        answer: object
        try:
            known = transitions.between_markers(entry.known, asking)
            answer = [one in known.partitions for one in partitions]
        except TransactionError as error:
            answer = error.with_traceback(None)
        return Effects(entry, [(future, answer)], [])

    def _try(
        self, moment: Moment, entry: TransactionEntry[FutureT], future: FutureT, step: TransitionStep
    ) -> Effects[FutureT]:
        results: _Results[FutureT] = _Results()
        self._attempt(moment, entry, Attempt(future, step, moment.now_ms + PARKED_MS), results)
        return results.effects(entry)

    def _attempt(
        self, moment: Moment, entry: TransactionEntry[FutureT], attempt: Attempt[FutureT], results: _Results[FutureT]
    ) -> None:
        """Try a command: it is answered, or parked until the markers of the transaction before are written, or an id is
        there."""
        answer: object = _TRY_AGAIN
        try:
            while answer is _TRY_AGAIN:
                following, answer = attempt.step(moment)
                self._apply_transition(moment, entry, following, results)
        except ConcurrentTransactions as error:
            attempt.refusal = answer = error.with_traceback(None)
            if self._park(moment, entry, attempt):
                return
        except transitions.NeedsProducerId:
            attempt.refusal = answer = CoordinatorLoading("producer ids are being fetched")
            if self._park(moment, entry, attempt):
                self._without_id[entry.transactional_id] = None
                return
        except TransactionError as error:
            answer = error.with_traceback(None)
        results.answers.append((attempt.future, answer))

    def _park(self, moment: Moment, entry: TransactionEntry[FutureT], attempt: Attempt[FutureT]) -> bool:
        if attempt.due_ms <= moment.now_ms or len(entry.parked) >= PARKED_MAX:
            return False
        entry.parked.append(attempt)
        self._entries.setdefault(entry.transactional_id, entry)
        heappush(self._parked, (attempt.due_ms, entry.transactional_id))
        return True

    def without_id(self) -> list[str]:
        """Take the transactional ids whose parked commands need a producer id."""
        waiting, self._without_id = list(self._without_id), {}
        return waiting

    def retry_parked(self, moment: Moment, transactional_id: str) -> Effects[FutureT]:
        """Try the parked commands of a transactional id again."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return Effects(None, [], [])
        results: _Results[FutureT] = _Results()
        self._unpark(moment, entry, results)
        self._forget_unless_known(entry)
        return results.effects(entry)

    def _unpark(self, moment: Moment, entry: TransactionEntry[FutureT], results: _Results[FutureT]) -> None:
        parked, entry.parked = entry.parked, []
        for attempt in parked:
            self._attempt(moment, entry, attempt, results)

    def _apply_transition(
        self,
        moment: Moment,
        entry: TransactionEntry[FutureT],
        following: Transaction | None,
        results: _Results[FutureT],
    ) -> None:
        before = entry.known
        if following is None or following is before:
            return
        name, is_open = entry.transactional_id, following.state is TransactionState.ONGOING
        record = StateRecord(encode_key(name), encode_value(following.record()))
        if is_open and len(record.key) + len(record.value or b"") > self._settings.record_max_bytes:
            raise TransactionTooLarge(f"{name}: {len(following.partitions)} partitions")
        results.records.append(record)
        entry.known = following
        self._entries[name] = entry
        if is_open and name not in self._open:
            self.counters.started += 1
            self._watch(entry, moment.now_ms + following.timeout_ms, moment.now_ms)
        elif not is_open:
            self._open.pop(name, None)
        if following.is_prepared:
            results.outbox.append(_due_markers(name, following))

    def _watch(self, entry: TransactionEntry[FutureT], due_ms: int, now_ms: int) -> None:
        entry.due_ms = due_ms
        self._open[entry.transactional_id] = None
        if self._next_check_ms == NEVER_MS:
            self._next_check_ms = now_ms + self._settings.timeout_check_interval_ms

    # Markers

    def complete(
        self, moment: Moment, transactional_id: str, identity: ProducerIdentity, future: FutureT
    ) -> Effects[FutureT]:
        """End the transaction whose markers are all written; parked commands go on."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.known is None or entry.known.identity != identity or not entry.known.is_prepared:
            return Effects(entry, [(future, None)], [])
        if entry.known.state is TransactionState.PREPARE_COMMIT:
            self.counters.committed += 1
        elif entry.known.partitions:  # else nothing had begun (KIP-890)
            self.counters.aborted += 1
        results: _Results[FutureT] = _Results([(future, None)])
        self._apply_transition(moment, entry, transitions.completed(entry.known, moment.wall_ms), results)
        self._unpark(moment, entry, results)
        return results.effects(entry)

    # Reads

    def describe(self, transactional_id: str, future: FutureT) -> Effects[FutureT]:
        """See `TransactionService.describe`."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.known is None:
            return Effects(entry, [(future, UnknownTransactionalId(transactional_id))], [])
        known = entry.known
        answer = TransactionDescription(
            transactional_id, known.identity, known.state, known.timeout_ms, known.started_ms, known.partitions
        )
        return Effects(entry, [(future, answer)], [])

    def listings(self) -> list[TransactionListing]:
        """All transactional ids with their states."""
        return [
            TransactionListing(name, entry.known.producer_id, entry.known.state, entry.known.started_ms)
            for name, entry in self._entries.items()
            if entry.known is not None
        ]

    def figures(self) -> Iterator[TransactionFigures]:
        """See `TransactionStatistics`."""
        for name in self.transactional_ids():
            entry = self._entries.get(name)
            if entry is not None and entry.known is not None:
                known = entry.known
                is_over = known.state is not TransactionState.ONGOING and not known.is_prepared
                yield TransactionFigures(name, known.state, NO_TIME_MS if is_over else known.started_ms)

    def transactional_ids(self) -> list[str]:
        """All transactional ids, for `Shard.ask_each`."""
        return list(self._entries)

    # Time

    def next_due_ms(self) -> int:
        """See `StateTable`."""
        return min(self._parked[0][0] if self._parked else NEVER_MS, self._next_check_ms)

    def expire(self, moment: Moment) -> Iterator[Effects[FutureT]]:
        """See `StateTable`."""
        while self._parked and self._parked[0][0] <= moment.now_ms:
            _, name = heappop(self._parked)
            entry = self._entries.get(name)
            if entry is not None:
                over = [one for one in entry.parked if one.due_ms <= moment.now_ms]
                entry.parked = [one for one in entry.parked if one.due_ms > moment.now_ms]
                yield Effects(entry, [(one.future, one.refusal) for one in over], [])
                self._forget_unless_known(entry)
        if self._next_check_ms <= moment.now_ms:
            for name in list(self._open):
                entry = self._entries[name]
                if entry.due_ms <= moment.now_ms:
                    yield self._abort(moment, entry)
            self._next_check_ms = NEVER_MS
            if self._open:
                self._next_check_ms = moment.now_ms + self._settings.timeout_check_interval_ms

    def _abort(self, moment: Moment, entry: TransactionEntry[FutureT]) -> Effects[FutureT]:
        """Abort a transaction that has taken too long, and fence its producer; later, if that takes a producer id and
        there is none."""
        assert entry.known is not None
        results: _Results[FutureT] = _Results()
        try:
            following = transitions.fenced(entry.known, moment.wall_ms, self._deps.new_id, self._deps.protocol())
        except transitions.NeedsProducerId:
            return results.effects(entry)
        self.counters.timed_out += 1
        self._apply_transition(moment, entry, following, results)
        return results.effects(entry)

    def _forget_unless_known(self, entry: TransactionEntry[FutureT]) -> None:
        """Forget a new transactional id for which no command has succeeded."""
        if entry.known is None and not entry.parked:
            self._entries.pop(entry.transactional_id, None)

    def waiting(self) -> Iterator[FutureT]:
        """See `StateTable`."""
        for entry in self._entries.values():
            yield from (one.future for one in entry.parked)

    def sweep(self, moment: Moment, transactional_id: str) -> Effects[FutureT]:
        """Forget an id that was not used for long."""
        entry = self._entries.get(transactional_id)
        if entry is None or entry.known is None or entry.parked:
            return Effects(None, [], [])
        if not transitions.has_expired(entry.known, moment.wall_ms, self._settings.expiration_ms):
            return Effects(None, [], [])
        del self._entries[transactional_id]
        self.counters.expired_ids += 1
        return Effects(entry, [], [StateRecord(encode_key(transactional_id), None)])

    # Replay

    def apply(self, record: StateRecord) -> None:
        """See `StateTable`."""
        name = decode_key(memoryview(record.key))
        if record.value is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = TransactionEntry(
                name, Transaction.from_record(decode_value(memoryview(record.value)))
            )

    def apply_in_transaction(self, producer: StateProducer, record: StateRecord) -> None:
        """See `StateTable`. There is no such record."""
        raise UnknownRecord(f"written in a transaction of producer {producer.producer_id}")

    def apply_marker(self, marker: StateMarker) -> Sequence[StateRecord]:
        """See `StateTable`. It ends nothing."""
        return ()

    def forget_remnants(self) -> None:
        """See `StateTable`: there are none."""

    def wake(self, moment: Moment) -> Iterator[Effects[FutureT]]:
        """See `StateTable`. Timeouts ran on meanwhile, by the wall clock; markers of decided transactions are sent out
        again."""
        for name, entry in list(self._entries.items()):
            known = entry.known
            if known is None:
                continue
            if known.state is TransactionState.ONGOING:
                remaining_ms = known.started_ms + known.timeout_ms - moment.wall_ms
                self._watch(entry, moment.now_ms + max(0, remaining_ms), moment.now_ms)
            elif known.is_prepared:
                yield Effects(entry, [], [], outbox=[_due_markers(name, known)])


def _due_markers(transactional_id: str, known: Transaction) -> DueMarkers:
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    return DueMarkers(transactional_id, known.identity, is_commit, known.partitions, known.protocol)


def _unknown(future: FutureT, asking: ProducerIdentity) -> Effects[FutureT]:
    refusal = InvalidProducerIdMapping(f"producer id {asking.producer_id} is of no transactional id")
    return Effects(None, [(future, refusal)], [])
