"""Tools for tests of the control plane, and of a whole broker in memory: fakes, and a runner without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from coordinator.errors import InvalidConfig, StaleProducerEpoch
from coordinator.ports import FoundLog, LogCondition
from coordinator.state.log import (
    StateBatch,
    StateLogFailed,
    StateMarker,
    StateProducer,
    StateRecord,
    StateSlice,
    has_own_epoch,
)
from coordinator.testing.simulated_metadata_store import FakeEnsemble, FakeStore, Faults, Loss
from coordinator.testing.simulated_state_cache import SimulatedStateCaches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coordinator.api import ClusterImage, TopicInfo
    from coordinator.ports import HostChanges, HostedPartition

__all__ = [
    "FakeEnsemble",
    "FakeHost",
    "FakeStateLog",
    "FakeStore",
    "FakeValidator",
    "FakeWrite",
    "Faults",
    "Loss",
    "SimulatedStateCaches",
    "run_inline",
]


async def run_inline(function: Callable[[], None]) -> None:
    """Runs a blocking function where it stands, so that a test's schedule is the same every time."""
    await trio.lowlevel.checkpoint()
    function()


class FakeHost:
    """A `PartitionHost` that only keeps records: the epochs by (topic, partition), and a log of its calls."""

    def __init__(self) -> None:
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: set[bytes] = set()
        self.strays: set[bytes] = set()
        self.calls: list[str] = []
        self.broker_configs: Mapping[str, Mapping[str, str]] = {}
        self.log_dirs: Sequence[str] = (f"log dir {id(self)}",)
        self.found: dict[tuple[str, int], tuple[LogCondition, tuple[int, int]]] = {}
        self.losses: list[FoundLog] = []
        self.has_unserved_changes = self.has_unserved = False

    async def start(self, image: ClusterImage, deleted: Collection[bytes]) -> Sequence[str]:
        """Drops the deleted topics; keeps others that the image does not know, as strays."""
        await trio.lowlevel.checkpoint()
        self.calls.append("start")
        self.topic_ids -= set(deleted)
        self.strays = self.topic_ids - image.topics_by_id.keys()
        self.topic_ids -= self.strays
        return self.log_dirs

    async def recover(self, hosted: Sequence[HostedPartition], image: ClusterImage) -> Sequence[FoundLog]:
        """The logs in `found`, for partitions of the image."""
        await trio.lowlevel.checkpoint()
        known = [(one, self.found.get((one.topic, one.partition))) for one in hosted]
        return [FoundLog(one, *found) for one, found in known if found is not None]

    def take_unserved(self) -> Sequence[FoundLog]:
        """See `PartitionHost`."""
        self.has_unserved_changes = False
        return self.losses

    async def open_again(self, image: ClusterImage) -> None:
        """Opens nothing."""
        await trio.lowlevel.checkpoint()
        self.calls.append("open again")

    async def configure(self, broker_configs: Mapping[str, Mapping[str, str]]) -> None:
        """Keeps them."""
        await trio.lowlevel.checkpoint()
        self.calls.append("configure")
        self.broker_configs = broker_configs

    async def apply(self, changes: HostChanges) -> None:
        """Opens and drops; an epoch must never go back."""
        await trio.lowlevel.checkpoint()
        self.calls.append(f"apply {len(changes.led)} led, {len(changes.dropped)} dropped")
        for partition in (*changes.dropped, *changes.vanished):
            self.epochs.pop((partition.topic, partition.partition), None)
            self.topic_ids.discard(partition.topic_id)
        self.strays |= {one.topic_id for one in changes.vanished}
        for partition in changes.followed:
            self.epochs.pop((partition.topic, partition.partition), None)
        for partition in changes.led:
            key = (partition.topic, partition.partition)
            assert self.epochs.get(key, -1) <= partition.state.leader_epoch
            self.epochs[key] = partition.state.leader_epoch
            self.topic_ids.add(partition.topic_id)


