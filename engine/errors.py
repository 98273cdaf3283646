"""Errors of the engine.

One table of the server maps each class to a Kafka error code; the engine knows no codes. Two situations that a client
must tell apart never share a class.
"""

from collections.abc import Sequence
from typing import NamedTuple


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class NotLoaded(Exception):
    """The bytes or indexes of a read are not in memory, or not checked yet. Await `load` and read again."""


class ColdNotLoaded(NotLoaded):
    """NotLoaded for bytes that only the remote tier has: `load` may take long, and may fail for a while."""


# A batch that is not accepted. Nothing of it was appended.
class CorruptMessage(EngineError):
    """CRC or lengths of a batch are wrong; or stored bytes at this offset are damaged and are never served."""


class UnreadableMessage(CorruptMessage):
    """The disk cannot read the bytes of the batch."""


class DecompressedTooLarge(CorruptMessage):
    """The records of a batch are larger than the limit when they are decompressed."""


class InvalidRecord(EngineError):
    """A well-formed batch that is not allowed: old magic, wrong record count, control batch from a client."""


class RecordError(NamedTuple):
    """The error of one record. `number`: its place in the batch, from 0."""

    number: int
    message: str


class RecordsRefused(EngineError):
    """Records that this topic does not allow, such as records without a key in a compacted topic."""

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
    """A marker from an older epoch of the transaction coordinator than a marker before it."""


class MessageTooLarge(EngineError):
    """The batch is larger than max.message.bytes."""


class RecordListTooLarge(EngineError):
    """The batch is larger than a segment may be."""


class UnsupportedCompressionType(EngineError):
    """A known codec that this version of the request may not use."""


class NotEnoughReplicas(EngineError):
    """acks=all while the in-sync replicas are fewer than min.insync.replicas: nothing was appended."""


class NotEnoughReplicasAfterAppend(EngineError):
    """acks=all while the in-sync replicas are too few, but the batch is in the leader's log."""


class Overloaded(EngineError):
    """The append queue is full. Nothing was appended; the client may retry."""


# A request to the wrong broker, or for a range that does not exist.
class OffsetOutOfRange(EngineError):
    """Offset below the log start, or above the log end."""


class UnknownPartition(EngineError):
    """The broker has no such partition."""


class NotLeaderOrFollower(EngineError):
    """The partition is not (or no longer) led here."""


class FencedLeaderEpoch(EngineError):
    """The caller knows an older leader epoch."""


class UnknownLeaderEpoch(EngineError):
    """The caller knows a newer leader epoch."""


class OffsetNotAvailable(EngineError):
    """A new leader whose high watermark may still be below that of its predecessor (KIP-207)."""


class StaleBrokerEpoch(EngineError):
    """The caller's broker epoch is an old one, or one that this broker does not know yet."""


class StorageError(EngineError):
    """The log cannot be used: its log dir is offline, its files are damaged so that it takes no appends, or the remote
    tier has lost a segment that only the tier had."""


class LogsContradict(StorageError):
    """The logs of follower and leader cannot both be right: the follower's log stays closed in that leader epoch."""


class TierUnreachable(StorageError):
    """The remote tier cannot be reached for a segment that only it has. Nothing is lost: try again later."""


# Start-up.
class StoreRefused(EngineError):
    """A log dir that this broker must not use; the message is one clear line for the operator."""
