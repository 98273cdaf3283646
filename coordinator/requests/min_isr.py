"""Clearing of ELRs before min.insync.replicas becomes smaller: pure, from one image to the operations that go first.

A member of an ELR has all acknowledged records, because none could be acknowledged since it left the ISR. If fewer
replicas in sync are enough from now on, that ends: ELRs are cleared first, in as many changes as that takes (KIP-966,
RULES K12).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.controller.elections import without_elr
from coordinator.controller.reassignments import enough_in_sync
from coordinator.controller.reconcile import min_isr
from coordinator.metadata.plans import write_partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.api import ClusterImage
    from coordinator.metadata.plans import Plan
    from coordinator.metadata_store.store import Operation


def after_clearing_elrs(plan: Plan, image: ClusterImage, after: ClusterImage) -> Plan:
    """The plan, behind operations that clear ELRs. `after`: the image after the plan, with the topics that may be
    concerned."""
    return replace(plan, operations=[*_cleared(image, after), *plan.operations])


def _cleared(image: ClusterImage, after: ClusterImage) -> Iterator[Operation]:
    for topic_id, topic in after.topics_by_id.items():
        before = image.topics_by_id[topic_id]
        enough, was_enough = min_isr(after, topic), min_isr(image, before)
        for number, state in enumerate(before.partitions):
            is_lowered = enough_in_sync(state, enough) < enough_in_sync(state, was_enough)
            if is_lowered and (cleared := without_elr(state)) is not state:
                yield write_partition(topic_id, number, cleared)