class FakeValidator:
    """A `ConfigValidator` that refuses one key, and knows one list."""

    def validate(self, topic: str, configs: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
        """Raises InvalidConfig for the key `unknown.key`."""
        if "unknown.key" in configs:
            raise InvalidConfig("Unknown topic config name: unknown.key")

    def validate_broker(self, configs: Mapping[str, str], *, is_default: bool) -> None:
        """Raises InvalidConfig for the key `unknown.key`, and for `own.key` as a default of all."""
        self.validate("", configs)
        if is_default and "own.key" in configs:
            raise InvalidConfig("Cannot update these configs at default cluster level: own.key")

    def is_synced(self, topic: TopicInfo) -> bool:
        """Whether `flush.policy` is not `async`."""
        return topic.configs.get("flush.policy") != "async"

    def may_leave_in_tier(self, topic: TopicInfo) -> bool:
        """Whether `remote.storage.enable` is `true`."""
        return topic.configs.get("remote.storage.enable") == "true"

    def list_value(self, key: str) -> str | None:
        """`cleanup.policy` is a list."""
        return "delete" if key == "cleanup.policy" else None


class FakeWrite:
    """A `coordinator.api.Future` that the test settles by `FakeStateLog.sync` or `fail`."""

    def __init__(self, content: StateBatch | StateMarker, end_offset: int) -> None:
        self.content = content
        self.end_offset = end_offset
        self.error: StateLogFailed | None = None
        self.is_settled = False
        self._callback: Callable[[], None] | None = None

    @property
    def records(self) -> Sequence[StateRecord]:
        """The records; none for a marker."""
        return self.content.records if isinstance(self.content, StateBatch) else ()

    @property
    def transaction(self) -> StateProducer | StateMarker | None:
        """The transaction that it is part of, or ends."""
        return self.content if isinstance(self.content, StateMarker) else self.content.producer

    @property
    def offset_count(self) -> int:
        """The number of offsets that it takes in the log."""
        return len(self.content.records) if isinstance(self.content, StateBatch) else 1

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """See `Future`."""
        self._callback = callback

    def settle(self, error: StateLogFailed | None = None) -> None:
        """Settle the write: durable, or failed."""
        self.error, self.is_settled = error, True
        if self._callback is not None:
            self._callback()

    def result(self) -> int:
        """See `Future`."""
        if self.error is not None:
            raise self.error
        return self.end_offset


class FakeStateLog:
    """A `StateLog` and `StateLogs` of one partition, in memory. With `is_slow` batches wait for `sync`."""

    batch_overhead_bytes = 61

    def __init__(self, topic_id: bytes = bytes(15) + b"\1") -> None:
        self.topic_id = topic_id
        self.leader_epoch = 0
        self.start_offset = 0
        self.batch_size_max_bytes = 1_048_588
        self.is_slow = False
        self.is_broken = False
        self.takes_writes = True
        self.is_current = True
        self.is_confirmed = True
        self.load_end_offset_at_get = 0
        self.batches: list[FakeWrite] = []
        self.epochs: list[int] = []  # of each record
        self.reads: list[int] = []  # the offsets that were read from

    @property
    def records(self) -> list[StateRecord]:
        """The durable records."""
        return [record for batch in self._durable for record in batch.records]

    @property
    def end_offset(self) -> int:
        """See `StateLog`."""
        return sum(batch.offset_count for batch in self._durable)

    @property
    def load_end_offset(self) -> int:
        """See `StateLog`."""
        return max(self.end_offset, self.load_end_offset_at_get)

    @property
    def _durable(self) -> list[FakeWrite]:
        return [batch for batch in self.batches if batch.is_settled and not batch.error]

    @property
    def stable_offset(self) -> int:
        """See `StateLog`."""
        open_since: dict[int, int] = {}
        for batch in self._durable:
            if isinstance(batch.content, StateMarker):
                open_since.pop(batch.content.producer_id, None)
            elif batch.content.producer is not None:
                open_since.setdefault(batch.content.producer.producer_id, batch.end_offset - batch.offset_count)
        return min([*open_since.values(), self.end_offset])

    async def get(self, topic_id: bytes, topic: str, partition: int) -> FakeStateLog:
        """See `StateLogs`."""
        await trio.lowlevel.checkpoint()
        if self.is_broken:
            raise StateLogFailed("broken")
        self.load_end_offset_at_get = 0 if self.takes_writes else sum(one.offset_count for one in self.batches)
        return self

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        """See `StateLog`; at once."""
        on_confirmed(self.is_confirmed)

    def size_of(self, record: StateRecord) -> int:
        """See `StateLog`."""
        return len(record.key) + len(record.value or b"") + 30

    async def wait_for_room(self) -> None:
        """See `StateLog`."""
        await trio.lowlevel.checkpoint()

    def append(self, records: Sequence[StateRecord], now_ms: int, producer: StateProducer | None = None) -> FakeWrite:
        """See `StateLog`."""
        return self._append(StateBatch(list(records), producer))

    def end_transaction(self, marker: StateMarker) -> FakeWrite:
        """See `StateLog`."""
        return self._append(marker)

    def _append(self, content: StateBatch | StateMarker) -> FakeWrite:
        if self.is_broken or not self.takes_writes:
            raise StateLogFailed("broken, or with too few replicas")
        write = FakeWrite(content, 0)
        write.end_offset = sum(batch.offset_count for batch in [*self.batches, write])
        self.batches.append(write)
        self.epochs += [self.leader_epoch] * write.offset_count
        if not self.is_slow:
            write.settle()
        return write

    def check(self, transaction: StateProducer | StateMarker) -> None:
        """See `StateLog`."""
        if self.is_broken:
            raise StateLogFailed("broken")
        known = [one for batch in self.batches if (one := batch.transaction) is not None]
        mine = [one.epoch for one in known if one.producer_id == transaction.producer_id]
        if transaction.epoch < max(mine, default=-1):
            raise StaleProducerEpoch(f"producer {transaction.producer_id}")
        last = next((one for one in reversed(known) if one.producer_id == transaction.producer_id), None)
        if isinstance(last, StateProducer) and last.epoch == transaction.epoch and has_own_epoch(transaction):
            raise StaleProducerEpoch(f"producer {transaction.producer_id}")

    def sync(self) -> None:
        """Make all appends durable."""
        for batch in self.batches:
            if not batch.is_settled:
                batch.settle()

    def fail(self) -> None:
        """Lose everything that is not durable."""
        lost = [batch for batch in self.batches if not batch.is_settled]
        self.batches = [batch for batch in self.batches if batch.is_settled]
        del self.epochs[self.end_offset :]
        for batch in lost:
            batch.settle(StateLogFailed("lost"))

    async def read(self, offset: int) -> StateSlice:
        """See `StateLog`: three records at a time, or a marker."""
        await trio.lowlevel.checkpoint()
        if self.is_broken:
            raise StateLogFailed("broken")
        self.reads.append(offset)
        readable = self.batches if self.load_end_offset > self.end_offset else self._durable
        first = next(one for one in readable if one.end_offset > offset)
        if isinstance(first.content, StateMarker):
            return StateSlice([first.content], first.end_offset, self.epochs[first.end_offset - 1])
        at = offset - (first.end_offset - first.offset_count)
        records = first.content.records[at : at + 3]
        end = offset + len(records)
        return StateSlice([StateBatch(records, first.content.producer)], end, self.epochs[end - 1])

    def holds(self, leader_epoch: int, end_offset: int) -> bool:
        """See `StateLog`."""
        return end_offset == 0 or (end_offset <= self.load_end_offset and self.epochs[end_offset - 1] == leader_epoch)
