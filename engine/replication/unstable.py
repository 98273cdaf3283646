"""Transactions whose end is not known to all in sync: nothing from the first of them on is stable. Pure.

As ProducerStateManager has them: `ongoingTxns` and `unreplicatedTxns`. One that has ended holds the log back until the
high watermark has passed its marker, so that no reader sees what a leader to come would not call decided.
"""

from collections.abc import Mapping

from engine.logs.position import LogPosition


class Unstable:
    """Of one log; transactions are known by their first offsets."""

    __slots__ = ("_ended", "_open")

    def __init__(self, begun: Mapping[int, LogPosition]) -> None:
        """`begun` and not ended, the oldest first."""
        self._open = dict(begun)
        self._ended: dict[int, tuple[int, LogPosition]] = {}  # where their markers are, and where they begin

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    def begin(self, position: LogPosition) -> None:
        """Behind all that began before."""
        self._open[position.offset] = position

    def end(self, first_offset: int, last_offset: int) -> None:
        """Its marker is at `last_offset`."""
        self._ended[first_offset] = last_offset, self._open.pop(first_offset)

    def first(self, high_watermark: int) -> LogPosition | None:
        """Where the first of them begins, of those that had not ended below the high watermark."""
        for offset in [one for one, (last_offset, _) in self._ended.items() if last_offset < high_watermark]:
            del self._ended[offset]
        oldest = next(iter(self._open.values()), None)
        if not self._ended:
            return oldest
        first = min(position for _, position in self._ended.values())
        return first if oldest is None else min(first, oldest)

    def cut(self, end_offset: int, begun: Mapping[int, LogPosition]) -> None:
        """The log ends there now; `begun` are those that are open then."""
        self._open = dict(begun)
        self._ended = {first: one for first, one in self._ended.items() if one[0] < end_offset}
