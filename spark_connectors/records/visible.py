"""Which batches a reader may see: transactions that were aborted are left out, and so are control batches, always.

What Kafka's consumer does (CompletedFetch): a broker tells with each reply which transactions in it were aborted, by
producer and first offset; what that producer has written from there up to its next marker of an abort is left out. Of
sealed segments the last offset is known too, and nobody has to wait for a marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_connectors.records.batches import Batch


class Aborted(NamedTuple):
    """A transaction that was aborted. Without a last offset it goes up to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class Visibility:
    """Follows the batches of one partition from one reply: they may come in several calls, in their order."""

    def __init__(
        self, aborted: Iterable[tuple[int, int] | tuple[int, int, int | None]], *, is_committed_only: bool
    ) -> None:
        self._is_committed_only = is_committed_only
        self._to_come = sorted((Aborted(*each) for each in aborted), key=lambda each: -each.first_offset)
        self._open: dict[int, Aborted] = {}  # by producer: it has one transaction at a time

    def visible(self, batches: Iterable[Batch]) -> list[Batch]:
        """Those whose records are rows."""
        return [batch for batch in batches if self._is_visible(batch)]

    def _is_visible(self, batch: Batch) -> bool:
        if not self._is_committed_only:
            return not batch.is_control
        while self._to_come and self._to_come[-1].first_offset < batch.next_offset:
            begun = self._to_come.pop()
            self._open[begun.producer_id] = begun
        if batch.is_control:
            if batch.is_abort_marker:
                self._open.pop(batch.producer_id, None)
            return False
        aborted = self._open.get(batch.producer_id) if batch.is_transactional else None
        return aborted is None or (aborted.last_offset is not None and aborted.last_offset < batch.base_offset)


def visible(
    batches: Iterable[Batch],
    aborted: Iterable[tuple[int, int] | tuple[int, int, int | None]],
    *,
    is_committed_only: bool,
) -> list[Batch]:
    """The same where all batches of a reply are at hand."""
    return Visibility(aborted, is_committed_only=is_committed_only).visible(batches)
