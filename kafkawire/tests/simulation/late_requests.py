"""Late requests: held up on their way until long after their client has retried, or sent twice by the network.

Each comes over a connection of its own, and no client gets the reply.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import trio

from kafkawire.tests.simulation.network import LOST, Network
from kafkawire.tests.simulation.shared import Shared
from kafkawire.wire.message import Message

DELAY_MAX_S = 3.0
NAME = "late"


@dataclass
class LateRequests:
    """The requests that are under way."""

    shared: Shared
    nursery: trio.Nursery

    def send(self, request: Message, version: int, rng: Random) -> None:
        """Send the request some time later, mostly soon."""
        self.nursery.start_soon(self._send, request, version, min(rng.expovariate(5), DELAY_MAX_S))

    async def _send(self, request: Message, version: int, delay_s: float) -> None:
        await trio.sleep(delay_s)
        try:
            network = self._network_for(request)
            connection = network.connect(NAME)
        except LOST:
            return
        try:
            await self.shared.ask(connection, request, version)
        except LOST:
            pass
        finally:
            network.disconnect(connection)

    def _network_for(self, _request: Message) -> Network:
        """The network to the broker that answers the request."""
        return self.shared.network
