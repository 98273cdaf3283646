"""Groups as the handlers see them: requests, replies, and the service that answers.

Every call takes effect at once and returns a `Future`. It is settled when all members that the answer waits for have
come, and when the state that the answer shows is durable (RULES C1). Errors are `coordinator.errors.GroupError`s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from coordinator.state.log import FIRST_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.api import Future
    from coordinator.errors import GroupError
    from coordinator.groups.commands import GroupCommand

ResultT = TypeVar("ResultT")

NO_GENERATION = -1
NO_EPOCH = -1
NO_EXPIRY_MS = -1
DEFAULT_RETENTION_MS = -1
CLASSIC = "classic"


class GroupState(Enum):
    """States of a group, with the names of ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class MemberProtocol(NamedTuple):
    """A protocol of assignment that a member offers, with its metadata for the group's leader."""

    name: str
    metadata: bytes


class Claim(NamedTuple):
    """The member that a request claims to come from."""

    member_id: str
    instance_id: str | None = None
    generation_id: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request. A new member has an empty `member_id`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    must_know_its_id: bool = False  # version 4 and later: a newcomer is told its id and has to come again (KIP-394)
    may_skip_assignment: bool = False  # version 9 and later (KIP-814)


class Joined(NamedTuple):
    """The reply to JoinGroup. `members` is for the leader, which assigns: id, instance id and metadata of each."""

    generation_id: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skips_assignment: bool = False


class Synced(NamedTuple):
    protocol_type: str
    protocol_name: str
    assignment: bytes


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class CommittedOffset(NamedTuple):
    """A committed offset, as OffsetFetch returns it, and the time of its commit. `expires_ms` was asked for by an old
    client, or is -1."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY_MS


class FetchedOffset(NamedTuple):
    """An offset of a group. GroupError: UnstableOffset, if a stable offset was asked for."""

    topic: str
    partition: int
    committed: CommittedOffset | GroupError


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """`protocol_name`, metadata and assignments are empty unless the group is stable, as in Kafka."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = CLASSIC


class GroupService(Protocol):
    """The group coordinators of this broker.

    Any call may be answered with NotCoordinator, CoordinatorLoading or CoordinatorNotAvailable. A group belongs to the
    partition of __consumer_offsets that its id hashes to. The errors of a method settle its `Future`.
    """

    async def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates this group; __consumer_offsets is made when there is none yet.

        Raises CoordinatorNotAvailable.
        """

    def ask(self, command: GroupCommand[ResultT]) -> Future[ResultT]:
        """Have a command carried out (`coordinator.groups.commands`)."""

    def commit_in_transaction(
        self,
        group_id: str,
        claim: Claim,
        producer_id: int,
        epoch: int,
        offsets: Sequence[OffsetToCommit],
        *,
        allowed: Future[None] | None = None,
        protocol: int = FIRST_PROTOCOL,
    ) -> Future[list[GroupError | None]]:
        """TxnOffsetCommit, with the outcome of each: OffsetMetadataTooLarge. The offsets count when the transaction of
        that producer is committed. Nothing is written before `allowed` is settled; its refusal is the answer.
        `protocol`: of the transaction, see `TransactionService`.

        For all: InvalidGroupId, IllegalGeneration, UnknownMember, FencedInstance, StaleProducerEpoch; UnknownGroup when
        a generation is claimed of a group that does not exist; InvalidTransactionState when the transaction has ended
        before it was allowed.
        """

    def partition_of(self, group_id: str) -> int:
        """The partition of __consumer_offsets for a group, whether the topic exists or not."""

    def list_groups(self) -> Future[list[GroupListing]]:
        """All groups that this broker coordinates. CoordinatorLoading while any of them may be missing."""


@dataclass(slots=True)
class GroupCounters:
    """Counters since the broker started, of the group coordinators alone."""

    commits: int = 0  # of offsets, each counted
    generations: int = 0  # that came of rebalances
    expired_members: int = 0
    expired_offsets: int = 0


class GroupFigures(NamedTuple):
    """A group and its committed offsets, for metrics."""

    group_id: str
    state: GroupState
    member_count: int
    offsets: Sequence[tuple[TopicPartition, int]]


class GroupStatistics(Protocol):
    """Figures of the group coordinators for metrics, whether they are durable or not."""

    @property
    def counters(self) -> GroupCounters: ...

    def figures(self) -> Iterator[GroupFigures]:
        """All groups, each as it is when the iteration reaches it: the caller may wait in between, and groups come and
        go."""
