"""Events of the cluster for an operator: log lines and counters, from each change of the image.

The controller reports all brokers and partitions; any other broker reports itself and the partitions of which it has a
replica. So the counters of the controllers add up to those of the cluster, and the log of each broker shows all events
of its replicas. `metadata.transitions` finds the events; `event_log` bounds the number of lines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from coordinator.api import BrokerState
from coordinator.event_log import EventLog, Kind
from coordinator.metadata.transitions import Election, Transitions, transitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from structlog.typing import FilteringBoundLogger

    from coordinator.api import ClusterImage
    from coordinator.controller.reconcile import IsSynced
    from coordinator.metadata.transitions import Elected, IsrChanged, LeaderLost, MemberChange, PartitionChange

MAY_LOSE: Final = "acknowledged records may be lost"

ELECTED: Final = Kind("leader elected", "leaders elected")
ELECTED_UNCLEANLY: Final = Kind("unclean leader elected", "unclean leaders elected", "warning")
LEADER_LOST: Final = Kind("leader lost", "leaders lost", "warning")
SHRUNK: Final = Kind("isr shrunk", "isrs shrunk")
SHRUNK_BELOW_MIN: Final = Kind(
    "isr shrunk below min.insync.replicas", "isrs shrunk below min.insync.replicas", "warning"
)
EXPANDED: Final = Kind("isr expanded", "isrs expanded")
REPLACED: Final = Kind("isr replaced", "isrs replaced")
MEMBERS: Final = {
    BrokerState.RECOVERING: Kind("broker registered", "brokers registered"),
    BrokerState.SERVING: Kind("broker unfenced", "brokers unfenced"),
    BrokerState.LEAVING: Kind("controlled shutdown begun", "controlled shutdowns begun"),
    BrokerState.FENCED: Kind("broker fenced", "brokers fenced", "warning"),
    BrokerState.UNREGISTERED: Kind("broker unregistered", "brokers unregistered", "warning"),
}
STOPPED: Final = Kind("broker fenced", "brokers fenced")  # the end of a controlled shutdown: nothing is wrong

_log: FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True)
class ClusterCounters:
    """Counters since this process started, while this broker was the controller; `elections_waiting` is as of now."""

    elections: Counter[Election] = field(default_factory=Counter)
    elections_from_elr: int = 0
    brokers_fenced: int = 0
    elections_waiting: int = 0  # now, for restarted replicas (RULES K33)
    short_replicas: int = 0  # found by such elections


class ClusterEvents:
    """The events that one broker reports. `is_synced`: see `controller.reconcile`."""

    def __init__(self, broker_id: int, is_synced: IsSynced) -> None:
        self.counters = ClusterCounters()
        self._broker_id = broker_id
        self._is_synced = is_synced
        self._lines = EventLog(_log)

    def note(self, old: ClusterImage, new: ClusterImage) -> None:
        """Report the differences that a change has made. The first image that a broker loads is no change."""
        if not old.cluster_id:
            return
        found = transitions(old, new, self._is_synced)
        if new.controller_id == self._broker_id:
            self._count(found)
        else:
            found = self._own(found)
        self._log_members(found.members)
        self._log_elections(found)
        self._log_isrs(found.isr)

    def _count(self, found: Transitions) -> None:
        self.counters.brokers_fenced += sum(one.broker.state is BrokerState.FENCED for one in found.members)
        self.counters.elections.update(one.reason for one in found.elected)
        self.counters.elections_from_elr += sum(one.is_from_elr for one in found.elected)

    def _own(self, found: Transitions) -> Transitions:
        """The transitions of this broker and its replicas."""
        return Transitions(
            [one for one in found.members if one.broker.broker_id == self._broker_id],
            [one for one in found.elected if self._is_here(one)],
            [one for one in found.lost if self._is_here(one)],
            [one for one in found.isr if self._is_here(one)],
        )

    def _is_here(self, change: PartitionChange) -> bool:
        return self._broker_id in change.state.replicas or self._broker_id in change.before.replicas

    def _log_members(self, members: Iterable[MemberChange]) -> None:
        for one in members:
            kind = STOPPED if _has_stopped(one) else MEMBERS[one.broker.state]
            self._lines.write(kind, [one], _member_fields, _member_reason)

    def _log_elections(self, found: Transitions) -> None:
        unclean = [one for one in found.elected if one.reason.may_lose]
        clean = [one for one in found.elected if not one.reason.may_lose]
        self._lines.write(ELECTED_UNCLEANLY, unclean, _unclean_fields, _election)
        self._lines.write(LEADER_LOST, found.lost, _lost_fields, _election)
        self._lines.write(ELECTED, clean, _elected_fields, _election)

    def _log_isrs(self, changed: Iterable[IsrChanged]) -> None:
        by_kind: dict[Kind, list[IsrChanged]] = {}
        for one in changed:
            by_kind.setdefault(_kind_of(one), []).append(one)
        for kind in (SHRUNK_BELOW_MIN, SHRUNK, REPLACED, EXPANDED):
            self._lines.write(kind, by_kind.get(kind, ()), _isr_fields, _departure)


def _kind_of(change: IsrChanged) -> Kind:
    if change.added:
        return REPLACED if change.removed else EXPANDED
    return SHRUNK_BELOW_MIN if change.is_too_small else SHRUNK


def _election(one: Elected | LeaderLost) -> str:
    return one.reason.value


def _departure(one: IsrChanged) -> str:
    return "caught_up" if one.reason is None else one.reason.value


def _member_fields(one: MemberChange) -> dict[str, Any]:
    return {"broker": one.broker.broker_id, "broker_epoch": one.broker.epoch}


def _has_stopped(one: MemberChange) -> bool:
    """Whether a broker that had begun a controlled shutdown is away now."""
    was_leaving = one.before is not None and one.before.state is BrokerState.LEAVING
    return was_leaving and one.broker.state is BrokerState.FENCED


def _member_reason(one: MemberChange) -> str | None:
    return "controlled_shutdown" if _has_stopped(one) else None


def _place(one: PartitionChange) -> dict[str, Any]:
    return {"topic": one.topic, "partition": one.partition, "epoch": one.state.leader_epoch}


def _elected_fields(one: Elected) -> dict[str, Any]:
    isr = list(one.state.isr)
    return {**_place(one), "leader": one.state.leader, "previous_leader": one.before.leader, "isr": isr}


def _unclean_fields(one: Elected) -> dict[str, Any]:
    return {**_elected_fields(one), "harm": MAY_LOSE}


def _lost_fields(one: LeaderLost) -> dict[str, Any]:
    return {**_place(one), "previous_leader": one.before.leader, "isr": list(one.state.isr), "elr": list(one.state.elr)}


def _isr_fields(one: IsrChanged) -> dict[str, Any]:
    return {
        **_place(one),
        "leader": one.state.leader,
        "isr": list(one.state.isr),
        "added": list(one.added),
        "removed": list(one.removed),
    }
