"""The sending of markers, which end decided transactions in their partitions, until all are written.

A decided transaction is sent here once the decision is durable, and again whenever its shard was loaded anew. Each of
its partitions gets a marker; a failed write is tried again. When all are written, the table is told. Of one
transactional id the last sending alone counts: a marker that is tried again after its transaction is over would end the
next one of the same producer (RULES C5).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailable,
    StaleProducerEpoch,
    TransactionCoordinatorFenced,
    UnknownTopic,
)
from coordinator.state.log import StateMarker

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import Future
    from coordinator.shards.shard import ReplyFuture, Shard
    from coordinator.transactions.api import MarkerWriter, Partition, TransactionCounters
    from coordinator.transactions.entry import DueMarkers
    from coordinator.transactions.table import TransactionTable

    TransactionShard = Shard[TransactionTable[ReplyFuture]]

log = structlog.get_logger(__name__)

RETRY_PAUSE_S: Final = 0.1  # the first time; twice as long each time after it
RETRY_PAUSE_MAX_S: Final = 2.0
REFUSED_PAUSE_S: Final = 10.0


class MarkerSender:
    """The sender of markers of one broker. `run` tries failed writes again; all else happens in calls and settled
    writes.

    `leads`: whether the broker has the shard still.
    """

    def __init__(
        self, writer: MarkerWriter, leads: Callable[[TransactionShard], bool], counters: TransactionCounters
    ) -> None:
        self._writer = writer
        self._leads = leads
        self._counters = counters
        self._sendings: dict[tuple[int, str], _Sending] = {}
        self._to_retry: dict[_Sending, None] = {}
        self._has_retries = trio.Event()

    def send(self, shard: TransactionShard, due: DueMarkers) -> None:
        """Send the markers of a decided transaction. An earlier sending of this transactional id is given up: `due`
        includes it."""
        sending = _Sending(shard, due)
        self._sendings[sending.key] = sending
        self._write(sending, trio.current_time())

    async def run(self) -> None:
        """Try failed writes again, for as long as the broker lives."""
        while True:
            await self._has_retries.wait()
            await trio.sleep(RETRY_PAUSE_S)
            to_retry, self._to_retry, self._has_retries = self._to_retry, {}, trio.Event()
            now_s = trio.current_time()
            for sending in to_retry:
                if not self._leads(sending.shard):
                    self._forget(sending)
                elif self._is_current(sending):
                    self._write(sending, now_s)

    def _retry(self, sending: _Sending) -> None:
        self._to_retry[sending] = None
        self._has_retries.set()

    def _is_current(self, sending: _Sending) -> bool:
        return self._sendings.get(sending.key) is sending

    def _forget(self, sending: _Sending) -> None:
        if self._is_current(sending):
            del self._sendings[sending.key]

    def _write(self, sending: _Sending, now_s: float) -> None:
        for one in sorted(sending.remaining - sending.in_flight):
            if one in sending.failures and now_s + RETRY_PAUSE_S / 2 < sending.failures[one].not_before_s:
                self._retry(sending)
                continue
            sending.in_flight.add(one)
            written = self._writer.write(sending.marker, one)
            if written.is_settled:
                self._settled(sending, one, written)
            else:
                written.call_when_settled(partial(self._settled, sending, one, written))
        self._finish(sending)

    def _settled(self, sending: _Sending, partition: Partition, written: Future[None]) -> None:
        sending.in_flight.discard(partition)
        try:
            written.result()
        except UnknownTopic:
            sending.remaining.discard(partition)
        except (StaleProducerEpoch, TransactionCoordinatorFenced) as error:
            # Kafka gives up here, and the transactional id hangs until the coordinator is loaded again. The partition
            # forgets the newer epoch in time (producer.id.expiration.ms), or with its topic.
            failures = sending.failures_of(partition)
            if not failures.is_refused:
                failures.is_refused = True
                self._counters.stuck_markers += 1
                log.error(
                    "transaction marker refused", transactional_id=sending.due.transactional_id, reason=str(error)
                )
            failures.put_off(REFUSED_PAUSE_S)
            self._retry(sending)
        except CoordinatorError as error:
            if partition not in sending.failures:
                log.info("transaction marker delayed", transactional_id=sending.due.transactional_id, reason=str(error))
            failures = sending.failures_of(partition)
            failures.put_off(failures.pause_s)
            failures.pause_s = min(2 * failures.pause_s, RETRY_PAUSE_MAX_S)
            self._retry(sending)
        else:
            sending.remaining.discard(partition)
        self._finish(sending)

    def _finish(self, sending: _Sending) -> None:
        if not sending.remaining and self._is_current(sending):
            del self._sendings[sending.key]
            name, identity = sending.due.transactional_id, sending.due.identity
            completed = sending.shard.ask(lambda table, moment, future: table.complete(moment, name, identity, future))
            if isinstance(completed.outcome, CoordinatorNotAvailable):  # it is written when enough replicas are in sync
                self._sendings[sending.key] = sending
                self._retry(sending)


class _Sending:
    """A decided transaction on its way to its partitions."""

    __slots__ = ("due", "failures", "in_flight", "key", "marker", "remaining", "shard")

    def __init__(self, shard: TransactionShard, due: DueMarkers) -> None:
        self.shard = shard
        self.due = due
        self.key = shard.partition, due.transactional_id
        self.marker = StateMarker(*due.identity, shard.leader_epoch, due.is_commit, due.protocol)
        self.remaining: set[Partition] = set(due.partitions)
        self.in_flight: set[Partition] = set()
        self.failures: dict[Partition, _Failures] = {}

    def failures_of(self, partition: Partition) -> _Failures:
        """The failures of a partition, made at the first one."""
        return self.failures.setdefault(partition, _Failures())


class _Failures:
    """Failures of one partition: whether it refused the marker, and when it is tried again."""

    __slots__ = ("is_refused", "not_before_s", "pause_s")

    def __init__(self) -> None:
        self.is_refused = False
        self.not_before_s = 0.0
        self.pause_s = RETRY_PAUSE_S

    def put_off(self, pause_s: float) -> None:
        self.not_before_s = trio.current_time() + pause_s
