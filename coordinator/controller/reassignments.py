"""Reassignment of a partition's replicas: pure, from its state to the next one (KIP-455, RULES K32).

All wanted replicas are replicas at once. Replicas that a reassignment *adds* are followers like any other that is not
in sync; replicas that it *removes* go on as before. It is over when all that stay are in sync: then the others go, in
the election that a controller holds after any change. So at any time the replicas less the added ones are those from
before, to which a cancellation goes back, and the replicas less the removed ones are the wanted ones. After Kafka's
PartitionReassignmentReplicas and PartitionReassignmentRevert. If a reassignment is overridden and then cancelled, the
partition goes back to where the first one began, as KIP-455 says and Kafka's controller does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import Extent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from coordinator.api import PartitionState


def is_under_way(state: PartitionState) -> bool:
    """Whether the partition is being reassigned."""
    return bool(state.adding or state.removing)


def enough_in_sync(state: PartitionState, min_isr: int) -> int:
    """How many replicas in sync may acknowledge: added replicas are not required before the reassignment is over."""
    return min(min_isr, len(state.replicas) - len(state.adding))


def wanted(state: PartitionState) -> tuple[int, ...]:
    """The replicas after the reassignment, in their order."""
    return _less(state.replicas, state.removing)


def started(state: PartitionState, replicas: Sequence[int]) -> PartitionState:
    """Start a reassignment to these replicas, in place of a present one; the same object if it leads to them
    already."""
    if tuple(replicas) == wanted(state):
        return state
    before = _less(state.replicas, state.adding)
    removing = sorted({*state.replicas} - {*replicas})
    together = (*replicas, *removing)
    adding = sorted({*together} - {*before})
    return replace(_on(state, together, state.isr), adding=tuple(adding), removing=tuple(removing))


def ended(state: PartitionState, in_sync: Collection[int]) -> PartitionState:
    """End a reassignment once the wanted replicas are all `in_sync`: in the ISR, and not only as its last member. Only
    they stay. The same object until then."""
    if not is_under_way(state) or not {*wanted(state)} <= {*in_sync}:
        return state
    return _settled_on(state, wanted(state), _less(state.isr, state.removing))


def reverted(state: PartitionState) -> PartitionState:
    """Cancel a reassignment: the replicas from before, and the rest of the ISR, which is empty if it has only added
    replicas."""
    return _settled_on(state, _less(state.replicas, state.adding), _less(state.isr, state.adding))


def _settled_on(state: PartitionState, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionState:
    suspect_replicas = tuple(suspect for suspect in state.suspect_replicas if suspect[0] in replicas)
    elr, offline = (tuple(one for one in group if one in replicas) for group in (state.elr, state.offline))
    processes = tuple(known for known in state.processes if known[0] in replicas)
    moved = replace(
        _on(state, replicas, isr), elr=elr, suspect_replicas=suspect_replicas, offline=offline, adding=(), removing=()
    )
    return replace(moved, processes=processes)


def _on(state: PartitionState, replicas: tuple[int, ...], isr: Collection[int]) -> PartitionState:
    """Change the replicas. A leader epoch begins if a replica goes, as in Kafka, and if the leader becomes or ceases to
    be the only replica: a leader that is alone counts no other replica."""
    has_others = [len(one) > 1 for one in (state.replicas, replicas)]
    begins_epoch = has_others[0] != has_others[1] or not {*state.replicas} <= {*replicas}
    *sealed, active = state.extents or [Extent(state.active_base_offset, state.replicas)]
    return replace(
        state,
        leader_epoch=state.leader_epoch + begins_epoch,
        replicas=replicas,
        extents=(*sealed, replace(active, replicas=replicas)),
        isr=tuple(one for one in replicas if one in isr),
    )


def _less(replicas: Iterable[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(one for one in replicas if one not in gone)
