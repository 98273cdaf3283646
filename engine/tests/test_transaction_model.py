"""A log with interleaved transactions against a list of the sent batches: the records of read_committed readers, the
last stable offset, and the aborted transactions, after truncations, compaction, deletions, kills and restarts.

With `KAFKAWIRE_LOG_MODEL_EXAMPLES` the test is longer, and each run is different.
"""

import dataclasses
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.api import AbortedTransaction, Isolation, Marker, OffsetSpec, Outcome, PendingAppend, RecordFilter
from engine.batches.batch import TRANSACTIONAL_BIT, Record, build_batch
from engine.compaction.cleaning_pass import CleanerOptions
from engine.errors import EngineError, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced
from engine.log_config import CleanupPolicy, FlushPolicy, LogConfig
from engine.offline.transactions import transactions_of
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.tests.stepwise import Stepwise
from testkit.logs import (
    NO_JOURNAL,
    NOW_MS,
    ORDERS,
    Dead,
    MortalPool,
    found,
    open_orders,
    options,
    read_committed,
    running,
)

EXAMPLES = int(os.environ.get("KAFKAWIRE_LOG_MODEL_EXAMPLES", "40"))
COMMITTED = Isolation.READ_COMMITTED
HARMLESS = "as a crash leaves"
BACKOFF_S = 5
DELETE_RETENTION_MS = 40_000
DIRECTORY = "/data/orders-0"


class Step(NamedTuple):
    """A step of a client or a coordinator."""

    kind: str
    producer_id: int
    keys: Sequence[int]


class Entry(NamedTuple):
    """A batch or a marker in the log."""

    kind: str
    producer_id: int
    epoch: int
    keys: Sequence[int]
    base_offset: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + max(1, len(self.keys))


class Transaction(NamedTuple):
    """A transaction with records. `last_offset`: of its marker; `outcome`: None while it is open."""

    producer_id: int
    first_offset: int
    last_offset: int
    outcome: Outcome | None


OUTCOMES = {"commit": Outcome.COMMIT, "abort": Outcome.ABORT, "fence": Outcome.ABORT}
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["plain", "data", "data", "data", "data", "commit", "abort", "abort", "fence"]),
        st.integers(7, 9),
        st.lists(st.integers(0, 5), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=6,
)
anywhere = st.integers(0, 1 << 20)
sizes = st.sampled_from([1, 300, 100_000])


