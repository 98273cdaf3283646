"""Checks of leader epochs: the caller's epoch is older or newer, or its log diverges from this one. Pure."""

from engine.api import NO_EPOCH, EpochEnd
from engine.errors import FencedLeaderEpoch, OffsetOutOfRange, UnknownLeaderEpoch
from engine.logs.recovery.epochs import EpochHistory


def check_leader_epoch(asked: int, leader_epoch: int) -> None:
    """Raise FencedLeaderEpoch or UnknownLeaderEpoch unless the epochs are equal. NO_EPOCH is not checked."""
    if asked in (leader_epoch, NO_EPOCH):
        return
    message = f"leader epoch is {leader_epoch}, not {asked}"
    if asked < leader_epoch:
        raise FencedLeaderEpoch(message)
    raise UnknownLeaderEpoch(message)


def check_newer(asked: int, epochs: EpochHistory, leader_epoch: int, name: str) -> None:
    """Raise FencedLeaderEpoch unless a leader may begin in that epoch: no batch of an earlier leadership has it (RULES
    L3)."""
    known = epochs.latest
    if asked < known or (asked == known != leader_epoch):
        raise FencedLeaderEpoch(f"epoch {asked} of {name} is not newer than {known}")


def diverging_end(start_offset: int, end: EpochEnd, offset: int, last_epoch: int) -> EpochEnd | None:
    """Check whether a follower's log, which ends at `offset` with a batch of `last_epoch`, diverges from this one.

    Returns the end of the last common epoch (KIP-595's diverging epoch); None: no divergence. `end`: the end of
    `last_epoch`, or of the greatest epoch below it, in this log. Raises OffsetOutOfRange.
    """
    if end.leader_epoch == NO_EPOCH or offset < start_offset:
        raise OffsetOutOfRange(
            f"offset {offset} of epoch {last_epoch} is below {start_offset}, or of no epoch known here"
        )
    return None if end.leader_epoch == last_epoch and end.end_offset >= offset else end
