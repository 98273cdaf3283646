"""Which batches a reader may see: no markers, and with read_committed nothing of a transaction that was aborted.

A broker tells with the records which transactions among them were aborted: their producers, and where each began. It
ends at that producer's abort marker (KIP-98, Kafka's CompletedFetch).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_connectors.records.batches import Batch


def visible(batches: Sequence[Batch], aborted: Iterable[tuple[int, int]], *, is_committed_only: bool) -> list[Batch]:
    """Those that make rows. `aborted` are producers and first offsets: all that reach into these batches."""
    left = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    found = []
    for batch in batches:
        while left and left[-1][1] < batch.next_offset:
            aborting.add(left.pop()[0])
        if batch.is_abort_marker:
            aborting.discard(batch.producer_id)
        is_aborted = batch.is_transactional and batch.producer_id in aborting
        if not batch.is_control and not (is_committed_only and is_aborted):
            found.append(batch)
    return found