class TransactionalLog(RuleBasedStateMachine):
    """Sent batches count at once; a crash may take those that were not acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Stepwise()
        self.filesystem = SimulatedFileSystem()
        self.life = AsyncExitStack()
        self.problems: list[str] = []
        self.pool = MortalPool()
        self.entries: list[Entry] = []
        self.start = 0
        self.sure = 0  # below it all was promised to stay
        self.stable = 0  # as it was seen last
        self.leader_epoch = -1
        self.store: SegmentStore
        self.log: Partition

    @initialize(
        segment_size_bytes=st.sampled_from([400, 1000, 5000]),
        slot_size_bytes=st.sampled_from([NO_JOURNAL, 64 * 1024]),
        flush_policy=st.sampled_from(FlushPolicy),
        is_compacted=st.booleans(),
        index_keys=st.booleans(),
        open_max=st.sampled_from([1, 100]),
    )
    def begin(
        self,
        segment_size_bytes: int,
        slot_size_bytes: int,
        flush_policy: FlushPolicy,
        is_compacted: bool,
        index_keys: bool,
        open_max: int,
    ) -> None:
        self.config = LogConfig(
            segment_size_bytes=segment_size_bytes,
            flush_policy=flush_policy,
            cleanup_policy=frozenset({CleanupPolicy.COMPACT} if is_compacted else {CleanupPolicy.DELETE}),
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=DELETE_RETENTION_MS,
            file_delete_delay_ms=1000,
            index_keys=index_keys,
            requires_keys=True,
        )
        cleaner = CleanerOptions(io_buffer_size_bytes=300, backoff_ms=BACKOFF_S * 1000)
        base = options(journal_slot_size_bytes=slot_size_bytes)
        self.options = dataclasses.replace(
            base, open_files_max=open_max, loaded_indexes_max=open_max, reader_workers=2, cleaner=cleaner
        )
        self.loop.run(self._open)

    def teardown(self) -> None:
        if hasattr(self, "config"):
            self.loop.run(self.life.aclose)
        self.loop.close()

    def _now_ms(self) -> int:
        return NOW_MS + int(trio.current_time() * 1000)

    async def _open(self) -> None:
        self.pool = MortalPool()
        life = running(self.filesystem, self.options, pool=self.pool, problems=self.problems, clock=self._now_ms)
        self.store = await self.life.enter_async_context(life)
        self.leader_epoch += 1
        log = await open_orders(self.store, self.config, self.leader_epoch)
        assert isinstance(log, Partition)
        self.log = log

    # The model

    @property
    def end(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    def epoch_of(self, producer_id: int) -> int:
        return max((one.epoch for one in self.entries if one.producer_id == producer_id), default=0)

    def sequence_of(self, producer_id: int) -> int:
        """The next sequence in the present epoch of the producer."""
        epoch = self.epoch_of(producer_id)
        mine = [one for one in self.entries if (one.kind, one.producer_id, one.epoch) == ("data", producer_id, epoch)]
        return sum(len(one.keys) for one in mine)

    def transactions(self) -> list[Transaction]:
        """All transactions in the order of their ends, the open ones last."""
        open_from: dict[int, int] = {}
        ended = []
        for one in self.entries:
            if one.kind == "data":
                open_from.setdefault(one.producer_id, one.base_offset)
            elif one.producer_id in open_from:
                first_offset = open_from.pop(one.producer_id)
                ended.append(Transaction(one.producer_id, first_offset, one.base_offset, OUTCOMES[one.kind]))
        return [*ended, *(Transaction(one, first_offset, self.end, None) for one, first_offset in open_from.items())]

    def is_open(self, producer_id: int) -> bool:
        return any((one.producer_id, one.outcome) == (producer_id, None) for one in self.transactions())

    def stable_end(self) -> int:
        return min([self.end, *(one.first_offset for one in self.transactions() if one.outcome is None)])

    def committed(self) -> dict[int, int]:
        """Keys by offset of the records below the LSO that are not aborted."""
        aborted = [one for one in self.transactions() if one.outcome is Outcome.ABORT]
        kept: dict[int, int] = {}
        for one in self.entries:
            is_gone = any(
                (one.kind, one.producer_id) == ("data", each.producer_id)
                and each.first_offset <= one.base_offset < each.last_offset
                for each in aborted
            )
            if not is_gone and one.next_offset <= self.stable_end():
                kept |= {one.base_offset + number: key for number, key in enumerate(one.keys)}
        return {offset: key for offset, key in kept.items() if offset >= self.start}

    # Appends

    def _send(self, steps: Sequence[Step]) -> list[tuple[PendingAppend, Entry | type[EngineError]]]:
        return [self._send_one(one) for one in steps]

    def _send_one(self, step: Step) -> tuple[PendingAppend, Entry | type[EngineError]]:
        producer_id, offset = step.producer_id, self.end
        epoch = self.epoch_of(producer_id)
        if step.kind in OUTCOMES:
            epoch += step.kind == "fence"
            self.entries.append(entry := Entry(step.kind, producer_id, epoch, (), offset))
            return self.log.end_transaction(Marker(producer_id, epoch, 5, OUTCOMES[step.kind])), entry
        records = [
            Record(b"key %d" % key, b"value %d" % (offset + number), self._now_ms())
            for number, key in enumerate(step.keys)
        ]
        if step.kind == "plain":
            producer_id = epoch = -1
            batch = build_batch(records)
        else:
            producer = producer_id, epoch, self.sequence_of(producer_id)
            batch = build_batch(records, attributes=TRANSACTIONAL_BIT, producer=producer)
        self.entries.append(entry := Entry(step.kind, producer_id, epoch, step.keys, offset))
        return self.log.append(memoryview(batch), acks=-1), entry

    @rule(steps=steps)
    def append(self, steps: list[Step]) -> None:
        async def run() -> None:
            for pending, entry in self._send(steps):
                assert isinstance(entry, Entry)
                assert (await pending.wait()).base_offset == entry.base_offset
                if entry.kind in OUTCOMES or self.config.flush_policy is FlushPolicy.SYNC:
                    self.sure = entry.next_offset

        self.loop.run(run)

    @rule(producer_id=st.integers(7, 9))
    def send_what_is_refused(self, producer_id: int) -> None:
        epoch, sequence = self.epoch_of(producer_id), self.sequence_of(producer_id)
        record = [Record(b"key", b"refused", NOW_MS)]
        older = build_batch(record, attributes=TRANSACTIONAL_BIT, producer=(producer_id, epoch - 1, sequence))
        plain = build_batch(record, producer=(producer_id, epoch, sequence))
        is_known = any(one.producer_id == producer_id for one in self.entries)
        has_ended = any(one.producer_id == producer_id and one.kind in OUTCOMES for one in self.entries)

        async def refused(error: type[EngineError], pending: PendingAppend) -> None:
            with pytest.raises(error):
                await pending.wait()

        async def run() -> None:
            if is_known and self.log.log.producers.get(producer_id) is not None:
                if epoch > 0:
                    await refused(InvalidProducerEpoch, self.log.append(memoryview(older), acks=-1))
                    marker = Marker(producer_id, epoch - 1, 5, Outcome.COMMIT)
                    await refused(InvalidProducerEpoch, self.log.end_transaction(marker))
                if has_ended and self.log.log.producers.get(producer_id).coordinator_epoch == 5:  # type: ignore[union-attr]
                    marker = Marker(producer_id, epoch, 4, Outcome.COMMIT)
                    await refused(TransactionCoordinatorFenced, self.log.end_transaction(marker))
                if self.is_open(producer_id):
                    await refused(InvalidTxnState, self.log.append(memoryview(plain), acks=-1))

        self.loop.run(run)

    # Truncation and deletion

    @rule(where=anywhere)
    def delete_records(self, where: int) -> None:
        offset = where % (self.end + 1)
        self.start = max(self.start, offset)
        assert self.loop.run(lambda: self.log.delete_records(offset)) == self.start

    @precondition(lambda self: hasattr(self, "config") and CleanupPolicy.COMPACT not in self.config.cleanup_policy)
    @rule(where=anywhere)
    def truncate(self, where: int) -> None:
        offset = where % (self.end + 1)
        holding = next((one for one in self.entries if one.next_offset > offset), None)
        if offset < self.start or (holding is not None and holding.base_offset < self.start):
            return
        self.entries = [one for one in self.entries if one.next_offset <= offset]
        assert self.loop.run(lambda: self.store.truncate_partition(ORDERS, offset, below_sealed=True)) == self.end
        self.stable, self.sure = 0, self.end

    # Other events

    @rule(seconds=st.sampled_from([0.2, BACKOFF_S + 0.1, DELETE_RETENTION_MS / 1000 + 1]))
    def wait(self, seconds: float) -> None:
        self.loop.run(partial(trio.sleep, seconds))

    @precondition(lambda self: hasattr(self, "config") and CleanupPolicy.COMPACT in self.config.cleanup_policy)
    @rule(rounds=st.integers(2, 8))
    def grow_and_be_compacted(self, rounds: int) -> None:
        """End all open transactions, so that all segments except the last one can be compacted."""
        data = [Step("data", 7, (0, 1)), Step("data", 8, (1, 2))]
        self.append([*data, Step("commit", 7, ()), Step("commit", 8, ())])
        for number in range(rounds):
            self.append([*data, Step("abort" if number % 2 else "commit", 7, ()), Step("abort", 8, ())])
        self.append([Step("commit", 9, ()), *(Step("plain", -1, (5,)) for _ in range(6))])
        self.wait(BACKOFF_S + 0.1)

    @rule()
    def restart(self) -> None:
        async def run() -> None:
            await self.store.close()
            await self.life.aclose()
            self._look_offline()
            await self._open()

        self.loop.run(run)
        self.sure = self.end

    def _look_offline(self) -> None:
        if not self.log.log.compacted_to and not self.start:
            transactions = transactions_of(self.filesystem, DIRECTORY)
            assert [one[:3] for one in transactions.aborted] == [one[:3] for one in self.aborted()]
            assert transactions.is_stable(self.stable_end())

    @rule(steps=st.just([]) | steps, seed=st.none() | st.integers(0, 99), seconds=st.sampled_from([0, 0.3, 6]))
    def lose_power(self, steps: list[Step], seed: int | None, seconds: float) -> None:
        """Cut the power in the middle of a commit batch, and perhaps of a pass of the cleaner."""
        self._start_commit_batch(steps, seconds)
        sure = max(self.sure, self.log.log.durable_offset)
        if self.config.flush_policy is FlushPolicy.ASYNC:
            self.stable = 0
        self.filesystem.crash(None if seed is None else random.Random(seed))
        self._come_back(sure)

    @rule(steps=st.just([]) | steps, seconds=st.sampled_from([0, 0.3, 6]))
    def kill(self, steps: list[Step], seconds: float) -> None:
        self._start_commit_batch(steps, seconds)
        self._come_back(self.sure)

    def _start_commit_batch(self, steps: list[Step], seconds: float) -> None:
        async def run() -> None:
            await trio.sleep(seconds)
            self.pool.is_holding = True
            pending = self._send(steps)
            await trio.testing.wait_all_tasks_blocked()
            for one, entry in pending:
                is_marker = isinstance(entry, Entry) and entry.kind in OUTCOMES
                assert not (one.is_settled and is_marker), "nothing is synced, so that no transaction has ended"

        self.stable = max(self.stable, self.log.last_stable_offset)
        self.loop.run(run)
        assert self.log.last_stable_offset >= self.stable

    def _come_back(self, sure: int) -> None:
        self.loop.run(self._die)
        self.loop.run(self._open)
        end = self.log.log_end_offset
        assert end in {0, *(one.next_offset for one in self.entries)}
        assert end >= sure, "what was promised is lost"
        self.entries = [one for one in self.entries if one.next_offset <= end]
        self.sure = end

    async def _die(self) -> None:
        self.pool.die()
        try:
            await self.life.aclose()
        except BaseExceptionGroup as group:
            _, others = group.split(Dead)
            if others is not None:
                raise others from None

    # Invariants

    def aborted(self) -> list[Transaction]:
        return [one for one in self.transactions() if one.outcome is Outcome.ABORT]

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def offsets(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (self.start, self.end, self.end)
        stable = max(self.stable_end(), self.start)
        assert log.last_stable_offset == stable >= self.stable
        self.stable = stable
        latest = self.loop.run(lambda: log.offset_for_timestamp(OffsetSpec.LATEST, COMMITTED))
        assert latest.offset == stable

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def readers_see_what_is_committed(self) -> None:
        committed = self.committed()
        for size_bytes in (1, 250, 1 << 20):
            seen = self.loop.run(lambda: read_committed(self.log, self.start, size_bytes))  # noqa: B023
            self._compare({offset: one for offset, one in seen.items() if offset >= self.start}, committed)
        for key in (0, 3):
            wanted = RecordFilter(b"key %d" % key)
            offsets = [one.offset for one in self.loop.run(lambda: found(self.log, wanted))]  # noqa: B023
            expected = [offset for offset, one in committed.items() if one == key]
            assert set(offsets) <= set(expected)
            assert [one for one in offsets if one >= self.log.log.compacted_to] == [
                one for one in expected if one >= self.log.log.compacted_to
            ]
            assert offsets[-1:] == expected[-1:], "the newest stays"

    def _compare(self, seen: dict[int, Record], committed: dict[int, int]) -> None:
        for offset, record in seen.items():
            assert offset in committed, f"offset {offset} was taken back, or is not decided"
            assert (record.key, record.value) == (b"key %d" % committed[offset], b"value %d" % offset)
        newest = {key: offset for offset, key in committed.items()}
        for offset, key in committed.items():
            if offset >= self.log.log.compacted_to or newest[key] == offset:
                assert offset in seen, f"offset {offset} is lost"

    @rule(where=anywhere, size_bytes=sizes)
    def read_from_within(self, where: int, size_bytes: int) -> None:
        offset = self.start + where % (self.end - self.start + 1)
        seen = self.loop.run(lambda: read_committed(self.log, offset, size_bytes))
        committed = self.committed()
        assert set(seen) <= set(committed) | set(range(offset)), "the first batch may begin before it"
        assert {one for one in seen if one >= max(offset, self.log.log.compacted_to)} == {
            one for one in committed if one >= max(offset, self.log.log.compacted_to)
        }

    @invariant()
    @precondition(lambda self: hasattr(self, "config"))
    def aborted_transactions_are_known(self) -> None:
        log = self.log
        if log.log.compacted_to or self.start:
            return

        async def run() -> list[AbortedTransaction]:
            listed: list[AbortedTransaction] = []
            for segment in log.log.segments:
                if segment.end_offset <= log.last_stable_offset:
                    listed += [one for one in await log.aborted_in(segment) if one not in listed]
            return listed

        stable = [one for one in log.log.segments if one.end_offset <= log.last_stable_offset]
        end = stable[-1].end_offset if stable else 0
        expected = [one[:3] for one in self.aborted() if one.first_offset < end]
        assert sorted(one[:3] for one in self.loop.run(run)) == sorted(expected)

    @invariant()
    def nothing_is_reported(self) -> None:
        assert [one for one in self.problems if HARMLESS not in one] == []


TestTransactionalLog = TransactionalLog.TestCase
TestTransactionalLog.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    derandomize="KAFKAWIRE_LOG_MODEL_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
