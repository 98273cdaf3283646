"""An orderly stop as the cluster sees it: the broker says that it leaves, and others take over its leaderships.

A broker that was told to stop stays so: if it loses its connection it tries again, and if it loses its session it
registers as a leaving broker. Otherwise it would be given leaderships a moment before its listeners close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from coordinator.api import BrokerState
from coordinator.controller import reconcile
from coordinator.metadata.failures import UNUSABLE, Attempts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.api import ClusterImage
    from coordinator.membership.membership import Membership
    from coordinator.metadata.change_log import ChangeLog
    from coordinator.metadata.failures import MetadataFailures

LEAVE_TIMEOUT_S: Final = 15.0
# Longer than a busy client takes to ask again. Kafka's brokers stay for 50 ms, or 2 s more (BrokerLifecycleManager).
REDIRECTING_S: Final = 1.0


class ControlledShutdown:
    """The orderly stop of one broker. `publish` lets the host follow the newest image, and returns the image that it
    has followed."""

    def __init__(
        self,
        changes: ChangeLog,
        membership: Membership,
        publish: Callable[[], Awaitable[ClusterImage]],
        failures: MetadataFailures,
    ) -> None:
        self._changes = changes
        self._membership = membership
        self._publish = publish
        self._failures = failures
        self._is_leaving = False
        self.has_left = False

    def next_state(self) -> BrokerState:
        """The state to register in."""
        return BrokerState.LEAVING if self._is_leaving else BrokerState.SERVING

    async def leave(self) -> None:
        """See `ClusterManager.leave`."""
        image, broker_id = self._changes.image, self._membership.me.broker_id
        if reconcile.others_serving(image, broker_id):
            self._is_leaving = True
            with trio.move_on_after(LEAVE_TIMEOUT_S):
                await self._hand_over()
            if reconcile.has_leaderships_to_hand_over(image, broker_id):
                await trio.sleep(REDIRECTING_S)
        self.has_left = True

    async def _hand_over(self) -> None:
        attempts = Attempts(self._failures, "hand-over")
        while True:
            try:
                await self._write_leaving()
            except UNUSABLE as error:
                await attempts.pause(error)
            else:
                break
        attempts.succeeded()
        while reconcile.has_leaderships_to_hand_over(self._changes.image, self._membership.me.broker_id):
            wake = trio.Event()
            self._changes.wake_after(self._changes.image.version, wake)
            await wake.wait()

    async def _write_leaving(self) -> None:
        """Write that the broker leaves, on top of an image that the host has followed."""
        while not await self._membership.became(BrokerState.LEAVING, await self._publish()):
            pass
