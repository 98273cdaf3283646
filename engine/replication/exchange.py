"""What a follower and its leader say to each other about one partition: its part of a Fetch, and of the response.

Of the wire this knows nothing: who fetches, in which life, and sessions are the shell's. A follower does not send the
next Fetch before what it got is durable here, so the offset it asks for is its durable end (RULES K16), or less of a
log that is damaged.
"""

from typing import NamedTuple

from engine.api import EpochEnd
from engine.compacted import NOT_COMPACTED, Compacted
from engine.errors import EngineError, NotLeaderOrFollower
from engine.logs.epochs import EpochHistory


class LogState(NamedTuple):
    """A replica's log, as far as replication has to know it. `end_offset` is of what is written, `durable_offset` of
    what is durable (RULES L1); below `sealed_to` nothing changes any more, below `local_start_offset` are no files.
    What compaction took went because of records below `replaced_to`, as the leader of epoch `replaced_in` has said of
    where they come from. `is_unused`: no records, and nobody who produced. `is_damaged`: it ends before its time."""

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
    """The end of a replica's log: the epoch of its last record, the offset behind that, and the high watermark."""

    last_epoch: int
    end_offset: int
    high_watermark: int


def replica_end(log: LogState) -> ReplicaEnd:
    """Of a log that is whole and durable. Raises NotLeaderOrFollower."""
    if log.is_damaged or log.durable_offset < log.end_offset:
        raise NotLeaderOrFollower("the end of the log is damaged, or not durable yet")
    return ReplicaEnd(log.epochs.latest, log.end_offset, log.high_watermark)


class Asked(NamedTuple):
    """What a follower asks for. `last_epoch` is that of its last record; -1: it has none."""

    leader_epoch: int
    offset: int
    last_epoch: int
    high_watermark: int
    log_start_offset: int


class Answer(NamedTuple):
    """What a leader says, besides the records themselves. `diverging`: where its log and the follower's part;
    `compacted`: what its log lacks, as with what is read (`ReadResult`)."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    error: EngineError | None = None
    compacted: Compacted = NOT_COMPACTED
