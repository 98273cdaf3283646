"""Traces of compaction that the records of a log do not show: a leader tells them to its followers (RULES K18, K19)."""

from collections.abc import Sequence
from typing import NamedTuple

SWAPS_UNKNOWN = -1
SPANS = 32  # parts of delete.retention.ms; delete horizons within one part share a stamp
STAMPS_MAX = 2 * SPANS


class CompactionHorizon(NamedTuple):
    """Offsets up to which compaction may have removed records that decide about earlier records.

    Tombstones below `tombstones_to` and markers below `markers_to` may be missing. All records that made compaction
    remove others are below `replaced_to`, as the leader of epoch `replaced_in` has told.
    """

    tombstones_to: int = 0
    markers_to: int = 0
    replaced_to: int = 0
    replaced_in: int = 0

    def below(self, end_offset: int) -> "CompactionHorizon":
        """The offsets for a log that ends at `end_offset`. `replaced_to` stays: records behind that end may have
        replaced records that the log lacks."""
        return self._replace(
            tombstones_to=min(self.tombstones_to, end_offset), markers_to=min(self.markers_to, end_offset)
        )

    def led_from(self, end_offset: int, leader_epoch: int) -> "CompactionHorizon":
        """The offsets for a leader whose log ends at `end_offset` when its epoch begins.

        If `replaced_to` is behind that end, an unclean election has elected an incomplete copy. It lacks records that
        only a replica that ends there or before may still have, so that such a replica re-replicates from scratch.
        """
        known = self.below(end_offset)
        if known.replaced_to <= end_offset:
            return known
        behind = end_offset + 1  # so that the next leader tells it, too
        return known._replace(tombstones_to=behind, replaced_to=behind, replaced_in=leader_epoch)

    def merged_with(self, other: "CompactionHorizon") -> "CompactionHorizon":
        """The greater of each offset, for a log that may lack the records of both."""
        return CompactionHorizon(*map(max, self, other))

    def covers(self, other: "CompactionHorizon") -> bool:
        """Whether no offset of `other` is greater than its offset here."""
        return self.merged_with(other) == self


class Compacted(NamedTuple):
    """Traces of compaction for a range of a log, as a leader sends them to a follower.

    `epoch_starts`: (leader epoch, first offset) in ascending order; the remaining batches may not show them. `dropped`
    is for the whole log. `swaps` (SWAPS_UNKNOWN: the leader does not tell), `gone_by`: see Swaps.
    """

    epoch_starts: Sequence[tuple[int, int]] = ()
    dropped: CompactionHorizon = CompactionHorizon()
    swaps: int = SWAPS_UNKNOWN
    gone_by: int = 0

    def dropped_below(self, offset: int, leader_epoch: int) -> CompactionHorizon:
        """The `dropped` of a log that ends at `offset` and was copied from the leader of that epoch."""
        return self.dropped.below(offset)._replace(replaced_in=leader_epoch)


NOT_COMPACTED = Compacted()


class Swaps:
    """Swaps of a log since it was opened: they tell whether a copy may lack a tombstone or marker that it needs.

    `count`: swaps so far. `gone_by`: a swap after which the log had no record left that any removed tombstone or marker
    decides about. A follower that has copied all its records since that swap needs none of these.

    A tombstone or marker gets its delete horizon when no record is left that it decides about (`Rules`). So the horizon
    shows at which swap that was. Horizons within one span share a stamp, with the span's last count and first horizon.
    Clocks may go back, and delete.retention.ms may change.
    """

    __slots__ = ("_stamps", "count", "gone_by", "is_under_way")

    def __init__(self) -> None:
        self.count = self.gone_by = 0
        self.is_under_way = False  # files of the new segments may have the names of those before
        self._stamps: list[tuple[int, int]] = []  # (count, horizon_ms)

    def note(self, stamped_ms: int | None, dropped_ms: int | None, delete_retention_ms: int) -> None:
        """Count a swap. `stamped_ms`: the delete horizon that it assigned, None: none. `dropped_ms`: the greatest
        delete horizon of the tombstones and markers that it removed, None: none."""
        self.count += 1
        if dropped_ms is not None:
            stamped = (count for count, horizon_ms in self._stamps if horizon_ms <= dropped_ms)
            self.gone_by = max(self.gone_by, *stamped, 0)
        if stamped_ms is not None:
            self._stamp(stamped_ms, delete_retention_ms // SPANS)

    def _stamp(self, horizon_ms: int, span_ms: int) -> None:
        stamps, first_ms = self._stamps, horizon_ms
        if stamps and abs(horizon_ms - stamps[-1][1]) < span_ms:
            first_ms = min(stamps.pop()[1], horizon_ms)
        elif len(stamps) == STAMPS_MAX:
            oldest = stamps.pop(0)
            stamps[0] = (stamps[0][0], min(oldest[1], stamps[0][1]))
        stamps.append((self.count, first_ms))
