"""The states of replicas that their broker writes: pure, from the image and the logs in its log dirs to operations.

A replica that is not open does not serve: it is not elected, and leaves the ISR if another member serves. A replica
that may lack acknowledged records leaves the ISR and the ELR before it serves, and is marked as suspect, so that no
clean election takes it (RULES K8). The last member of an ISR stays listed: then there is no leader until another
replica may lead, its log returns, or an unclean election is ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import NO_EPOCH
from coordinator.controller.elections import NO_LOG, Electorate, is_led, not_serving, returned, serving, with_suspect
from coordinator.controller.reconcile import min_isr
from coordinator.metadata.plans import write_partition
from coordinator.ports import LogCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState
    from coordinator.metadata_store.store import Operation
    from coordinator.ports import FoundLog


NOT_OPEN = (LogCondition.AWAY, LogCondition.CLOSED)


def replica_state_operations(image: ClusterImage, logs: Iterable[FoundLog], me: BrokerInfo) -> Iterator[Operation]:
    """The partitions that are to have another state because of the logs that this broker has looked for."""
    for one in logs:
        topic_id, number = one.hosted.topic_id, one.hosted.partition
        topic = image.topics_by_id.get(topic_id)
        if topic is None or me.broker_id not in topic.partitions[number].replicas:
            continue
        state = topic.partitions[number]
        wanted = state_for_log(state, one, me, Electorate(image.members, min_isr(image, topic)))
        if wanted != state:
            yield write_partition(topic_id, number, wanted)


def restart_operations(
    image: ClusterImage, topic_id: bytes, number: int, leader_epoch: int, offset: int, me: BrokerInfo
) -> Operation | None:
    """The operation that records that a log, followed in that epoch, is discarded and begins at that offset. None if it
    must not be: no leader of that epoch has all acknowledged records, and this may be the last log with them.

    A suspect replica is written again: the leader may be about to take the replica into the ISR, and the new
    version of the state tells it that the log it knew is gone.
    """
    topic = image.topics_by_id.get(topic_id)
    if topic is None or number >= len(topic.partitions):
        return None
    state = topic.partitions[number]
    is_followed = state.leader_epoch == leader_epoch and me.broker_id in state.replicas
    if not is_followed or not is_led(state, Electorate(image.members)):
        return None
    restarted = with_suspect(state, me.broker_id, (NO_EPOCH, offset), min_isr(image, topic))
    return write_partition(topic_id, number, restarted)


def state_for_log(state: PartitionState, log: FoundLog, me: BrokerInfo, electorate: Electorate) -> PartitionState:
    """The state that the broker wants for a log in this condition: whether it serves, and whether it may lack
    something."""
    if log.condition in NOT_OPEN:
        return not_serving(state, me.broker_id, electorate)
    served = serving(state, me.broker_id)
    if log.condition is LogCondition.STAYED_OPEN:
        return served
    is_gone = log.condition in (LogCondition.MISSING, LogCondition.LOST)
    if state.recount:  # every replica tells where its log ends
        return with_suspect(served, me.broker_id, NO_LOG if is_gone else log.end, electorate.min_isr)
    if log.condition is LogCondition.WHOLE or _is_enough(state, log.condition, me):
        return served if log.condition is LogCondition.MISSING else returned(served, me.broker_id)
    return with_suspect(served, me.broker_id, NO_LOG if is_gone else log.end, electorate.min_isr)


def _is_enough(state: PartitionState, condition: LogCondition, me: BrokerInfo) -> bool:
    """Whether an imperfect log lacks nothing. A log that is still to be made has lost nothing. A damaged log serves its
    good part if no other replica has more (RULES L5). An unsynced log of the only replica has no better one."""
    if condition is LogCondition.MISSING:
        return not me.lost_log_dirs
    if condition is LogCondition.DAMAGED:
        suspects = {suspect[0] for suspect in state.suspect_replicas}
        return not {*state.isr, *state.elr} - suspects - {me.broker_id}
    return condition is LogCondition.UNSURE and len(state.replicas) == 1
