"""Record validation and recompression: appends wait for a worker before they go to a commit batch.

They wait here and not within a commit batch, so that a topic pays for its own codec, and not all topics of its log dir.
The order stays: behind a waiting append, all others of its partition wait, too. The memory is bounded: a job begins
when the output of the job before the last one is written, so that at most two jobs' output is in memory.
"""

from collections import Counter, deque
from collections.abc import Sequence
from functools import partial

import trio

from engine.batches.batch import parse_header
from engine.batches.record_checks import Validation
from engine.commit.appends import Append, Owner
from engine.commit.backpressure import QueueBudget
from engine.commit.group_committer import GroupCommitter
from engine.errors import EngineError
from engine.files.io_workers import WorkerPool

JOB_MAX_BYTES = 1024 * 1024  # of the input, and of the output; the last batch may be larger


class RecordValidator:
    """Queue of appends in front of the group committer of a log dir.

    `number`: its worker of the pool. `held`: number of waiting appends by partition.
    """

    __slots__ = ("_budget", "_committer", "_idle", "_number", "_pool", "_waiting", "_work", "held")

    def __init__(self, committer: GroupCommitter, pool: WorkerPool, number: int, budget: QueueBudget) -> None:
        self._committer = committer
        self._pool = pool
        self._number = number
        self._budget = budget
        self._waiting: deque[Append] = deque()
        self._work = trio.lowlevel.ParkingLot()
        self._idle = trio.lowlevel.ParkingLot()
        self.held: Counter[Owner] = Counter()

    def enqueue(self, append: Append) -> None:
        """Queue an append that needs validation, or follows one of its partition; it has taken its room already."""
        self._waiting.append(append)
        self.held[append.owner] += 1
        self._work.unpark()

    async def drained(self) -> None:
        """Return when each append is refused, or passed on to the group committer."""
        while self._waiting:
            await self._idle.park()

    async def serve(self) -> None:
        """Run jobs until cancelled."""
        before: Append | None = None
        while True:
            while not self._waiting:
                self._idle.unpark_all()
                await self._work.park()
            last = await self._run_job()
            if before is not None:
                await self._committer.released(before)
            before = last

    async def _run_job(self) -> Append:
        """Run one job for the first appends, pass them on, and return the last of them."""
        head, size_bytes = [], 0
        for append in self._waiting:
            head.append(append.validation)
            size_bytes += append.size_bytes
            if size_bytes >= JOB_MAX_BYTES:
                break
        for outcome in await self._pool.run(self._number, partial(_outcomes, head)):
            append = self._waiting.popleft()
            self._pass_on(append, outcome)
        return append

    def _pass_on(self, append: Append, outcome: memoryview | EngineError | None) -> None:
        append.validation = None
        self.held[append.owner] -= 1
        if not self.held[append.owner]:
            del self.held[append.owner]
        if isinstance(outcome, EngineError):
            self._budget.give_back(append.size_bytes)
            append.settle(outcome)
            return
        if outcome is not None:
            self._budget.give_back(append.size_bytes - len(outcome))
            append.records, append.header, append.size_bytes = outcome, parse_header(outcome), len(outcome)
        self._committer.enqueue(append)


def _outcomes(validations: Sequence[Validation | None]) -> list[memoryview | EngineError | None]:
    """Run validations until the output reaches JOB_MAX_BYTES; returns the new batch, the error, or None for each."""
    found: list[memoryview | EngineError | None] = []
    size_bytes = 0
    for validate in validations:
        outcome: memoryview | EngineError | None = None
        try:
            if validate is not None:
                outcome = validate()
        except EngineError as error:
            outcome = error
        found.append(outcome)
        if isinstance(outcome, memoryview):
            size_bytes += len(outcome)
            if size_bytes >= JOB_MAX_BYTES:
                break
    return found
