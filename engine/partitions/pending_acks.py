"""Waiting appends: they wait for the high watermark, or for the batch that they are duplicates of."""

from collections import deque
from typing import NamedTuple

from engine.api import AppendResult, WaitingAppends
from engine.commit.appends import Append
from engine.errors import EngineError
from engine.replication.progress import Progress


class _Waiting(NamedTuple):
    """An append that is answered when the high watermark, or the durable end, reaches `end_offset`."""

    append: Append
    end_offset: int
    result: AppendResult
    since_s: float


class PendingAcks:
    """Waiting appends of one partition. It holds no records: the log has those of new batches and of duplicates."""

    __slots__ = ("_appends", "_duplicates", "_stopped")

    def __init__(self) -> None:
        self._appends: deque[_Waiting] = deque()  # of new batches, which come in the order of offsets
        self._duplicates: list[_Waiting] = []
        self._stopped = 0  # appends that have stopped waiting since the last sweep

    def __len__(self) -> int:
        return len(self._appends) + len(self._duplicates)

    @property
    def waiting(self) -> WaitingAppends:
        """Statistics of the appends whose requests still wait for a reply."""
        found = [one for one in (*self._appends, *self._duplicates) if one.append.wants_all]
        if not found:
            return WaitingAppends()
        size_bytes = sum(one.append.size_bytes for one in found)
        return WaitingAppends(len(found), size_bytes, min(one.since_s for one in found))

    def add(self, append: Append, result: AppendResult, now_s: float) -> None:
        """Add an append that is durable here, and waits for the high watermark."""
        append.release()
        self._appends.append(_Waiting(append, result.last_offset + 1, result, now_s))

    def add_duplicate(self, append: Append, result: AppendResult, now_s: float) -> None:
        """Add a duplicate, which waits until the batch in the log has the acks that the duplicate requested."""
        append.release()
        self._duplicates.append(_Waiting(append, result.last_offset + 1, result, now_s))

    def stopped_waiting(self, progress: Progress) -> None:
        """Count an append that has stopped waiting. When these are half of all, settle and remove them, so that each
        append is visited twice on average."""
        self._stopped += 1
        if self._stopped * 2 > len(self):
            self._stopped = 0
            left, self._appends = self._appends, deque()
            for one in left:
                if one.append.wants_all:
                    self._appends.append(one)
                else:
                    one.append.settle(one.result)
            self._settle_duplicates(progress)

    def settle_reached(self, progress: Progress) -> None:
        """Answer the appends that `progress` has reached."""
        appends, high_watermark = self._appends, progress.high_watermark.offset
        while appends and appends[0].end_offset <= high_watermark:
            waiting = appends.popleft()
            waiting.append.settle(waiting.result)
        if self._duplicates:
            self._settle_duplicates(progress)

    def _settle_duplicates(self, progress: Progress) -> None:
        waiting, self._duplicates = self._duplicates, []
        for one in waiting:
            if one.end_offset <= acked_to(progress, one.append):
                one.append.settle(one.result)
            else:
                self._duplicates.append(one)

    def fail(self, error: EngineError, from_offset: int = 0) -> None:
        """Fail the appends whose batches end above `from_offset`."""
        failed = [one for one in (*self._appends, *self._duplicates) if one.end_offset > from_offset]
        self._appends = deque(one for one in self._appends if one.end_offset <= from_offset)
        self._duplicates = [one for one in self._duplicates if one.end_offset <= from_offset]
        for one in failed:
            one.append.settle(error)


def acked_to(progress: Progress, append: Append) -> int:
    """The offset below which an append with these acks is answered: high watermark or durable end."""
    return progress.high_watermark.offset if append.wants_all else progress.durable.offset
