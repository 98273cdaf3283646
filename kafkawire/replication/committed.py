"""The replica state of a partition in the cluster's image, in the form that its leader needs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.api import BrokerState
from coordinator.controller.reassignments import enough_in_sync
from coordinator.controller.reconcile import min_isr
from engine.roles import CommittedIsr

if TYPE_CHECKING:
    from coordinator.api import ClusterImage, PartitionState


def committed_of(image: ClusterImage, topic_id: bytes, state: PartitionState) -> CommittedIsr:
    """The committed ISR and the other replica states of a partition. The image must have its topic."""
    members = image.members.values()
    return CommittedIsr(
        image.version,
        frozenset(state.isr),
        frozenset(state.replicas),
        {one.broker_id: one.epoch for one in members},
        {one.broker_id for one in members if one.state is BrokerState.SERVING} - {*state.offline},
        enough_in_sync(state, min_isr(image, image.topics_by_id[topic_id])),
        frozenset(state.elr),
        frozenset(suspect[0] for suspect in state.suspect_replicas),
        state.version,
    )
