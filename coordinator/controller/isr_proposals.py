"""The write of a leader's ISR proposal: pure, from the image that it was made on to operations.

There is no request for it and no controller in between (Kafka's AlterPartition): the multi that carries it out has a
number which no other multi can have, so the brokers are still as in the image. If the new ISR is too small to
acknowledge anything, the leader fills the ELR, as the controller does (RULES K12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.api import BrokerState
from coordinator.controller.elections import with_isr, with_processes
from coordinator.controller.reconcile import min_isr
from coordinator.membership.role_changes import may_append
from coordinator.metadata.plans import write_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState
    from coordinator.metadata_store.store import Operation


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that the leader of an epoch wants; `added`: its new members, and the broker epoch in which each has
    caught up."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    in_sync: frozenset[int]
    added: Mapping[int, int] = field(default_factory=dict)


def to_write(image: ClusterImage, changes: Iterable[IsrChange], me: BrokerInfo) -> Iterator[Operation]:
    """The operations for the leader's changes, without changes that the image does not allow."""
    for change in changes:
        topic = image.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions):
            continue
        state = topic.partitions[change.partition]
        changed = changed_by(state, image.members, change, me, min_isr(image, topic))
        if changed is not state:
            yield write_partition(change.topic_id, change.partition, changed)


def changed_by(
    state: PartitionState, members: Mapping[int, BrokerInfo], change: IsrChange, me: BrokerInfo, min_isr: int
) -> PartitionState:
    """The state with its leader's change. The same object if another broker leads by now, or if a replica that was to
    enter the ISR is offline, or its broker does not serve in the broker epoch that has caught up (KIP-841, KIP-903)."""
    leads = may_append(state, me) and state.leader_epoch == change.leader_epoch
    added = change.added.items()
    may_enter = (one not in state.offline and _serves_in(members.get(one), epoch) for one, epoch in added)
    is_allowed = leads and all(may_enter) and me.broker_id in change.in_sync <= {*state.isr, *change.added}
    changed = with_isr(state, change.in_sync, min_isr) if is_allowed else state
    return state if changed is state else with_processes(changed, members, change.added)


def _serves_in(broker: BrokerInfo | None, epoch: int) -> bool:
    return broker is not None and broker.epoch == epoch and broker.state is BrokerState.SERVING
