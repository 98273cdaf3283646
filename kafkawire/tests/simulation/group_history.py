"""Requests of clients about groups, and the replies: a part of the history, with the same logical times.

A commit is recognized by its number, which is unique in a run: it is committed as the offset and as the metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.plan import Target

NO_ANSWER = -1_000  # of calls without an error code
NO_ERA = -1
# Errors to retry: the coordinator is away, or not yet back.
AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Kind(Enum):
    """The kind of a request."""

    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    LEAVE = "leave"


@dataclass(slots=True, kw_only=True)
class Call:
    """A request to a group, with its sender and the reply.

    `era` is the term of the coordinator that answered, as long as no file operation failed in it: within an era it
    forgets nothing. A term ends with the broker's process, and with its session. `members` are the owners in the reply
    to a leader, `assigned` is the assignment of a member.
    """

    kind: Kind
    group: str
    member_id: str
    instance_id: str | None
    generation: int
    invoked: int
    invoked_ms: int
    completed: int = UNANSWERED
    completed_ms: int = UNANSWERED
    code: int = NO_ANSWER
    era: int = NO_ERA
    is_leader: bool = False
    members: tuple[str, ...] = ()
    assigned: tuple[Target, ...] = ()
    offsets: dict[Target, int] = field(default_factory=dict)
    retention_ms: int | None = None

    @property
    def is_ok(self) -> bool:
        return self.code == 0

    @property
    def owner(self) -> str:
        """The member as an assignor sees it: a static member keeps its assignment under a new member id."""
        return self.instance_id or self.member_id


@dataclass(slots=True)
class OffsetRead:
    """An OffsetFetch with its reply; None for a target without a commit. `is_stable`: stable offsets were requested."""

    group: str
    invoked: int
    completed: int
    completed_ms: int
    found: dict[Target, int | None]
    is_stable: bool = True


@dataclass(slots=True)
class Removal:
    """A deletion of offsets by an administrator; of the whole group if `targets` is None."""

    group: str
    targets: tuple[Target, ...] | None
    invoked: int
    completed: int = UNANSWERED
    is_done: bool = False  # certainly

    def concerns(self, target: Target) -> bool:
        return self.targets is None or target in self.targets


@dataclass(slots=True)
class LiveMember:
    """A member at the end of the run."""

    member_id: str
    assigned: tuple[Target, ...]


@dataclass(slots=True)
class LastWords:
    """The broker's final description of groups, by group: the state, and the assignments by member id."""

    described: dict[str, tuple[str, dict[str, tuple[Target, ...]]]] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    living: dict[str, list[LiveMember]] = field(default_factory=dict)  # as the clients know


@dataclass(slots=True)
class GroupHistory:
    """All events of all groups."""

    calls: list[Call] = field(default_factory=list)
    reads: list[OffsetRead] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    rebalance_timeouts_ms: dict[str, int] = field(default_factory=dict)
    session_timeouts_ms: dict[str, int] = field(default_factory=dict)
    last_words: LastWords | None = None
    commits: int = 0

    def next_number(self) -> int:
        """A number for a commit."""
        self.commits += 1
        return self.commits


def encode_targets(targets: tuple[Target, ...]) -> bytes:
    """An assignment, in the clients' own format: to the broker it is bytes."""
    return ",".join(f"{topic}:{partition}" for topic, partition in targets).encode()


def decode_targets(data: bytes | memoryview) -> tuple[Target, ...]:
    text = bytes(data).decode()
    pairs = [one.rsplit(":", 1) for one in text.split(",")] if text else []
    return tuple(Target(topic, int(partition)) for topic, partition in pairs)
