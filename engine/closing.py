"""An orderly stop of the log dirs, each by itself: a disk that hangs keeps no other from its clean-shutdown marker.

The process does not wait for such a disk without a bound: it exits when its time to stop is over, and the log dir is
left as after a crash.
"""

from collections.abc import Callable, Sequence

import trio

from engine.compaction.cleaner import Cleaner
from engine.errors import EngineError
from engine.log_dirs.log_dir import LogDir

LATE_AFTER_S = 2.0


class Closing:
    """Stops and closes log dirs. `is_served`: their services run. `on_problem` is told which of them is late."""

    def __init__(
        self,
        cleaner: Cleaner,
        on_problem: Callable[[str], None],
        refusal: Callable[[], EngineError],
        *,
        is_served: bool,
    ) -> None:
        self._cleaner = cleaner
        self._on_problem = on_problem
        self._refusal = refusal
        self._is_served = is_served
        self._open: set[str] = set()

    async def close(self, log_dirs: Sequence[LogDir]) -> None:
        """Return when all are closed. The cleaner is being cancelled, and nothing is asked of the store any more."""
        self._open = {log_dir.disk.path for log_dir in log_dirs}
        for log_dir in log_dirs:
            log_dir.is_closing = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_of_late)
            async with trio.open_nursery() as closing:
                for log_dir in log_dirs:
                    closing.start_soon(self._close, log_dir)
            nursery.cancel_scope.cancel()

    async def _close(self, log_dir: LogDir) -> None:
        await log_dir.examiner.drained()
        await log_dir.commit_log.committer.drained()
        log_dir.serving.cancel()
        for resident in log_dir.partitions.values():
            resident.close(self._refusal)
        if self._is_served:
            await log_dir.served.wait()  # a keeper that is shielded would write behind the clean marker
        await self._cleaner.left(log_dir)
        await log_dir.shut_down()
        log_dir.disk.close()
        self._open.discard(log_dir.disk.path)

    async def _tell_of_late(self) -> None:
        await trio.sleep(LATE_AFTER_S)
        for path in sorted(self._open):
            self._on_problem(
                f"{path} does not answer: unless it does before the broker exits, "
                "it is left without a clean-shutdown marker, and its logs are scanned at the next start"
            )
