"""Fetches of a follower, and the action upon each answer. Pure: `FetchState` decides, the fetcher acts.

A partition has one Fetch at a time: the fetched records are durable before the next one (RULES K16). The leader tells
where the logs diverge, by leader epochs (KIP-101, KIP-279, and in Fetch since KIP-595). A follower truncates the
batches that its leader lacks, and does not truncate to its own high watermark. It truncates records below its high
watermark only if an unclean election gave them up (RULES K18).
"""

from typing import NamedTuple

from engine.api import NO_EPOCH, EpochEnd
from engine.compaction_horizon import SWAPS_UNKNOWN, Compacted
from engine.errors import EngineError, FencedLeaderEpoch, OffsetOutOfRange
from engine.replication.exchange import FollowerFetch, LeaderReply, LogState


class Append(NamedTuple):
    """Append the fetched records, if any, and make them durable. Then take over the leader's high watermark, up to this
    log's end, and the leader's log start, up to that (RULES K20)."""

    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Truncate the log before the batch that holds this offset."""

    offset: int
    below_sealed: bool


class Restart(NamedTuple):
    """Discard the log, and re-replicate from scratch from this offset on."""

    offset: int


class AskEnds(NamedTuple):
    """Ask the leader, in this epoch, for its log start and log end, then call `ends_received`."""


class Backoff(NamedTuple):
    """Try again after a backoff. `awaits_news`: not before the metadata change, since the answer would be the same."""

    awaits_news: bool


class Fail(NamedTuple):
    """Close the partition and keep its log: this log and the leader's cannot both be right."""

    reason: str


Action = Append | Truncate | Restart | AskEnds | Backoff | Fail


