"""Truncation of followers' logs after the answers of their leader. After a crash all followed logs may need it, so logs
are truncated together, with one checkpoint."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kafkawire.replication.replica_events import Truncated, log_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from engine.errors import EngineError
    from engine.partitions.partition import Partition
    from engine.replication.fetch_state import FetchState, Truncate
    from engine.store import SegmentStore
    from kafkawire.replication.replica_events import ReplicaEvents


class Truncation(NamedTuple):
    """A log to truncate, and where."""

    log: Partition
    state: FetchState
    action: Truncate

    @property
    def kind(self) -> tuple[int, bool]:
        """The leader epoch, and whether sealed segments may be truncated. Logs of the same kind can be truncated
        together."""
        return self.state.epoch, self.action.below_sealed


def by_kind(wanted: Iterable[Truncation]) -> Iterator[list[Truncation]]:
    for _, together in groupby(sorted(wanted, key=lambda one: one.kind), lambda one: one.kind):
        yield [*together]


async def truncate(
    store: SegmentStore, wanted: Sequence[Truncation], events: ReplicaEvents
) -> list[EngineError | None]:
    """Truncate logs of one kind, unless they have another role or epoch by then. Return the error or None of each."""
    epoch, below_sealed = wanted[0].kind
    before = [Truncated(log_before(one.log), epoch, one.action.offset) for one in wanted]
    offsets = {one.log.partition: one.action.offset for one in wanted}
    errors = await store.truncate_partitions(offsets, below_sealed=below_sealed, follows_in=epoch)
    events.truncated([one for one, error in zip(before, errors, strict=True) if error is None])
    return errors
