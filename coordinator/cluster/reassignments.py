"""How a partition goes from some replicas to others: pure, from its state to the next one (KIP-455, RULES K32).

All that are to be there are replicas at once. Those that a reassignment *adds* are followers like any other that is not
in sync; those that it *removes* go on as before. It is over when all that stay are in sync: then the others go, in the
election that a controller holds after any change. So whatever happens meanwhile, the replicas less those that are added
are those from before, to which a cancellation goes back, and the replicas less those that are removed are the wanted
ones. After Kafka's PartitionReassignmentReplicas and PartitionReassignmentRevert; one that is overridden, and then
cancelled, goes back to where it began, as KIP-455 says and Kafka's controller does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.api import Extent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from coordinator.api import PartitionState


def is_under_way(state: PartitionState) -> bool:
    """Whether replicas come or go."""
    return bool(state.adding or state.removing)


def enough_in_sync(state: PartitionState, min_isr: int) -> int:
    """How many in sync may acknowledge: those that are added are not asked for before it is over."""
    return min(min_isr, len(state.replicas) - len(state.adding))


def wanted(state: PartitionState) -> tuple[int, ...]:
    """The replicas that it will have, in their order."""
    return _less(state.replicas, state.removing)


def begun(state: PartitionState, replicas: Sequence[int]) -> PartitionState:
    """On its way to these replicas, in place of any that it was on its way to; the same object if it has them."""
    if tuple(replicas) == wanted(state):
        return state
    before = _less(state.replicas, state.adding)
    removing = sorted({*state.replicas} - {*replicas})
    together = (*replicas, *removing)
    adding = sorted({*together} - {*before})
    return replace(_on(state, together, state.isr), adding=tuple(adding), removing=tuple(removing))


def ended(state: PartitionState, in_sync: Collection[int]) -> PartitionState:
    """With nobody else than is wanted, once those are all `in_sync`: in the ISR, and not only for want of another; the
    same object until then."""
    if not is_under_way(state) or not {*wanted(state)} <= {*in_sync}:
        return state
    return _settled_on(state, wanted(state), _less(state.isr, state.removing))


def reverted(state: PartitionState) -> PartitionState:
    """As it was before, with what is left of its ISR: nobody, if only those that were added are in it."""
    return _settled_on(state, _less(state.replicas, state.adding), _less(state.isr, state.adding))


def _settled_on(state: PartitionState, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionState:
    marks = tuple(mark for mark in state.marks if mark[0] in replicas)
    elr, offline = (tuple(one for one in group if one in replicas) for group in (state.elr, state.offline))
    processes = tuple(known for known in state.processes if known[0] in replicas)
    moved = replace(_on(state, replicas, isr), elr=elr, marks=marks, offline=offline, adding=(), removing=())
    return replace(moved, processes=processes)


def _on(state: PartitionState, replicas: tuple[int, ...], isr: Collection[int]) -> PartitionState:
    """Who goes is told by another epoch, as in Kafka, and so is a leader that is no longer alone, or is now: until then
    it counts nobody else."""
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