class FetchState:
    """State of a follower's fetches of one partition, in one leader epoch.

    `unclean_since`: leader epoch of the partition's last unclean election. The caller carries each action out, then
    calls `done`; there is no Fetch in between.
    """

    __slots__ = ("_asked", "_copied_since", "_is_busy", "_open_since", "_unclean_since", "epoch")

    def __init__(self, epoch: int, log: LogState, unclean_since: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self._unclean_since = unclean_since
        self._asked: FollowerFetch | None = None
        self._is_busy = False
        self._copied_since = SWAPS_UNKNOWN  # all records here came from this leader's log after that swap
        self._open_since = SWAPS_UNKNOWN  # the same for all records of transactions that are open here
        log.epochs.drop_from(log.end_offset)  # the last epoch is that of the last record (KAFKA-10706)

    def ask(self, log: LogState) -> FollowerFetch | None:
        """The next Fetch; None: not now. Records fetched in an earlier epoch may have to become durable first."""
        if self._is_busy or self._asked is not None or log.durable_offset < log.end_offset:
            return None
        last_epoch = log.epochs.latest
        self._asked = FollowerFetch(self.epoch, _asked_offset(log), last_epoch, log.high_watermark, log.start_offset)
        return self._asked

    def is_waiting_for(self, asked: FollowerFetch) -> bool:
        """Whether this Fetch is the one that waits for its answer."""
        return asked == self._asked

    def lost(self, asked: FollowerFetch) -> None:
        """Note that no answer is expected any more. If one comes, it counts as the answer to the same Fetch sent
        again."""
        if asked == self._asked:
            self._asked = None

    def answered(self, asked: FollowerFetch, answer: LeaderReply, log: LogState) -> Action | None:
        """The action upon an answer; None: it answers a Fetch of another epoch, or an answered one (RULES K15)."""
        if asked != self._asked:
            return None
        self._asked, self._is_busy = None, True
        if answer.error is not None:
            return _refused(answer.error)
        if answer.diverging is not None:
            return self._truncate(log, _truncation_offset(log, answer.diverging), answer.log_start_offset)
        if log.is_damaged:  # it takes no appends, and is not in the ISR (RULES L5, K8)
            return Restart(answer.log_start_offset)
        if self._lacks_replacements(log) or self._lacks_decisions(answer.compacted, log):
            return Restart(answer.log_start_offset)
        return Append(answer.high_watermark, answer.log_start_offset)

    def ends_received(self, start_offset: int, end_offset: int, log: LogState) -> Action:
        """The action after AskEnds, by the start and end of the leader's log."""
        if end_offset < log.end_offset:
            return self._truncate(log, end_offset, start_offset)
        if log.is_damaged:
            return Restart(start_offset)
        return Restart(start_offset) if start_offset > log.end_offset else Backoff(awaits_news=False)

    def done(self) -> None:
        """Note that the last action is carried out, or that the backoff of Backoff is over."""
        self._is_busy = False

    def _truncate(self, log: LogState, offset: int, leaders_start: int) -> Action:
        if offset >= log.end_offset:
            return Fail(f"the leader's log parts from this one at {offset}, where this one has ended")
        kept_to = max(log.high_watermark, log.sealed_to)
        if offset < kept_to and log.epochs.epoch_of(kept_to - 1) >= self._unclean_since:
            return Fail(f"the leader's log parts from this one at {offset}; below {kept_to} it must not")
        if offset < log.start_offset:
            return Restart(offset)
        if offset < log.local_start_offset:  # segments that only the tier has cannot be truncated; the leader has them
            return Restart(leaders_start)
        if offset < log.replaced_to and log.epochs.epoch_of(offset) < self._unclean_since:
            return Restart(leaders_start)  # given up records may have replaced records that count again
        if log.is_damaged:
            return Restart(leaders_start)
        self._open_since = SWAPS_UNKNOWN  # it may truncate a marker
        return Truncate(offset, offset < log.sealed_to)

    def _lacks_replacements(self, log: LogState) -> bool:
        """Whether records behind this log's end have replaced records that it lacks, and an unclean election may have
        given them up since (RULES K18)."""
        return log.end_offset < log.replaced_to and log.replaced_in < self._unclean_since

    def _lacks_decisions(self, compacted: Compacted, log: LogState) -> bool:
        """Whether the leader's log has lost tombstones or markers behind this log's end that decide about records here.

        Then a key would stay deleted on the leader alone, or a transaction would stay open here forever (RULES K19).
        False if all records here (for markers: all records of open transactions) came from that same log, after a swap
        that left no record there that the missing ones decide about.
        """
        if log.is_unused:
            self._copied_since = max(0, compacted.swaps)
        if not log.has_open_transactions:  # transactions that begin from now on come from that log
            self._open_since = max(0, compacted.swaps, self._open_since)
        if compacted.dropped.tombstones_to > log.end_offset and compacted.gone_by > self._copied_since:
            return True
        is_undecided = log.has_open_transactions and compacted.dropped.markers_to > log.end_offset
        return is_undecided and compacted.gone_by > self._open_since


def _asked_offset(log: LogState) -> int:
    """The offset to fetch: the log end, or for a damaged log an offset below the leader's high watermark.

    A damaged log takes no appends. Even if it has all acknowledged records, its replica must not enter the ISR before
    it has re-replicated from scratch.
    """
    if not log.is_damaged:
        return log.end_offset
    return max(log.start_offset, min(log.end_offset, log.high_watermark) - 1)


def _truncation_offset(log: LogState, diverging: EpochEnd) -> int:
    """The offset to truncate to (KIP-279).

    `diverging`: the end, in the leader's log, of its greatest epoch up to this log's last one. Records below both ends
    of that epoch are equal. If this log lacks the epoch, its next smaller one counts.
    """
    own = log.epochs.end_of(diverging.leader_epoch, log.end_offset, log.start_offset)
    if own.leader_epoch == NO_EPOCH:
        return log.start_offset
    return min(own.end_offset, diverging.end_offset)


def _refused(error: EngineError) -> Action:
    """The action upon an error. Errors except FencedLeaderEpoch may pass: a leader may learn its role later than its
    followers."""
    if isinstance(error, OffsetOutOfRange):
        return AskEnds()
    return Backoff(awaits_news=isinstance(error, FencedLeaderEpoch))
