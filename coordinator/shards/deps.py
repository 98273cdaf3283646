"""Dependencies that all shards of one internal topic share, and the types that they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from coordinator.futures import SettableFuture
from coordinator.shards.replies import NEWEST, Freshness
from coordinator.shards.table import StateTable

if TYPE_CHECKING:
    from coordinator.shards.shard import Shard
    from coordinator.shards.writer import BatchWriter
    from coordinator.state.cache import StateCache
    from coordinator.state.log import StateLogs

ReplyFuture = SettableFuture[object]
TableT = TypeVar("TableT", bound=StateTable[ReplyFuture])


def ignore(shard: Shard[Any], letter: object) -> None:
    """The `send` of tables without an outbox: it is never called."""
    raise AssertionError(f"{shard.partition}: this table has no outbox, and sent {letter}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDeps(Generic[TableT]):
    """The dependencies of all shards of an internal topic."""

    logs: StateLogs
    cache: StateCache
    writer: BatchWriter
    on_unsaved: Callable[[], None]  # there is something for the cache
    new_table: Callable[[], TableT]
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]
    freshness: Freshness = NEWEST  # of replies to commands that wrote nothing
    send: Callable[[Shard[TableT], object], None] = ignore  # called with each letter of an outbox when it is durable
    on_loaded: Callable[[], None] = lambda: None  # a shard is read
