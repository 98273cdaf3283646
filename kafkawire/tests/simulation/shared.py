"""The state that all clients of a run share: the history, the network, the present topics, and when to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from kafkawire.testing import EPOCH_MS
from kafkawire.tests.simulation.history import History, Place, TopicLife
from kafkawire.tests.simulation.network import LOST, Connection, Network
from kafkawire.tests.simulation.plan import TopicPlan
from kafkawire.wire.message import Message


@dataclass
class Shared:
    """The shared state of one run."""

    seed: int
    history: History
    network: Network
    plans: dict[str, TopicPlan]
    topics: dict[str, TopicLife] = field(default_factory=dict)  # the topics that exist, as far as clients know
    is_over: bool = False  # then writers finish their batches, and stop
    followers_until: dict[Place, int] | None = None  # followers stop when they got there
    retry_quickly: bool = False
    era: Callable[[], int] = lambda: 0  # see `group_history.Call`

    def rng(self, name: str) -> Random:
        """A random source for each client, so that the actions of one do not change those of the others."""
        return Random(f"{self.seed}/{name}")

    def now_ms(self) -> int:
        return EPOCH_MS + round(trio.current_time() * 1000)

    async def connected(self, client_id: str, rng: Random) -> Connection:
        """A connection, as soon as there is a broker."""
        while True:
            await trio.sleep(rng.uniform(0.001, 0.005 if self.retry_quickly else 0.05))
            try:
                return self.network.connect(client_id)
            except LOST:
                continue

    async def ask(self, connection: Connection, request: Message, version: int) -> Any:
        """Do one operation. Errors: LOST."""
        answer = await connection.ask(request, version)
        self.history.operations += 1
        return answer

    async def ask_all(self, connection: Connection, requests: Sequence[Message], version: int) -> list[Any]:
        """Do several operations, pipelined. Errors: LOST."""
        answers = await connection.ask_all(requests, version)
        self.history.operations += len(answers)
        return list(answers)

    async def insist(self, client_id: str, rng: Random, request: Message, version: int) -> Any:
        """Do one operation, and retry until there is a reply."""
        while True:
            connection = await self.connected(client_id, rng)
            try:
                return await self.ask(connection, request, version)
            except LOST:
                continue
            finally:
                self.network.disconnect(connection)
