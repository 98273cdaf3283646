"""What the engine can refuse, in its own words.

The façade maps each class to a Kafka error code in one table; the engine knows no codes. A class stands for one
answer: two situations a client must tell apart never share a class.
"""

from collections.abc import Sequence
from typing import NamedTuple


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class NotLoaded(Exception):
    """No answer: what is asked for is not in memory, or not checked yet. Await `load` and read again."""


class ColdNotLoaded(NotLoaded):
    """The same, of what only a remote tier has: `load` may take long, and may not work for a while."""


# A batch that is not accepted. Nothing of it was appended.
class CorruptMessage(EngineError):
    """CRC or lengths of a batch lie; or stored bytes at this offset are damaged and are never served."""


class UnreadableMessage(CorruptMessage):
    """The disk cannot read where the batch lies."""


class InvalidRecord(EngineError):
    """Well-formed bytes that mean something not allowed: old magic, wrong count, control batch from a client."""


class RecordError(NamedTuple):
    """A record, by its place in the batch, and what is wrong with it."""

    number: int
    message: str


class RecordsRefused(EngineError):
    """Records that mean something not allowed in this topic: without a key in a compacted one."""

    def __init__(self, message: str, errors: Sequence[RecordError]) -> None:
        super().__init__(message)
        self.errors = errors


class InvalidTimestamp(EngineError):
    """A timestamp of the batch header lies outside the topic's limits."""


class InvalidTxnState(EngineError):
    """A batch outside of the transaction that its producer has open, or one that may not begin a transaction."""


class OutOfOrderSequence(EngineError):
    """Batches of this producer before this one are missing."""


class InvalidProducerEpoch(EngineError):
    """The producer has a newer epoch."""


class TransactionCoordinatorFenced(EngineError):
    """The end of a transaction, said by a coordinator after a newer one had spoken."""


class MessageTooLarge(EngineError):
    """The batch is larger than max.message.bytes."""


class RecordListTooLarge(EngineError):
    """The batch is larger than a segment may be."""


class UnsupportedCompressionType(EngineError):
    """A known codec this request version may not use."""


class NotEnoughReplicas(EngineError):
    """acks=all while the in-sync replicas are fewer than min.insync.replicas: nothing was appended."""


class NotEnoughReplicasAfterAppend(EngineError):
    """As NotEnoughReplicas, but the batch is in the leader's log."""


class Overloaded(EngineError):
    """The append queue is full. Nothing was appended; the client may retry."""


# A request to the wrong place or about a range that is not there.
class OffsetOutOfRange(EngineError):
    """Offset below the log start, or above the log end."""


class UnknownPartition(EngineError):
    """This broker holds no such partition."""


class NotLeaderOrFollower(EngineError):
    """The partition is not (or no longer) led here."""


class FencedLeaderEpoch(EngineError):
    """The caller knows an older leader epoch."""


class UnknownLeaderEpoch(EngineError):
    """The caller knows a newer leader epoch."""


class OffsetNotAvailable(EngineError):
    """A leader that has just begun does not know yet how far its predecessor's high watermark was (KIP-207)."""


class StaleBrokerEpoch(EngineError):
    """The caller is a broker in a life that is over, or in one that is not known here yet."""


class StorageError(EngineError):
    """The log cannot take part: its log dir is offline, or its files are damaged and it takes no appends; or a remote
    tier has lost what only it had."""


class LogsContradict(StorageError):
    """A follower's log and its leader's cannot both be right: the follower's stays closed in that leader epoch."""


class TierUnreachable(StorageError):
    """What only a remote tier has cannot be had from there now. Nothing is lost: try again, later."""


# Start-up.
class StoreRefused(EngineError):
    """A log dir must not be used by this broker; the message is the one clear line for the operator."""
