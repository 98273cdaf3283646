"""The machines of brokers, made from the model's values for one step, and converted back into values after it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from coordinator.api import BrokerState
from engine.logs.recovery.epochs import EpochHistory, EpochStart
from engine.logs.segments.position import LogPosition
from engine.replication.end_history import EndHistory
from engine.replication.exchange import LogState
from engine.replication.fetch_state import FetchState
from engine.replication.progress import Progress
from engine.replication.replicas import CommittedIsr, FollowerState, Proposal, Replicas
from kafkawire.tests.replication.world import LATER, NEVER, Broker, Follows, Known, Leads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkawire.tests.replication.world import Pairs

Ordered = TypeVar("Ordered", int, tuple[int, int])
NOW_MS, LAG_MAX_MS = 0, 0  # a replica that is late has caught up NEVER, and has joined NEVER


def at(offset: int) -> LogPosition:
    return LogPosition(offset, 0, offset, -1)


@lru_cache(maxsize=4096)
def committed(known: Known) -> CommittedIsr:
    """The committed state in the metadata, as a leader's machine needs it."""
    image = known.image
    epochs = {one: epoch for one, (epoch, _) in enumerate(image.members, 1)}
    serving = {one for one, (_, state) in enumerate(image.members, 1) if state is BrokerState.SERVING}
    isr, replicas = frozenset(image.partition.isr), frozenset(image.partition.replicas)
    marked = frozenset(suspect[0] for suspect in image.partition.suspect_replicas)
    return CommittedIsr(
        known.version, isr, replicas, epochs, serving, image.min_isr, marked=marked, state_version=known.version
    )


class Disk:
    """A broker's log and its progress, for the duration of a step."""

    def __init__(self, broker: Broker) -> None:
        self.records = [*broker.log]
        self.epochs = EpochHistory(EpochStart(*start) for start in broker.starts)
        written = len(broker.log)
        ends = map(at, range(broker.high_watermark + 1, written + 1))
        self.progress = Progress(at(written), at(broker.high_watermark), ends, has_others=True)
        self.progress.durable = at(broker.durable)
        self.progress._ends_of_others = dict(broker.ends_of_others)

    @property
    def state(self) -> LogState:
        progress = self.progress
        return LogState(self.epochs, 0, len(self.records), progress.durable.offset, progress.high_watermark.offset)

    def append(self, records: Sequence[tuple[int, int]]) -> str | None:
        """Append records as `engine.partitions.follower` does. Return the violation, or None."""
        for record in records:
            if record[0] < self.epochs.latest:
                return "a follower refuses what its leader has"
            self.epochs.note(record[0], len(self.records))
            self.records.append(record)
            self.progress.note_written(at(len(self.records)), [at(len(self.records))])
        return None

    def sync(self) -> None:
        self.progress.note_durable(self.progress.written)

    def cut(self, offset: int) -> None:
        """Truncate the log durably."""
        del self.records[offset:]
        self.epochs.drop_from(offset)
        self.progress.truncate(at(offset))

    def back(self, broker: Broker, role: Leads | Follows | None) -> Broker:
        return broker._replace(
            log=tuple(self.records),
            durable=self.progress.durable.offset,
            high_watermark=self.progress.high_watermark.offset,
            ends_of_others=_ordered(self.progress._ends_of_others.items()),
            starts=tuple((one.epoch, one.start_offset) for one in self.epochs.below(LATER)),
            role=role,
        )


def leading(broker: Broker, broker_id: int, role: Leads, disk: Disk, late: frozenset[int] = frozenset()) -> Replicas:
    """The leader's machine. `late`: the replicas that are late now; other members of the ISR have joined long ago. Any
    time may have passed between two steps, so a world has no times."""
    found = Replicas.__new__(Replicas)
    found._broker_id, found.epoch, found.epoch_start = broker_id, role.epoch, role.epoch_start
    found._progress, found._committed = disk.progress, committed(broker.known)
    found._lag_max_ms, found._began_at_ms, found._ends = LAG_MAX_MS, NOW_MS, EndHistory(LAG_MAX_MS)
    found._joined_at_ms = {one: NEVER if one in late else NOW_MS for one in found._committed.in_sync}
    found._proposed, found._follower_states = None, {}
    if role.proposed is not None:
        version, in_sync, added = role.proposed
        found._proposed = Proposal(version, frozenset(in_sync), dict(added))
    for one, end, epoch in role.seen:
        found._follower_states[one] = FollowerState(end, epoch, NOW_MS, LATER, NEVER if one in late else NOW_MS)
    disk.progress._ends_of_others |= {one: seen.end_offset for one, seen in found._follower_states.items()}
    disk.progress.set_in_sync((), is_enough=False)
    found._count(NOW_MS)
    return found


def led(replicas: Replicas) -> Leads:
    seen = tuple((one, seen.end_offset, seen.broker_epoch) for one, seen in sorted(replicas._follower_states.items()))
    proposed = replicas._proposed
    return Leads(
        replicas.epoch,
        replicas.epoch_start,
        seen,
        None if proposed is None else as_rows(proposed),
    )


def following(role: Follows) -> FetchState:
    found = FetchState.__new__(FetchState)
    found.epoch, found._unclean_since = role.epoch, role.unclean_since
    found._asked, found._is_busy = None, role.to_sync is not None
    found._copied_since = found._open_since = -1  # nothing is compacted here
    return found


def _ordered(values: Iterable[Ordered]) -> tuple[Ordered, ...]:
    return tuple(sorted(values))


def as_rows(proposal: Proposal) -> tuple[int, tuple[int, ...], Pairs]:
    """The proposal as sorted tuples, so that worlds can be compared."""
    version, in_sync, added = proposal
    return version, _ordered(in_sync), _ordered(added.items())
