"""Messages between follower and leader: a partition's part of a Fetch, and of the response.

Broker ids, broker epochs and fetch sessions are handled by the callers. A follower does not send the next Fetch before
the fetched records are durable, so the offset in a Fetch is its durable end (RULES K16). A follower with a damaged log
asks for a lower offset.
"""

from typing import NamedTuple

from engine.api import EpochEnd
from engine.compaction_horizon import NOT_COMPACTED, Compacted
from engine.errors import EngineError, NotLeaderOrFollower
from engine.logs.recovery.epochs import EpochHistory


class LogState(NamedTuple):
    """State of a replica's log for the state machines of replication.

    `end_offset`: written end; `durable_offset`: durable end (RULES L1). `sealed_to`: end of the sealed segments;
    `local_start_offset`: segments below it have no files. `replaced_to`: all records that made compaction remove others
    are below it, as the leader of epoch `replaced_in` has told. `is_unused`: it has neither records nor producers.
    `is_damaged`: it lacks the records behind the damage.
    """

    epochs: EpochHistory
    start_offset: int
    end_offset: int
    durable_offset: int
    high_watermark: int
    sealed_to: int = 0
    local_start_offset: int = 0
    replaced_to: int = 0
    replaced_in: int = 0
    has_open_transactions: bool = False
    is_unused: bool = False
    is_damaged: bool = False


class ReplicaEnd(NamedTuple):
    """The end of a replica's log: the leader epoch of its last record, the log end, and the high watermark."""

    last_epoch: int
    end_offset: int
    high_watermark: int


def replica_end(log: LogState) -> ReplicaEnd:
    """The end of a log. Raises NotLeaderOrFollower if the log is damaged, or not durable up to its end."""
    if log.is_damaged or log.durable_offset < log.end_offset:
        raise NotLeaderOrFollower("the end of the log is damaged, or not durable yet")
    return ReplicaEnd(log.epochs.latest, log.end_offset, log.high_watermark)


class FollowerFetch(NamedTuple):
    """A follower's Fetch of a partition. `last_epoch`: leader epoch of its last record; -1: it has no record."""

    leader_epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    log_start_offset: int


class LeaderReply(NamedTuple):
    """A leader's response to a Fetch of a partition, without the records. `diverging`: where the logs diverge;
    `compacted`: traces of compaction, as in `ReadResult`."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    error: EngineError | None = None
    compacted: Compacted = NOT_COMPACTED
