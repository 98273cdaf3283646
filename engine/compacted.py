"""What compaction leaves unsaid, and a leader tells its replicas (RULES K19)."""

from collections.abc import Sequence
from typing import NamedTuple


class Dropped(NamedTuple):
    """What is gone of a log that had decided about records before it: below `tombstones_to` there may be tombstones,
    below `markers_to` markers that are gone, and `marker_drops` times some went since the log was opened. Nothing below
    `clean_to` is there that a tombstone below had deleted, be that gone or not."""

    tombstones_to: int = 0
    markers_to: int = 0
    marker_drops: int = 0
    clean_to: int = 0

    def below(self, end_offset: int) -> "Dropped":
        """As far as a log tells of it that ends there."""
        return self._replace(
            tombstones_to=min(self.tombstones_to, end_offset), markers_to=min(self.markers_to, end_offset)
        )

    def beside(self, other: "Dropped") -> "Dropped":
        """Of a log in which either may be gone."""
        tombstones_to = max(self.tombstones_to, other.tombstones_to)
        return self._replace(tombstones_to=tombstones_to, markers_to=max(self.markers_to, other.markers_to))

    def covers(self, other: "Dropped") -> bool:
        """Whether no more may be gone if that is."""
        return self.tombstones_to >= other.tombstones_to and self.markers_to >= other.markers_to


class Compacted(NamedTuple):
    """Of a part of a log. `epoch_starts`: which leader epochs began where, in the order of both, as the batches that
    are left may not tell; `dropped` is of all of the log."""

    epoch_starts: Sequence[tuple[int, int]] = ()
    dropped: Dropped = Dropped()


NOT_COMPACTED = Compacted()
