"""How appends of one partition get to the rounds of its log dir: at once, or when they may, or by way of a worker."""

from typing import Protocol

from engine.api import Joining, Marker
from engine.commit.appends import Append, Owner
from engine.errors import EngineError, StorageError
from engine.log_dirs.log_dir import LogDir
from engine.logs.log import Log
from engine.partitions.joining import JoiningAppend, JoiningAppends


class Receiving(Owner, Protocol):
    """A partition, as far as it takes appends."""

    def refusal(self) -> EngineError | None:
        """Why it takes none now, if it does not."""


class Intake:
    """There are many, and few have to do with transactions: what waits is made room for when it comes."""

    __slots__ = ("_joining", "_log", "_log_dir", "_owner")

    def __init__(self, owner: Receiving, log: Log, log_dir: LogDir) -> None:
        self._owner = owner
        self._log = log
        self._log_dir = log_dir
        self._joining: JoiningAppends | None = None

    def queue(self, append: Append) -> Append:
        """For the next round. Raises StorageError, Overloaded."""
        self._take_room(append)
        self._enqueue(append)
        return append

    def join(self, append: JoiningAppend, joining: Joining) -> Append:
        """Once its transaction has the partition. Raises InvalidProducerEpoch, StorageError, Overloaded."""
        append.join(joining, self._log.producers)
        self._take_room(append, is_waiting=True)
        if self._joining is None:
            self._joining = JoiningAppends(self._joined, self._turn_away)
        self._joining.submit(append)
        return append

    def ended(self, marker: Marker) -> None:
        """A marker goes to the log."""
        if self._joining is not None:
            self._joining.ended(marker)

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
        if append.examination is None and self._owner not in log_dir.examiner.held:
            log_dir.commit_log.committer.enqueue(append)
        else:
            log_dir.examiner.enqueue(append)

    def _joined(self, append: JoiningAppend) -> None:
        """It may be appended, as far as its transaction goes."""
        error = self._owner.refusal()
        if error is None:
            self._log_dir.commit_log.budget.queue_waiting(append.size_bytes)
            self._enqueue(append)
        else:
            self._turn_away(append, error)

    def _turn_away(self, append: JoiningAppend, error: EngineError) -> None:
        """It is not appended, and perhaps sent again."""
        self._log_dir.commit_log.budget.give_waiting_back(append.size_bytes)
        self._log.producers.turn_away(append.header)
        append.settle(error)
