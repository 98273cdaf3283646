"""What a follower asks its leader for, and what becomes of the answer. Pure: `FetchState` decides, a shell does.

Of a partition there is one question at a time: what was answered is appended and durable before the next one
(RULES K16). Where the logs part is the leader's to say, by epochs (KIP-101, KIP-279, and in Fetch since KIP-595): a
follower cuts what its leader has not got, and never goes by its own high watermark. What was known to be on all
replicas in sync is cut for one reason only, that an unclean election gave it up (RULES K18).
"""

from typing import NamedTuple

from engine.api import NO_EPOCH, EpochEnd
from engine.compacted import UNTOLD, Compacted
from engine.errors import EngineError, FencedLeaderEpoch, OffsetOutOfRange
from engine.replication.exchange import Answer, Asked, LogState


class Take(NamedTuple):
    """Append what came, if anything, and make it durable. Then the high watermark is the leader's as far as this log
    has it, and the log start the leader's up to there (RULES K20)."""

    high_watermark: int
    log_start_offset: int


class Cut(NamedTuple):
    """Forget the batches that hold this offset, and all behind it."""

    offset: int
    below_sealed: bool


class Begin(NamedTuple):
    """Forget everything, and go on at this offset."""

    offset: int


class AskEnds(NamedTuple):
    """Ask the leader, in this epoch, where its log starts and ends, for `told`."""


class Hold(NamedTuple):
    """Try again in a while, or not before there is other metadata: the same question gets the same answer."""

    awaits_news: bool


class Fail(NamedTuple):
    """This log and the leader's cannot both be right: close the partition, and keep what it has."""

    reason: str


Action = Take | Cut | Begin | AskEnds | Hold | Fail


class FetchState:
    """Of one partition, in one epoch of its leader.

    `unclean_since`: the epoch of the partition's last unclean election. Every action is followed by `done`, once it is
    carried out; nothing is asked in between.
    """

    __slots__ = ("_asked", "_copied_since", "_is_busy", "_open_since", "_unclean_since", "epoch")

    def __init__(self, epoch: int, log: LogState, unclean_since: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self._unclean_since = unclean_since
        self._asked: Asked | None = None
        self._is_busy = False
        self._copied_since = UNTOLD  # all that is here came from this leader's log behind that swap
        self._open_since = UNTOLD  # and that is of a transaction which is open here
        log.epochs.drop_from(log.end_offset)  # the last epoch is that of the last record (KAFKA-10706)

    def ask(self, log: LogState) -> Asked | None:
        """The next question; None: not now. What another epoch has brought may have to become durable first."""
        if self._is_busy or self._asked is not None or log.durable_offset < log.end_offset:
            return None
        last_epoch = log.epochs.latest
        self._asked = Asked(self.epoch, _asked_offset(log), last_epoch, log.high_watermark, log.start_offset)
        return self._asked

    def stands_by(self, asked: Asked) -> bool:
        """Whether that is asked, and not answered."""
        return asked == self._asked

    def lost(self, asked: Asked) -> None:
        """No answer will come. If one does, it counts as the answer to the same question asked again."""
        if asked == self._asked:
            self._asked = None

    def answered(self, asked: Asked, answer: Answer, log: LogState) -> Action | None:
        """What to do about it; None: it answers a question of another epoch, or one that was answered (RULES K15)."""
        if asked != self._asked:
            return None
        self._asked, self._is_busy = None, True
        if answer.error is not None:
            return _refused(answer.error)
        if answer.diverging is not None:
            return self._cut(log, _parting(log, answer.diverging), answer.log_start_offset)
        if log.is_damaged:  # it takes no appends, and nobody counts on it (RULES L5, K8)
            return Begin(answer.log_start_offset)
        if self._lacks_what_counts(log) or self._lacks_decisions(answer.compacted, log):
            return Begin(answer.log_start_offset)
        return Take(answer.high_watermark, answer.log_start_offset)

    def told(self, start_offset: int, end_offset: int, log: LogState) -> Action:
        """Where the leader's log starts and ends, after AskEnds."""
        if end_offset < log.end_offset:
            return self._cut(log, end_offset, start_offset)
        if log.is_damaged:
            return Begin(start_offset)
        return Begin(start_offset) if start_offset > log.end_offset else Hold(awaits_news=False)

    def done(self) -> None:
        """The last action is carried out; of Hold, it is time."""
        self._is_busy = False

    def _cut(self, log: LogState, offset: int, leaders_start: int) -> Action:
        if offset >= log.end_offset:
            return Fail(f"the leader's log parts from this one at {offset}, where this one has ended")
        kept_to = max(log.high_watermark, log.sealed_to)
        if offset < kept_to and log.epochs.epoch_of(kept_to - 1) >= self._unclean_since:
            return Fail(f"the leader's log parts from this one at {offset}; below {kept_to} it must not")
        if offset < log.start_offset:
            return Begin(offset)
        if offset < log.local_start_offset:  # what only the tier has cannot be cut, and the leader has what is below
            return Begin(leaders_start)
        if offset < log.replaced_to and log.epochs.epoch_of(offset) < self._unclean_since:
            return Begin(leaders_start)  # what is given up may have taken the place of what counts again
        if log.is_damaged:
            return Begin(leaders_start)
        self._open_since = UNTOLD  # it may cut a marker
        return Cut(offset, offset < log.sealed_to)

    def _lacks_what_counts(self, log: LogState) -> bool:
        """Whether what took the place of something here is behind the end of this log, and may be what an unclean
        election has given up since (RULES K18)."""
        return log.end_offset < log.replaced_to and log.replaced_in < self._unclean_since

    def _lacks_decisions(self, told: Compacted, log: LogState) -> bool:
        """Whether what had decided about something here is gone from the leader's log behind this one's end, so that
        it would stay deleted there alone, or undecided here for ever (RULES K19).

        Not, if all that is here, or of a marker all that is open, came from that very log when nothing was left there
        that those had decided about.
        """
        if log.is_unused:
            self._copied_since = max(0, told.swaps)
        if not log.has_open_transactions:  # those that begin from now on come from there
            self._open_since = max(0, told.swaps, self._open_since)
        if told.dropped.tombstones_to > log.end_offset and told.gone_by > self._copied_since:
            return True
        is_undecided = log.has_open_transactions and told.dropped.markers_to > log.end_offset
        return is_undecided and told.gone_by > self._open_since


def _asked_offset(log: LogState) -> int:
    """The end of the log; of a damaged one an offset below the leader's high watermark. What it has may be all that
    counts, but it takes no appends: its leader must not have it in the ISR before it has begun anew."""
    if not log.is_damaged:
        return log.end_offset
    return max(log.start_offset, min(log.end_offset, log.high_watermark) - 1)


def _parting(log: LogState, diverging: EpochEnd) -> int:
    """Of the greatest epoch that the leader has, up to this log's last one, both have what is below both ends; if this
    log has not got that epoch, only what is below its next smaller one's end may be in both (KIP-279)."""
    own = log.epochs.end_of(diverging.leader_epoch, log.end_offset, log.start_offset)
    if own.leader_epoch == NO_EPOCH:
        return log.start_offset
    return min(own.end_offset, diverging.end_offset)


def _refused(error: EngineError) -> Action:
    """All but a fenced epoch may pass by itself: a leader may learn later than its followers who it is."""
    if isinstance(error, OffsetOutOfRange):
        return AskEnds()
    return Hold(awaits_news=isinstance(error, FencedLeaderEpoch))
