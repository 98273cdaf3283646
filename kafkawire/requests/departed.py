"""Brokers that were up a moment ago: Metadata lists them a little longer.

librdkafka needs this. If one Metadata response names a new leader and lacks the old leader's broker, librdkafka drops
the partition with that broker, and looks for the leader a second later. A kafkawire broker that was killed is noticed
before its session ends; Kafka lists such a broker until then, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.api import BrokerInfo, ClusterImage, ClusterService

LISTED_S: Final = 5.0  # clients without a leader ask again every second


class Departed:
    """Brokers that went down lately, as one broker knows them. `run` it in a task."""

    def __init__(self) -> None:
        self._up: Mapping[int, BrokerInfo] = {}
        self._gone: dict[int, tuple[BrokerInfo, float]] = {}  # with the end of its listing

    async def run(self, cluster: ClusterService) -> None:
        """Follow the cluster while the broker lives."""
        while True:
            image = cluster.image
            self.note(image, trio.current_time())
            await cluster.wait_for_image_after(image.version)

    def note(self, image: ClusterImage, now_s: float) -> None:
        """Note the brokers of an image. A broker that is down is listed until `now_s` plus `LISTED_S`."""
        if image.brokers is self._up:
            return
        lost = [one for one in self._up.values() if one.broker_id not in image.brokers]
        self._gone |= {one.broker_id: (one, now_s + LISTED_S) for one in lost}
        self._up = image.brokers

    def listed(self, image: ClusterImage, now_s: float) -> list[BrokerInfo]:
        """Live brokers, then those that went down lately. Unregistered brokers are not listed."""
        self.note(image, now_s)
        gone = (one for one, until_s in self._gone.values() if now_s < until_s)
        return [
            *image.brokers.values(),
            *(one for one in gone if one.broker_id in image.members and one.broker_id not in image.brokers),
        ]
