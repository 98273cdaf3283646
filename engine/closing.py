"""An orderly stop of the log dirs, each by itself: a disk that hangs does not keep the others from their clean-shutdown
markers.

The process does not wait for such a disk forever. It exits when its time to stop is over, and leaves that log dir as
after a crash.
"""

from collections.abc import Callable, Sequence

import trio

from engine.compaction.cleaner import Cleaner
from engine.errors import EngineError
from engine.log_dirs.log_dir import LogDir

LATE_AFTER_S = 2.0


class Closing:
    """Stops and closes log dirs.

    `is_served`: their background tasks run. `on_problem`: called with a message for each log dir that is late.
    """

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
        """Close all log dirs. The caller has cancelled the cleaner, and sends no more requests to the store."""
        self._open = {log_dir.disk.path for log_dir in log_dirs}
        for log_dir in log_dirs:
            log_dir.is_closing = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_late)
            async with trio.open_nursery() as closing:
                for log_dir in log_dirs:
                    closing.start_soon(self._close, log_dir)
            nursery.cancel_scope.cancel()

    async def _close(self, log_dir: LogDir) -> None:
        await log_dir.record_validator.drained()
        await log_dir.commit_log.committer.drained()
        log_dir.serving.cancel()
        for resident in log_dir.partitions.values():
            resident.close(self._refusal)
        if self._is_served:
            await log_dir.served.wait()  # a shielded background task would write after the clean-shutdown marker
        await self._cleaner.wait_until_unused(log_dir)
        await log_dir.shut_down()
        log_dir.disk.close()
        self._open.discard(log_dir.disk.path)

    async def _report_late(self) -> None:
        await trio.sleep(LATE_AFTER_S)
        for path in sorted(self._open):
            self._on_problem(
                f"{path} does not answer: unless it does before the broker exits, "
                "it is left without a clean-shutdown marker, and its logs are scanned at the next start"
            )
