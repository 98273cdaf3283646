"""Log lines about the roles of this broker's replicas: leader or follower, in which epoch, or deleted.

A line is written when the engine has taken the role, not when the metadata give it. `RoleLog` remembers the roles,
because a partition is also opened for other reasons: its configs have changed, or its log dir is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from coordinator.event_log import EventLog, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from structlog.typing import FilteringBoundLogger

    from coordinator.ports import HostedPartition

LED: Final = Kind("replica became leader", "replicas became leaders")
FOLLOWED: Final = Kind("replica became follower", "replicas became followers")
DELETED: Final = Kind("replica deleted", "replicas deleted")

_log: FilteringBoundLogger = structlog.get_logger(__name__)
_Place = tuple[bytes, int]


class _Role(NamedTuple):
    is_led: bool
    epoch: int


class RoleLog:
    """The roles that were logged last, of all replicas of one broker."""

    def __init__(self) -> None:
        self._roles: dict[_Place, _Role] = {}
        self._lines = EventLog(_log)

    def note(self, opened: Iterable[tuple[HostedPartition, bool]]) -> None:
        """Log the roles of open replicas that have changed. `opened`: each with whether this broker leads it."""
        changed: dict[bool, list[HostedPartition]] = {True: [], False: []}
        for hosted, is_led in opened:
            role = _Role(is_led, hosted.state.leader_epoch)
            if self._roles.get(_place(hosted)) != role:
                self._roles[_place(hosted)] = role
                changed[is_led].append(hosted)
        self._lines.write(LED, changed[True], _leader_fields)
        self._lines.write(FOLLOWED, changed[False], _follower_fields)

    def note_closed(self, hosted: HostedPartition) -> None:
        """Forget the role of a replica that could not be opened: it has none until it is open."""
        self._roles.pop(_place(hosted), None)

    def note_deleted(self, dropped: Iterable[HostedPartition]) -> None:
        """Log the deletion of replicas with their files."""
        dropped = [*dropped]
        for hosted in dropped:
            self._roles.pop(_place(hosted), None)
        self._lines.write(DELETED, dropped, _fields)


def _place(hosted: HostedPartition) -> _Place:
    return hosted.topic_id, hosted.partition


def _fields(hosted: HostedPartition) -> dict[str, Any]:
    return {"topic": hosted.topic, "partition": hosted.partition}


def _leader_fields(hosted: HostedPartition) -> dict[str, Any]:
    state = hosted.state
    is_unclean = state.unclean_since == state.leader_epoch
    fields = {**_fields(hosted), "epoch": state.leader_epoch, "isr": list(state.isr)}
    return {**fields, "unclean": True} if is_unclean else fields


def _follower_fields(hosted: HostedPartition) -> dict[str, Any]:
    state = hosted.state
    return {**_fields(hosted), "epoch": state.leader_epoch, "leader": state.leader, "isr": list(state.isr)}
