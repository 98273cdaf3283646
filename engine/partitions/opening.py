"""Findings of the opening of a log: whether it may lack records that it had. Pure."""

from typing import NamedTuple

from engine.logs.log import Log
from engine.logs.recovery.recovery import LastKnown


class Opening(NamedTuple):
    """Findings of an opened log that ends at `end_offset`, with `last_epoch` as its last leader epoch.

    `is_short`: its end is below the high watermark of the checkpoint, so synced records are missing. `is_clean`: the
    log was closed in order.
    """

    last_epoch: int
    end_offset: int
    is_damaged: bool
    is_short: bool
    is_clean: bool


def opening_of(log: Log, last_known: LastKnown) -> Opening:
    """The findings of a log that was just opened; call it before the first append."""
    end_offset = log.end.offset
    is_short = end_offset < last_known.checkpoint.high_watermark
    is_clean = last_known.is_clean or last_known.was_released
    return Opening(log.epochs.latest, end_offset, log.damaged_from is not None, is_short, is_clean)
