"""A start-up cache of what state logs come to: the newest value of every key, and how far of the log that is.

Losing it loses nothing: whoever loads it reads the rest from the log, or all of it (RULES C2). `coordinator.view`
keeps it in LevelDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.state_log import StateRecord


class Checkpoint(NamedTuple):
    """The view holds the partition's records below `next_offset`, the last of which was written in `leader_epoch`.

    Those of transactions that were open then are not in it, and not before `replay_offset` in the log.
    """

    topic_id: bytes
    leader_epoch: int
    next_offset: int
    replay_offset: int


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What brings the view of one partition from the checkpoint before to this one; None removes a key."""

    partition: int
    checkpoint: Checkpoint
    values: Mapping[bytes, bytes | None]


class StateView(Protocol):
    """The view of one internal topic. Calls may overlap; they take effect one after the other, in their order, whoever
    is cancelled: a save that is left out would make the next one wrong.

    None of them fails. After an error, or where there is damage, the view is empty and takes nothing until it is opened
    again, which finds nothing of what was there, or all of it as some save left it.
    """

    async def load(self, partition: int) -> tuple[Checkpoint, Sequence[StateRecord]] | None:
        """All there is of a partition, or None."""

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        """All of them, or after a crash none, and none without those before. They must not change until it returns."""

    async def discard(self, partition: int) -> None:
        """Forget all of a partition."""

    async def drop(self) -> None:
        """Forget everything, on disk too, and take nothing until it is opened again."""

    async def close(self) -> None:
        """Sync and let go."""
