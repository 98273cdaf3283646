"""Append queue of a partition: the way of its appends to the commit batches of the log dir.

An append goes there at once, after its transaction is verified, or after a worker has validated its records.
"""

from engine.api import Joining, Marker
from engine.commit.appends import Append, Owner
from engine.errors import EngineError, StorageError
from engine.partitions.state import PartitionState
from engine.partitions.txn_verification import TxnVerification, UnverifiedAppend


class AppendQueue:
    """Append queue of one partition. The state for verifications is created with the first transactional append, since
    most partitions have none."""

    __slots__ = ("_log", "_log_dir", "_owner", "_state", "_verification")

    def __init__(self, owner: Owner, state: PartitionState) -> None:
        self._owner = owner
        self._state = state
        self._log = state.log
        self._log_dir = state.log_dir
        self._verification: TxnVerification | None = None

    def queue(self, append: Append) -> Append:
        """Queue the append for the next commit batch. Raises StorageError, Overloaded."""
        self._take_room(append)
        self._enqueue(append)
        return append

    def join(self, append: UnverifiedAppend, joining: Joining) -> Append:
        """Queue the append when its transaction is verified. Raises InvalidProducerEpoch, StorageError, Overloaded."""
        append.join(joining, self._log.producers)
        self._take_room(append, is_waiting=True)
        if self._verification is None:
            self._verification = TxnVerification(self._joined, self._turn_away)
        self._verification.submit(append)
        return append

    def ended(self, marker: Marker) -> None:
        """Note that a marker goes to the log: verifications before it may become void."""
        if self._verification is not None:
            self._verification.ended(marker)

    def _take_room(self, append: Append, is_waiting: bool = False) -> None:
        log_dir = self._log_dir
        try:
            if log_dir.is_nearly_full:
                raise StorageError(f"{log_dir.disk.path} is nearly full (disk.reject.ratio)")
            if is_waiting:
                log_dir.commit_log.budget.take_waiting(append.size_bytes)
            else:
                log_dir.commit_log.budget.take(append.size_bytes)
        except EngineError:
            self._log.producers.turn_away(append.header)
            raise

    def _enqueue(self, append: Append) -> None:
        log_dir = self._log_dir
        if append.validation is None and self._owner not in log_dir.record_validator.held:
            log_dir.commit_log.committer.enqueue(append)
        else:
            log_dir.record_validator.enqueue(append)

    def _joined(self, append: UnverifiedAppend) -> None:
        """Queue an append whose transaction is verified, if the partition still takes appends."""
        error = self._state.refusal()
        if error is None:
            self._log_dir.commit_log.budget.queue_waiting(append.size_bytes)
            self._enqueue(append)
        else:
            self._turn_away(append, error)

    def _turn_away(self, append: UnverifiedAppend, error: EngineError) -> None:
        """Refuse a waiting append; the producer may send it again."""
        self._log_dir.commit_log.budget.give_waiting_back(append.size_bytes)
        self._log.producers.turn_away(append.header)
        append.settle(error)
