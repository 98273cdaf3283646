"""Internal topics for the coordinators: implements `coordinator.state.log.StateLogs` with the engine's partitions.

Keys and values are written in uncompressed batches with acks=all, and read from any batch that Kafka can have written.
Records of a transaction count when a marker says so. Each error of the engine becomes `StateLogFailed`: a coordinator
then loads its state from the log again. This module does not know the meaning of keys and values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, cast

import trio

from coordinator.errors import StaleProducerEpoch, TransactionCoordinatorFenced
from coordinator.state.log import (
    StateBatch,
    StateLogFailed,
    StateLogMoved,
    StateMarker,
    StateProducer,
    StateRecord,
    StateSlice,
    has_own_epoch,
)
from engine.api import (
    NO_EPOCH,
    Isolation,
    Marker,
    OffsetSpec,
    Origin,
    Outcome,
    PartitionLog,
    PartitionStore,
    PendingAppend,
    ReadResult,
    TopicIdPartition,
)
from engine.batches.batch import (
    HEADER_SIZE_BYTES,
    RECORD_OVERHEAD_MAX_BYTES,
    BatchHeader,
    parse_header,
    walk_records,
)
from engine.batches.codecs import decompress
from engine.batches.markers import parse_marker
from engine.batches.plain_batch import build_plain_batch
from engine.errors import EngineError, NotLeaderOrFollower, NotLoaded, OffsetNotAvailable
from engine.replica_log import ReplicaLog

READ_BYTES: Final = 1 << 20
RECORDS_PER_TURN: Final = 1000  # records that a read decodes between two checkpoints; some 5 ms
RECHECK_INTERVAL_S: Final = 0.5  # interval of looking whether enough replicas are in sync: no event tells it
_ACKS_ALL: Final = -1


class _Failures:
    """Raises errors of the engine as those of a state log. (As a generator it would cost each append a microsecond.)"""

    def __enter__(self) -> None: ...
    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (EngineError, OSError)):
            raise _failed(error) from error


def _failed(error: EngineError | OSError) -> StateLogFailed:
    kind = StateLogMoved if isinstance(error, NotLeaderOrFollower) else StateLogFailed
    return kind(str(error))


_failures: Final = _Failures()


class EngineStateLogs:
    """See `coordinator.state.log.StateLogs`."""

    def __init__(self, store: PartitionStore) -> None:
        self._store = store
        self._open_logs: dict[TopicIdPartition, EngineStateLog] = {}
        self._turns: defaultdict[TopicIdPartition, trio.Lock] = defaultdict(trio.Lock)

    async def get(self, topic_id: bytes, topic: str, partition: int) -> EngineStateLog:
        identity = TopicIdPartition(topic_id, topic, partition)
        async with self._turns[identity]:  # one lock a partition: the last append of another may wait for a hung disk
            if identity in self._open_logs:
                await self._open_logs[identity].end()
            with _failures:
                log = self._store.get(identity)
                state_log = self._open_logs[identity] = EngineStateLog(self._store, log)
        await self._until_latest(log)
        state_log.fix_load_end()
        return state_log

    async def _until_latest(self, log: PartitionLog) -> None:
        """Wait until the high watermark covers all that the previous leader acknowledged (RULES K26). With too few
        replicas in sync the high watermark stands still, and the log has all that was acknowledged."""
        waiter = self._store.new_waiter()
        try:
            waiter.watch(log)
            while not _has_latest(log) and log.has_enough_in_sync:
                await waiter.wait()
                waiter.take_changed()
        finally:
            waiter.close()


def _has_latest(log: PartitionLog) -> bool:
    """Whether the leader knows the latest offset. Raises StateLogFailed."""
    with _failures:
        try:
            log.offset_of(OffsetSpec.LATEST, Isolation.READ_UNCOMMITTED)
        except OffsetNotAvailable:
            return False
    return True


class _Write:
    """A `coordinator.api.Future`."""

    __slots__ = ("_append",)

    def __init__(self, append: PendingAppend) -> None:
        self._append = append

    @property
    def is_settled(self) -> bool:
        return self._append.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._append.call_when_settled(callback)

    def result(self) -> int:
        outcome = self._append.outcome
        if isinstance(outcome, EngineError):
            raise _failed(outcome) from outcome
        return outcome.last_offset + 1


class EngineStateLog:
    """See `coordinator.state.log.StateLog`."""

    batch_overhead_bytes = HEADER_SIZE_BYTES

    def __init__(self, store: PartitionStore, log: PartitionLog) -> None:
        self._store = store
        self.topic_id = log.partition.topic_id
        self.leader_epoch = log.leader_epoch
        self._log = log
        self._last: PendingAppend | None = None
        self._has_ended = False
        self._load_end_offset = 0

    def fix_load_end(self) -> None:
        """Fix the offset up to which a coordinator loads: the log end, if the high watermark does not tell yet which
        records were acknowledged. Raises StateLogFailed."""
        if not (_has_latest(self._log) and self._log.has_enough_in_sync):
            self._load_end_offset = self._log.log_end_offset

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.high_watermark

    @property
    def load_end_offset(self) -> int:
        return max(self._log.high_watermark, self._load_end_offset)

    @property
    def stable_offset(self) -> int:
        return self._log.last_stable_offset

    @property
    def batch_size_max_bytes(self) -> int:
        return self._log.batch_size_max_bytes

    @property
    def takes_writes(self) -> bool:
        return self._log.has_enough_in_sync

    @property
    def is_current(self) -> bool:
        return self._log.is_current and self._log.leader_epoch == self.leader_epoch

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        if self._log.leader_epoch == self.leader_epoch:
            self._log.confirm(on_confirmed)
        else:
            on_confirmed(False)

    def size_of(self, record: StateRecord) -> int:
        return RECORD_OVERHEAD_MAX_BYTES + len(record.key) + len(record.value or b"")

    async def wait_for_room(self) -> None:
        await self._store.wait_for_room()

    def append(self, records: Sequence[StateRecord], now_ms: int, producer: StateProducer | None = None) -> _Write:
        self._check()
        batch = memoryview(build_plain_batch(records, now_ms, producer))
        with _failures:
            self._last = self._log.append(batch, acks=_ACKS_ALL, origin=Origin.COORDINATOR)
        return _Write(self._last)

    def end_transaction(self, marker: StateMarker) -> _Write:
        self._check()
        outcome = Outcome.COMMIT if marker.is_commit else Outcome.ABORT
        with _failures:
            self._last = self._log.end_transaction(
                Marker(marker.producer_id, marker.epoch, marker.coordinator_epoch, outcome, marker.protocol)
            )
        return _Write(self._last)

    def check(self, transaction: StateProducer | StateMarker) -> None:
        with _failures:
            known = self._store.find_producer(self._log.partition, transaction.producer_id)
        if known is None:
            return
        name = f"producer {transaction.producer_id} in {self._log.partition.topic}-{self._log.partition.partition}"
        if transaction.epoch < known.epoch:
            raise StaleProducerEpoch(f"{name} is in epoch {known.epoch}, not {transaction.epoch}")
        if transaction.epoch == known.epoch and known.transaction_from >= 0 and has_own_epoch(transaction):
            raise StaleProducerEpoch(f"{name} has begun another transaction in epoch {known.epoch}")
        if isinstance(transaction, StateMarker) and transaction.coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"{name} is coordinated in epoch {known.coordinator_epoch}, not {transaction.coordinator_epoch}"
            )

    async def end(self) -> None:
        """Refuse all appends from now on. Return when the appends so far are settled, in their order; with too few
        replicas in sync for that, when they are in the log."""
        self._has_ended = True
        while (last := self._last) is not None and not last.is_settled:
            if last.is_released and not self._log.has_enough_in_sync:
                return
            with trio.move_on_after(RECHECK_INTERVAL_S), suppress(EngineError):
                await last.wait()

    async def read(self, offset: int) -> StateSlice:
        found: list[StateBatch | StateMarker] = []
        next_offset, leader_epoch, walked = offset, NO_EPOCH, 0
        with _failures:
            for header, body in _batches(await self._read(offset)):
                next_offset, leader_epoch = header.next_offset, header.leader_epoch
                if header.is_control:
                    found += _markers(header, body)
                    continue
                records: list[StateRecord] = []
                for record in walk_records(header, decompress(header.codec_id, body)):
                    if record.key is not None and header.base_offset + record.offset_delta >= offset:
                        records.append(StateRecord(record.key, record.value))
                    walked += 1
                    if walked % RECORDS_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()
                found.append(StateBatch(records, _producer(header)))
        await trio.lowlevel.checkpoint()
        return StateSlice(found, next_offset, leader_epoch)

    async def _read(self, offset: int) -> bytes:
        """Batches as they are stored; the last one may be incomplete."""
        is_loaded = False
        while True:
            self._check()
            try:
                found = self._find(offset, is_loaded=is_loaded)
                return b"".join(part.file.read_at(part.position, part.size_bytes) for part in found.records)
            except NotLoaded:
                if self._is_beyond(offset):
                    await cast("ReplicaLog", self._log).followers.load(offset, READ_BYTES)
                else:
                    await self._log.load(offset, READ_BYTES)
                is_loaded = True

    def _find(self, offset: int, *, is_loaded: bool) -> ReadResult:
        if self._is_beyond(offset):  # read as a replica does: other readers get nothing above the high watermark
            followers = cast("ReplicaLog", self._log).followers
            return followers.read(offset, READ_BYTES, at_least_one=True, is_loaded=is_loaded)
        isolation = Isolation.READ_UNCOMMITTED
        return self._log.read(offset, READ_BYTES, isolation, at_least_one=True, is_loaded=is_loaded)

    def _is_beyond(self, offset: int) -> bool:
        return self._log.high_watermark <= offset < self._load_end_offset

    def holds(self, leader_epoch: int, end_offset: int) -> bool:
        self._check()
        if not self.start_offset <= end_offset <= self.load_end_offset:
            return False
        if leader_epoch == NO_EPOCH:
            return end_offset == self.start_offset
        with _failures:
            end = self._log.end_offset_for_epoch(leader_epoch)
        return end.leader_epoch == leader_epoch and end_offset <= end.end_offset

    def _check(self) -> None:
        if self._has_ended or self._log.leader_epoch != self.leader_epoch:
            raise StateLogMoved(f"{self._log.partition.topic}-{self._log.partition.partition} has a newer leader")


def _producer(header: BatchHeader) -> StateProducer | None:
    """The producer of the transaction that the batch belongs to, or None."""
    return StateProducer(header.producer_id, header.producer_epoch) if header.is_transactional else None


def _markers(header: BatchHeader, body: bytes) -> Iterator[StateMarker]:
    marker = parse_marker(header, bytes(HEADER_SIZE_BYTES) + body)
    if marker is not None:
        is_commit = marker.outcome is Outcome.COMMIT
        yield StateMarker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, is_commit)


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The complete batches, each with its records section."""
    position = 0
    while position + HEADER_SIZE_BYTES <= len(data):
        header = parse_header(data, position)
        end = position + header.size_bytes
        if end > len(data):
            return
        yield header, data[position + HEADER_SIZE_BYTES : end]
        position = end
