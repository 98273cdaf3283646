"""The shell around `recovery`: asks brokers where logs end, and logs which elections wait, and for which brokers.

Each broker is asked for all partitions at once, and again after a pause as long as ends are missing; a broker that does
not answer holds up no other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from coordinator.controller.recovery import Recovery
from coordinator.event_log import EventLog, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from coordinator.api import BrokerInfo, ClusterImage
    from coordinator.cluster_events import ClusterCounters
    from coordinator.controller.recovery import ShortReplica
    from coordinator.ports import LogEndRequest, ReplicaEnds

ASK_TIMEOUT_S: Final = 5.0
ASK_AGAIN_S: Final = 0.1

SHORT: Final = Kind("replica short", "replicas short", "warning")

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class RecoveryQuestions:
    """The questions of one broker, which asks as long as it is the controller. `ends`: None if there are no other
    brokers."""

    def __init__(self, ends: ReplicaEnds | None, wait_s: float, counters: ClusterCounters) -> None:
        self.machine = Recovery(wait_s if ends is not None else 0.0)
        self._ends = ends
        self._counters = counters
        self._lines = EventLog(_log)
        self._asked: set[int] = set()  # brokers that have not answered yet
        self._has_waits = trio.Event()

    @property
    def remaining_s(self) -> float | None:
        """Seconds until partitions are to be looked at again; None: no election waits."""
        return self.machine.remaining_s(trio.current_time())

    def reset(self) -> None:
        """Forget all waits: this broker is not the controller, or begins to be."""
        self.machine.reset()
        self._counters.elections_waiting = 0

    def report_waits(self, image: ClusterImage) -> None:
        """Report the waits that have begun and ended, after partitions were looked at in that image."""
        events = self.machine.take_events()
        awaited = self.machine.awaited_brokers()
        self._counters.elections_waiting = len(self.machine)
        if events.started:
            back = [one for one in sorted(awaited) if one in image.brokers]
            wait_ms = round(1000 * self.machine.wait_s)
            _log.info(
                "election waits for replicas", count=events.started, brokers=sorted(awaited), back=back, wait_ms=wait_ms
            )
        self._lines.write(SHORT, events.short, _short_fields)
        self._counters.short_replicas += len(events.short)
        if events.ended:
            _log.info("election wait ended", count=events.ended, timed_out=events.timed_out)
        if awaited:
            self._has_waits.set()

    async def run(self, image: Callable[[], ClusterImage], wake: Callable[[], None]) -> None:
        """Asks while elections wait. `image`: the newest; `wake`: have partitions looked at."""
        if self._ends is None:
            return
        async with trio.open_nursery() as nursery:
            while True:
                newest = image()
                for broker_id, asked in self.machine.to_ask(newest).items():
                    if broker_id not in self._asked:
                        self._asked.add(broker_id)
                        nursery.start_soon(self._ask, self._ends, newest.members[broker_id], asked, wake)
                if not self.machine.awaited_brokers():
                    self._has_waits = trio.Event()
                    await self._has_waits.wait()
                else:
                    await trio.sleep(ASK_AGAIN_S)

    async def _ask(
        self, ends: ReplicaEnds, broker: BrokerInfo, asked: Sequence[LogEndRequest], wake: Callable[[], None]
    ) -> None:
        try:
            with trio.move_on_after(ASK_TIMEOUT_S):
                found = await ends.ask(broker, asked)
                if self.machine.answered(broker, asked, found):
                    wake()
        finally:
            self._asked.discard(broker.broker_id)


def _short_fields(one: ShortReplica) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "broker": one.broker_id,
        "epoch": one.end.last_epoch,
        "end": one.end.end_offset,
        "longest_epoch": one.longest.last_epoch,
        "longest_end": one.longest.end_offset,
        "may_lack_data": one.lacks,
    }
