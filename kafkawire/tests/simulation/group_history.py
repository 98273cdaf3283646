"""What clients asked of groups and were told: a part of the history, with the same logical times.

A commit is known by its number, which no other commit of a run has: it is committed as the offset and as the metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.plan import Target

NO_ANSWER = -1_000  # of calls without an error code
NO_ERA = -1
# The coordinator is away, or not yet back: ask again.
AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Kind(Enum):
    """What was asked."""

    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    LEAVE = "leave"


@dataclass(slots=True, kw_only=True)
class Call:
    """One request to a group, by whom, and its answer.

    `era` is the term of the coordinator that answered, as long as no file operation failed in it: within an era it
    forgets nothing. A term ends with the broker's life, and with its session. `members` are the owners that a leader
    was told, `assigned` what a member was given.
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
        """Who it is in the eyes of an assignor: a static member keeps what it has under a new id."""
        return self.instance_id or self.member_id


@dataclass(slots=True)
class OffsetRead:
    """An OffsetFetch that was answered; None where nothing is committed. `is_stable`: it asked for stable offsets."""

    group: str
    invoked: int
    completed: int
    completed_ms: int
    found: dict[Target, int | None]
    is_stable: bool = True


@dataclass(slots=True)
class Removal:
    """An administrator wants offsets gone, all and the group with them if `targets` is None."""

    group: str
    targets: tuple[Target, ...] | None
    invoked: int
    completed: int = UNANSWERED
    is_done: bool = False  # certainly

    def concerns(self, target: Target) -> bool:
        return self.targets is None or target in self.targets


@dataclass(slots=True)
class LiveMember:
    """Who takes part in the end."""

    member_id: str
    assigned: tuple[Target, ...]


@dataclass(slots=True)
class LastWords:
    """What the broker tells of groups in the end, by group: members' ids with what they have, and the states."""

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
        """Of a commit."""
        self.commits += 1
        return self.commits


def encode_targets(targets: tuple[Target, ...]) -> bytes:
    """An assignment, in the clients' own format: to the broker it is bytes."""
    return ",".join(f"{topic}:{partition}" for topic, partition in targets).encode()


def decode_targets(data: bytes | memoryview) -> tuple[Target, ...]:
    text = bytes(data).decode()
    pairs = [one.rsplit(":", 1) for one in text.split(",")] if text else []
    return tuple(Target(topic, int(partition)) for topic, partition in pairs)
