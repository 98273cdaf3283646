"""Commands to the coordinator of a group: one value for each request about one group.

`GroupService.ask` takes a command to the table that has the group; `GroupTable.perform` carries it out. The errors of
a command settle its future.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from coordinator.errors import GroupError
from coordinator.groups.api import (
    DEFAULT_RETENTION_MS,
    Claim,
    CommittedOffset,
    FetchedOffset,
    GroupDescription,
    Join,
    Joined,
    OffsetToCommit,
    Synced,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class GroupCommand(Generic[ResultT]):
    """A command to one group, whose future has a `ResultT`.

    `needs_name`: it is refused with InvalidGroupId for a group without a name, which may have nothing but offsets.
    `only_reads`: it needs no record, and is answered even while none can be written.
    """

    needs_name: ClassVar[bool] = False
    only_reads: ClassVar[bool] = False

    group_id: str

    @property
    def needs_newest(self) -> bool:
        """Whether the reply has to reflect all that any coordinator has acknowledged before the request came."""
        return False


@dataclass(frozen=True, slots=True)
class JoinGroup(GroupCommand[Joined]):
    """JoinGroup: settled when all members have joined.

    Errors: InvalidGroupId, InvalidSessionTimeout, InconsistentProtocol, UnknownMember, MemberIdRequired,
    FencedInstance, GroupIsFull, RebalanceInProgress.
    """

    needs_name = True

    join: Join


@dataclass(frozen=True, slots=True)
class SyncGroup(GroupCommand[Synced]):
    """SyncGroup: settled when the leader has assigned. `protocol`: its type and name, None if the request has none.

    Errors: InvalidGroupId, UnknownMember, FencedInstance, IllegalGeneration, InconsistentProtocol, RebalanceInProgress.
    """

    needs_name = True

    claim: Claim
    protocol: tuple[str | None, str | None]
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat(GroupCommand[None]):
    """Heartbeat. Errors: InvalidGroupId, UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress."""

    needs_name = True
    only_reads = True

    claim: Claim


@dataclass(frozen=True, slots=True)
class LeaveGroup(GroupCommand[list[GroupError | None]]):
    """LeaveGroup, with the outcome of each member: UnknownMember, FencedInstance. InvalidGroupId for all."""

    needs_name = True

    leaving: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class CommitOffsets(GroupCommand[list[GroupError | None]]):
    """OffsetCommit, with the outcome of each offset: OffsetMetadataTooLarge. All or none of the rest are committed.

    A client in no group has an empty member id and no generation. For all: UnknownMember, FencedInstance,
    IllegalGeneration, RebalanceInProgress; UnknownGroup when a generation is claimed of a group that does not exist.
    """

    claim: Claim
    offsets: Sequence[OffsetToCommit]
    retention_ms: int = DEFAULT_RETENTION_MS


@dataclass(frozen=True, slots=True)
class OffsetFetch(GroupCommand[ResultT]):
    """Either OffsetFetch. `require_stable`: UnstableOffset where an open transaction has an offset."""

    only_reads = True

    require_stable: bool = field(default=False, kw_only=True)

    @property
    def needs_newest(self) -> bool:
        """Stable offsets decide whether records are processed twice."""
        return self.require_stable


@dataclass(frozen=True, slots=True)
class FetchOffsets(OffsetFetch[list[CommittedOffset | GroupError | None]]):
    """OffsetFetch of these partitions of topics, one after the other; None where nothing was committed.

    A group that does not exist has committed nothing.
    """

    partitions: Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class FetchAllOffsets(OffsetFetch[list[FetchedOffset]]):
    """OffsetFetch of all offsets that the group has committed."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets(GroupCommand[list[GroupError | None]]):
    """OffsetDelete, with the outcome of each: SubscribedToTopic.

    For all, even of no partitions: InvalidGroupId, UnknownGroup, GroupNotEmpty.
    """

    needs_name = True

    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class DescribeGroup(GroupCommand[GroupDescription]):
    """DescribeGroups, for one group. Errors: UnknownGroup."""

    only_reads = True


@dataclass(frozen=True, slots=True)
class DeleteGroup(GroupCommand[None]):
    """DeleteGroups, for one group and its offsets. Errors: UnknownGroup, GroupNotEmpty."""
