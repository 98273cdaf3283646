"""Transactions that hold the last stable offset back: open ones, and those that ended above the high watermark. Pure.

They are `ongoingTxns` and `unreplicatedTxns` of Kafka's ProducerStateManager. An ended transaction holds the LSO back
until the high watermark has passed its marker: a later leader may lack the marker.
"""

from collections.abc import Mapping

from engine.logs.segments.position import LogPosition


class Unstable:
    """Unstable transactions of one log, by their first offsets."""

    __slots__ = ("_ended", "_open")

    def __init__(self, open_transactions: Mapping[int, LogPosition]) -> None:
        """`open_transactions`: first positions of the open transactions, the oldest first."""
        self._open = dict(open_transactions)
        self._ended: dict[int, tuple[int, LogPosition]] = {}  # (offset of the marker, first position)

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    def begin(self, position: LogPosition) -> None:
        """Add a transaction that begins behind all others."""
        self._open[position.offset] = position

    def end(self, first_offset: int, last_offset: int) -> None:
        """End the transaction; its marker is at `last_offset`."""
        self._ended[first_offset] = last_offset, self._open.pop(first_offset)

    def first(self, high_watermark: int) -> LogPosition | None:
        """The first position of the first unstable transaction; None: none. Forgets those that ended below
        `high_watermark`."""
        for offset in [one for one, (last_offset, _) in self._ended.items() if last_offset < high_watermark]:
            del self._ended[offset]
        oldest = next(iter(self._open.values()), None)
        if not self._ended:
            return oldest
        first = min(position for _, position in self._ended.values())
        return first if oldest is None else min(first, oldest)

    def truncate(self, end_offset: int, open_transactions: Mapping[int, LogPosition]) -> None:
        """Note that the log was truncated to `end_offset`. `open_transactions`: first positions of the transactions
        that are open now."""
        self._open = dict(open_transactions)
        self._ended = {first: one for first, one in self._ended.items() if one[0] < end_offset}
