"""Visibility of batches for a reader: control batches are never visible, aborted transactions only to read_uncommitted.

As in Kafka's consumer (CompletedFetch): each reply of a broker has its aborted transactions, by producer and first
offset. The batches of that producer from there up to its next abort marker are left out. For sealed segments, the last
offset is known too, so no marker is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_connectors.records.batches import Batch


class Aborted(NamedTuple):
    """An aborted transaction. Without a last offset, it ends at its marker."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class Visibility:
    """Visibility of the batches of one partition in one reply. They may come in several calls, in order."""

    def __init__(
        self, aborted: Iterable[tuple[int, int] | tuple[int, int, int | None]], *, is_committed_only: bool
    ) -> None:
        self._is_committed_only = is_committed_only
        self._to_come = sorted((Aborted(*each) for each in aborted), key=lambda each: -each.first_offset)
        self._open: dict[int, Aborted] = {}  # by producer, which has one transaction at a time

    def visible(self, batches: Iterable[Batch]) -> list[Batch]:
        """Batches whose records are rows."""
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
    """Visible batches of a reply, if all of them are available."""
    return Visibility(aborted, is_committed_only=is_committed_only).visible(batches)
