"""Probes that find brokers whose process is gone although their session lasts: it refuses connections (RULES K13).

The controller probes all other brokers, and they probe the controller. Kafka has no such thing. A mistake costs an
election and no record: safety rests on ISRs and epochs, and a fenced broker that lives registers anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from coordinator.api import BrokerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from coordinator.api import BrokerInfo, ClusterImage

    IsRefused = Callable[[BrokerInfo], Awaitable[bool]]

INTERVAL_S = 0.25
AGAIN_S = 0.05  # at least between two looks: if a broker has refused, or seems to be away
REFUSALS = 2  # one after the other


class Probes:
    """The probes of one broker. `is_refused` connects to a broker's listener for other brokers: True only if nothing
    listens there any more."""

    def __init__(self, is_refused: IsRefused) -> None:
        self._is_refused = is_refused
        self._refusals: dict[bytes, int] = {}  # by incarnation, of brokers that were reached once

    def gone(self, image: ClusterImage) -> set[int]:
        """The brokers whose sessions need not be waited for."""
        members = image.members.values()
        return {one.broker_id for one in members if self._refusals.get(one.incarnation, 0) >= REFUSALS}

    @property
    def has_suspects(self) -> bool:
        """Whether the next look will decide about some broker whether it is gone."""
        return any(0 < count < REFUSALS for count in self._refusals.values())

    async def probe(self, image: ClusterImage, me: int) -> bool:
        """Probe the brokers that this one is to probe; return whether one was found to be gone."""
        before, found = self.gone(image), dict[bytes, int]()
        async with trio.open_nursery() as nursery:
            for one in _asked(image, me):
                nursery.start_soon(self._ask, one, found)
        self._refusals = found  # all at once: meanwhile `gone` answers by the look before
        return bool(self.gone(image) - before)

    async def _ask(self, one: BrokerInfo, found: dict[bytes, int]) -> None:
        """Probe a broker. If it was never reached, it is not gone: its advertised address may be wrong."""
        refusals = self._refusals.get(one.incarnation)
        if not await self._is_refused(one):
            found[one.incarnation] = 0
        elif refusals is not None:
            found[one.incarnation] = refusals + 1


def _asked(image: ClusterImage, me: int) -> Iterator[BrokerInfo]:
    for one in image.members.values():
        is_with_controller = image.controller_id in (me, one.broker_id)
        if is_with_controller and one.broker_id != me and one.state is not BrokerState.FENCED:
            yield one
