"""What compaction leaves unsaid, and a leader tells its replicas (RULES K18, K19)."""

from collections.abc import Sequence
from typing import NamedTuple

UNTOLD = -1
SPANS = 32  # into which the time that a stamp is old is divided
STAMPS_MAX = 2 * SPANS


class Dropped(NamedTuple):
    """What is gone of a log that had decided about records before it: below `tombstones_to` there may be tombstones,
    below `markers_to` markers that are gone. Whatever is, went because of records below `replaced_to`, as the leader of
    epoch `replaced_in` has said."""

    tombstones_to: int = 0
    markers_to: int = 0
    replaced_to: int = 0
    replaced_in: int = 0

    def below(self, end_offset: int) -> "Dropped":
        """As far as a log tells of it that ends there; what it lacks may have been replaced by what lies behind."""
        return self._replace(
            tombstones_to=min(self.tombstones_to, end_offset), markers_to=min(self.markers_to, end_offset)
        )

    def led_from(self, end_offset: int, leader_epoch: int) -> "Dropped":
        """As far as a leader's log tells of it whose epoch begins there. If what took the place of something lies
        behind, a part of a copy was elected uncleanly, and who ends here may have what that lacks."""
        known = self.below(end_offset)
        if known.replaced_to <= end_offset:
            return known
        behind = end_offset + 1  # so that who leads next tells it, too
        return known._replace(tombstones_to=behind, replaced_to=behind, replaced_in=leader_epoch)

    def beside(self, other: "Dropped") -> "Dropped":
        """Of a log in which either may be gone."""
        return Dropped(*map(max, self, other))

    def covers(self, other: "Dropped") -> bool:
        """Whether no more may be gone if that is."""
        return self.beside(other) == self


class Compacted(NamedTuple):
    """Of a part of a log. `epoch_starts`: which leader epochs began where, in the order of both, as the batches that
    are left may not tell; `dropped` is of all of the log. `swaps`, `gone_by`: see Swaps."""

    epoch_starts: Sequence[tuple[int, int]] = ()
    dropped: Dropped = Dropped()
    swaps: int = UNTOLD
    gone_by: int = 0

    def dropped_below(self, offset: int, leader_epoch: int) -> Dropped:
        """What a log lacks that ends there and has come from that leader."""
        return self.dropped.below(offset)._replace(replaced_in=leader_epoch)


NOT_COMPACTED = Compacted()


class Swaps:
    """Of a log since it was opened: how often the cleaner has put segments in the place of others, and by which of
    these times, at the latest, all was gone that a tombstone or marker had decided about which is gone by now as well.

    Who has copied all it has since then has nothing undecided. A tombstone or marker gets its delete horizon when
    nothing is left that it decides about (`Rules`), so the horizon tells when that was: a span at most is taken for
    one, by the last of its times and its first horizon. Clocks may go back, and the time to keep may change.
    """

    __slots__ = ("_stamps", "count", "gone_by", "is_under_way")

    def __init__(self) -> None:
        self.count = self.gone_by = 0
        self.is_under_way = False  # files of the new segments may have the names of those before
        self._stamps: list[tuple[int, int]] = []  # (count, horizon_ms)

    def note(self, stamped_ms: int | None, dropped_ms: int | None, delete_retention_ms: int) -> None:
        """Once more: the horizon `stamped_ms` was given, and such have gone that had one up to `dropped_ms`."""
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
