"""Markers for the transactions that are open where a restored log ends: the original markers were in the lost part.

Pure. A segment is copied to the tier only after every transaction in it has ended, so the outcome of each is known: the
footer of the last segment names the aborted ones, the others were committed. The markers are the first batches of the
restored log, as the marker of `kafka-transactions abort` that ends a hanging transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.api import NO_EPOCH, Marker, Outcome
from engine.batches.batch import stamp
from engine.batches.markers import build_marker
from engine.logs.producers.snapshot import decode_snapshot
from engine.logs.producers.state import EPOCH_MAX
from engine.logs.segments.footer import decode

if TYPE_CHECKING:
    from collections.abc import Sequence


def lost_markers(producers: bytes, end_offset: int, footer: bytes) -> list[Marker]:
    """The markers of the transactions that are open in the snapshot `producers` of `end_offset`, oldest first.

    `footer` is that of the segment that ends there. The epoch of each marker is one higher than that of its producer,
    so that later batches of the producer are fenced. Raises SnapshotDamaged, FooterDamaged.
    """
    table = decode_snapshot(producers, end_offset).producers
    if not table.open_transactions:
        return []
    aborted = {
        (producer_id, first) for producer_id, first, _ in decode(footer, "the footer of the last segment").aborted
    }
    found = []
    for producer_id, first_offset in table.open_transactions.items():
        producer = table.get(producer_id)
        assert producer is not None
        outcome = Outcome.ABORT if (producer_id, first_offset) in aborted else Outcome.COMMIT
        epoch = min(producer.epoch + 1, EPOCH_MAX)
        coordinator_epoch = 0 if producer.coordinator_epoch == NO_EPOCH else producer.coordinator_epoch
        found.append(Marker(producer_id, epoch, coordinator_epoch, outcome))
    return found


def marker_batches(markers: Sequence[Marker], base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """The batches of the markers, one offset each, from `base_offset` on."""
    found = bytearray()
    for number, marker in enumerate(markers):
        batch = build_marker(marker, now_ms)
        stamp(memoryview(batch), base_offset + number, leader_epoch)
        found += batch
    return bytes(found)
