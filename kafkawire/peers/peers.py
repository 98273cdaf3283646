"""All peer connections of one broker to the others (RULES K23), by broker and purpose.

Requests of one purpose leave in the order in which they are made, and are answered in that order. Requests that may
wait long, or that others wait for, have a purpose of their own. One count numbers the connections to all brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import trio

from kafkawire.peers.connection import Connect, ConnectionDeps, Peer, PeerConnection, PeerLimits
from kafkawire.security.link_claim import LinkNumber
from kafkawire.security.scram import salted_by

if TYPE_CHECKING:
    from random import Random

    from coordinator.api import BrokerInfo, ClusterImage, ClusterService, Future
    from kafkawire.peers.errors import SentBy
    from kafkawire.wire.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Identity and secret of this broker, and limits. `listener_name`: inter.broker.listener.name."""

    broker_id: int
    listener_name: str
    secret: bytes
    limits: PeerLimits = field(default_factory=PeerLimits)


class Peers:
    """The peer connections; the caller runs `run` in a task. Earlier requests wait for it."""

    def __init__(
        self,
        settings: PeerSettings,
        cluster: ClusterService,
        broker_epoch: Callable[[], int],
        connect: Connect,
        random: Random,
    ) -> None:
        """`broker_epoch`: the present epoch of this broker. `random`: unpredictable."""
        self._settings = settings
        self._cluster = cluster
        self._broker_epoch = broker_epoch
        self._counter = count(1)
        self._deps = ConnectionDeps(
            broker_id=settings.broker_id,
            connect=connect,
            salted=salted_by(settings.secret),
            random=random,
            next_number=lambda: LinkNumber(broker_epoch(), next(self._counter)),
            limits=settings.limits,
        )
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._unstarted: list[PeerConnection] = []
        self._has_unstarted = trio.Event()

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            while True:
                self._has_unstarted = trio.Event()
                unstarted, self._unstarted = self._unstarted, []
                for connection in unstarted:
                    nursery.start_soon(connection.run)
                await self._has_unstarted.wait()

    def call(self, broker_id: int, request: Message, version: int, *, purpose: str) -> Future[Message]:
        """The future of another broker's reply. It fails with LinkFailed if there is none in time."""
        return self._connection(broker_id, purpose).ask(request, version)

    def is_registered(self, broker: BrokerInfo) -> bool:
        """Whether a request to that broker id now goes to this very registration."""
        known = self._cluster.image.brokers.get(broker.broker_id)
        return known is not None and known.incarnation == broker.incarnation

    def is_over(self, sent: SentBy) -> bool:
        """Whether a request on that connection can no longer be executed, if it was not: the other broker has accepted
        a newer connection, or has registered again, or is gone."""
        return self._connection(sent.broker_id, sent.purpose).is_over(sent)

    def renew(self, sent: SentBy) -> None:
        """Open a newer connection than that one, as soon as the other broker can be reached."""
        self._connection(sent.broker_id, sent.purpose).open()

    def _connection(self, broker_id: int, purpose: str) -> PeerConnection:
        connection = self._connections.get((broker_id, purpose))
        if connection is None:
            connection = self._connections[broker_id, purpose] = PeerConnection(broker_id, purpose, self._deps)
            self._unstarted.append(connection)
            self._has_unstarted.set()
        connection.follow(self._peer(self._cluster.image, broker_id), self._broker_epoch())
        return connection

    async def _follow(self) -> None:
        while True:
            image = self._cluster.image
            for (broker_id, _), connection in self._connections.items():
                connection.follow(self._peer(image, broker_id), self._broker_epoch())
            await self._cluster.wait_for_image_after(image.version)

    def _peer(self, image: ClusterImage, broker_id: int) -> Peer | None:
        broker = image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._settings.listener_name)
        if broker is None or endpoint is None:
            return None
        return Peer(endpoint.host, endpoint.port, broker.incarnation)
