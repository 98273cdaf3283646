"""Cache of coordinator state, for starts: the newest value of each key of a state log, and the offset up to which it
holds.

Losing it loses nothing: a coordinator reads the rest from the log, or all of it (RULES C2).
`coordinator.state.leveldb_cache` keeps it in LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.state.log import StateRecord


class Checkpoint(NamedTuple):
    """A cache with the partition's records below `next_offset`, the last of which was written in `leader_epoch`.

    Records of transactions that were open then are not in it. In the log they begin at `replay_offset` or later.
    """

    topic_id: bytes
    leader_epoch: int
    next_offset: int
    replay_offset: int


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The difference between the last checkpoint of a partition's cache and this one. A value of None removes its
    key."""

    partition: int
    checkpoint: Checkpoint
    values: Mapping[bytes, bytes | None]


class StateCache(Protocol):
    """The cache of one internal topic's state. Calls may overlap. They take effect one after the other, in their order,
    even if a caller is cancelled: without one save, the next one would be wrong.

    No call fails. After an error, or when damage is found, the cache is empty and takes nothing until it is opened
    again. Then it has nothing, or all that one save left.
    """

    async def load(self, partition: int) -> tuple[Checkpoint, Sequence[StateRecord]] | None:
        """The checkpoint and all values of a partition; None if the cache has none."""

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        """Write all changes; after a crash all or none, and none without earlier saves. They must not change until it
        returns."""

    async def discard(self, partition: int) -> None:
        """Forget all of a partition."""

    async def drop(self) -> None:
        """Forget everything, on disk too, and take nothing until it is opened again."""

    async def close(self) -> None:
        """Sync and close the cache."""
