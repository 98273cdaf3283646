"""What the opening of a log has found out about it: whether it may lack something that it had. Pure."""

from typing import NamedTuple

from engine.logs.log import Log
from engine.logs.recovery import LastKnown


class Opening(NamedTuple):
    """Of a log that ended with `last_epoch` at `end_offset`.

    `is_short`: it had counted as further than that, so what the disk had acknowledged is gone. `is_clean`: the process
    before has let go of it in order.
    """

    last_epoch: int
    end_offset: int
    is_damaged: bool
    is_short: bool
    is_clean: bool


def opening_of(log: Log, last_known: LastKnown) -> Opening:
    """Before anything is appended to it."""
    end_offset = log.end.offset
    is_short = end_offset < last_known.checkpoint.high_watermark
    is_clean = last_known.is_clean or last_known.was_let_go
    return Opening(log.epochs.latest, end_offset, log.damaged_from is not None, is_short, is_clean)
