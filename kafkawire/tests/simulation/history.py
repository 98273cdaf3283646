"""Requests of clients and the replies, as events with logical times. `checker` judges them.

Each record has a unique value, (writer, sequence). A time is a position in the order of all invocations and
completions, so that "before" means the same for all clients. UNANSWERED is the completion of a request without a reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

UNANSWERED = 1 << 62
Value = tuple[int, int]  # writer, number within the writer
KEYS = 7  # of the records of a compacted topic


def key_of(value: Value) -> int:
    """The key of a record in a compacted topic."""
    return sum(value) % KEYS


class Place(NamedTuple):
    """A partition of a topic, from its creation to its deletion."""

    topic_id: bytes
    partition: int


class Outcome(Enum):
    """The final knowledge of a producer about a batch."""

    OK = "ok"
    FAILED = "failed"  # certainly not stored
    UNKNOWN = "unknown"


@dataclass(slots=True)
class TopicLife:
    """A topic, from its creation to its deletion."""

    topic_id: bytes
    name: str
    is_sync: bool
    partition_count: int
    creation_invoked: int
    created: int
    deletion_invoked: int = UNANSWERED
    deleted: int = UNANSWERED
    retention_ms: int | None = None  # None: longer than any run
    is_compacted: bool = False
    is_tiered: bool = False


@dataclass(slots=True)
class Send:
    """A batch that a producer sends. `attempts`: how many of them may have stored it."""

    values: tuple[Value, ...]
    topic: str
    topic_id: bytes | None  # None: it was sent by name
    partition: int
    acks: int
    producer: tuple[int, int] | None  # id and epoch of an idempotent producer
    invoked: int
    completed: int = UNANSWERED
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    attempts: int = 0
    connection_slot: tuple[int, int] = (0, 0)  # connection and position in it of the attempt that was answered
    life: int = -1  # of the broker that answered
    epoch: int = -1  # in which it leads, where there are several brokers


class StoredRecord(NamedTuple):
    """A record as read."""

    offset: int
    value: Value
    timestamp_ms: int


class StoredBatch(NamedTuple):
    """A batch as read; its CRC was right."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    records: tuple[StoredRecord, ...]


@dataclass(slots=True)
class Read:
    """A partition's part of a fetch. `is_alone`: nothing else was fetched with it."""

    place: Place
    offset: int
    invoked: int
    completed: int
    error: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    batches: tuple[StoredBatch, ...] = ()
    is_alone: bool = False
    damage: str = ""  # a description of wrong bytes
    epoch: int = -1  # in which the broker that answered leads, where there are several; -1: in none


@dataclass(slots=True)
class Lookup:
    """A search by timestamp (or, below zero, for one of the named points), answered without an error."""

    place: Place
    timestamp_ms: int
    invoked: int
    completed: int
    offset: int
    found_timestamp_ms: int
    epoch: int = -1  # as of a Read


@dataclass(slots=True)
class RecordsDeletion:
    """DeleteRecords up to `offset`; `log_start_offset` is the answer, -1 without one."""

    place: Place
    offset: int
    invoked: int
    completed: int = UNANSWERED
    log_start_offset: int = -1


@dataclass(slots=True)
class Restart:
    """The start of a new process of the broker. `cut_ends`: the log ends that it found after a power cut, else empty.

    A failed sync counts as a power cut for the data that were not synced.
    """

    at: int
    cut_ends: dict[Place, int]


class DirFailure(NamedTuple):
    """A failed write or sync of a log dir, with the partitions on it."""

    at: int
    life: int
    places: frozenset[Place]


class ReadFailure(NamedTuple):
    """A read error of a file of the partition with this directory name. `is_at_start`: before the broker served."""

    at: int
    directory: str
    is_at_start: bool


@dataclass(slots=True)
class History:
    """All events, in the order in which they became known."""

    topics: dict[bytes, TopicLife] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    deletions: list[RecordsDeletion] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    dir_failures: list[DirFailure] = field(default_factory=list)
    read_failures: list[ReadFailure] = field(default_factory=list)
    wrong_bytes: list[int] = field(default_factory=list)  # when the store of the tier gave any
    store_healed: int = 0  # from then on it is healthy
    troubles: list[str] = field(default_factory=list)  # failures beside the checkers: a start that fails, a hang
    operations: int = 0
    now: int = 0
    now_ms: Callable[[], int] = lambda: 0
    times_ms: list[int] = field(default_factory=list)  # the wall clock at each logical time
    life: int = 0
    trace: hashlib._Hash = field(default_factory=hashlib.sha256)

    def tick(self) -> int:
        """The next logical time."""
        self.now += 1
        self.times_ms.append(self.now_ms())
        return self.now

    def note(self, *facts: object) -> None:
        """Add facts to the trace, which compares two runs of a seed."""
        self.trace.update(repr(facts).encode())

    def life_of(self, name: str, invoked: int, completed: int) -> TopicLife | None:
        """The topic that must have answered by that name, or None if that is not certain."""
        alive = [
            life
            for life in self.topics.values()
            if life.name == name and life.creation_invoked < completed and life.deleted > invoked
        ]
        if len(alive) == 1 and alive[0].created <= invoked and alive[0].deletion_invoked >= completed:
            return alive[0]
        return None

    def place_of(self, send: Send) -> Place | None:
        """The partition of an acknowledged batch."""
        if send.topic_id is not None:
            return Place(send.topic_id, send.partition)
        life = self.life_of(send.topic, send.invoked, send.completed)
        return None if life is None else Place(life.topic_id, send.partition)
