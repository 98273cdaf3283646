"""Brokers that were up a moment ago: answers to Metadata list them a little longer than they are there.

A client of librdkafka that is told in one answer who leads a partition now, and that whoever did is no broker any more,
drops the partition with that broker, and looks for its leader a second later. Brokers that were killed are found out
here before their sessions end: until then Kafka lists them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.api import BrokerInfo, ClusterImage, ClusterService

LISTED_S: Final = 5.0  # clients without a leader ask every second


class Departed:
    """Of one broker. Life: `run` in a task."""

    def __init__(self) -> None:
        self._up: Mapping[int, BrokerInfo] = {}
        self._gone: dict[int, tuple[BrokerInfo, float]] = {}  # until when each is listed

    async def run(self, cluster: ClusterService) -> None:
        """For as long as the broker lives."""
        while True:
            image = cluster.image
            self.note(image, trio.current_time())
            await cluster.wait_for_image_after(image.version)

    def note(self, image: ClusterImage, now_s: float) -> None:
        """The cluster may be another one. Who was unregistered is not missed."""
        if image.brokers is self._up:
            return
        lost = [one for one in self._up.values() if one.broker_id not in image.brokers]
        self._gone |= {one.broker_id: (one, now_s + LISTED_S) for one in lost}
        self._up = image.brokers

    def listed(self, image: ClusterImage, now_s: float) -> list[BrokerInfo]:
        """All that are up, and behind them those that were."""
        self.note(image, now_s)
        gone = (one for one, until_s in self._gone.values() if now_s < until_s)
        return [
            *image.brokers.values(),
            *(one for one in gone if one.broker_id in image.members and one.broker_id not in image.brokers),
        ]
