"""Outcomes of the transactions of a partition, computed from all its batches."""

from typing import NamedTuple

from engine.api import Outcome
from engine.tests.crash_states.timeline import Content

PRODUCERS = (10, 11)  # ids of the transactional producers


class Decided(NamedTuple):
    """Offsets of records that read_committed readers get, all below the last stable offset."""

    offsets: frozenset[int]
    stable_offset: int


def decided(content: Content, end_offset: int) -> Decided:
    """The committed records of a log that ends at `end_offset`."""
    open_from: dict[int, int] = {}
    aborted = []
    for batch in content:
        if batch.outcome is not None:
            first_offset = open_from.pop(batch.producer_id, None)
            if first_offset is not None and batch.outcome is Outcome.ABORT:
                aborted.append((batch.producer_id, first_offset, batch.base_offset))
        elif batch.producer_id in PRODUCERS:
            open_from.setdefault(batch.producer_id, batch.base_offset)
    stable_offset = min([end_offset, *open_from.values()])
    offsets = [
        offset
        for batch in content
        if batch.outcome is None and batch.next_offset <= stable_offset
        for offset in range(batch.base_offset, batch.next_offset)
        if not any(producer_id == batch.producer_id and first <= offset < last for producer_id, first, last in aborted)
    ]
    return Decided(frozenset(offsets), stable_offset)
