"""Clients of partitions with one leader at a time: they ask the leader that metadata name, and after an error ask for
the metadata again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import trio

from coordinator.api import INTERNAL_TOPICS, PartitionState
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.produce import PartitionProduceResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.cluster_simulation.machines import Machine, Machines
from kafkawire.tests.simulation.group_committer import Committer
from kafkawire.tests.simulation.group_history import AWAY
from kafkawire.tests.simulation.history import Outcome, Place, Read
from kafkawire.tests.simulation.network import LOST, Connection, Network
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.reader import LATEST, Consumer, Follower
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.writer import Batch, Writer

RESTS_S = 0.02, 0.3  # pause of a client after an error that it may retry
# Errors of a broker that does not lead, or cannot serve.
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
NO_EPOCH = -1
TOO_FEW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


def newest(known: PartitionState | None, reported: PartitionState | None) -> PartitionState | None:
    """The state that a client believes: a state of an older leader epoch does not replace a newer one (KIP-320)."""
    if known is None or (reported is not None and reported.leader_epoch >= known.leader_epoch):
        return reported
    return known


@dataclass
class LeaderNetwork(Network):
    """The network of one client to the leader of a partition. Replies about coordinators have no epochs, so such a
    client believes the last reply."""

    machines: Machines = field(kw_only=True)
    target: Target = field(kw_only=True)
    rng: Random = field(kw_only=True)
    keeps_epochs: bool = True
    broker_id: int = 0  # the connected broker
    _known: PartitionState | None = None

    def connect(self, client_id: str) -> Connection:
        """Errors: ConnectionRefusedError, one of LOST."""
        reported = self.machines.described_state(self.target, self.rng)
        self._known = newest(self._known, reported) if self.keeps_epochs else reported
        if self._known is None or self._known.leader not in self.machines.all:
            raise ConnectionRefusedError("nobody leads")
        connection = self.machines.all[self._known.leader].network.connect(client_id)
        self.broker_id = self._known.leader
        return connection

    def disconnect(self, connection: Connection) -> None:
        self.machines.machine_of(connection).network.disconnect(connection)

    @property
    def epoch(self) -> int:
        """The epoch in which that broker leads, by its own image; -1 if it does not lead, or no broker was asked."""
        return self.machines.leader_epoch_at(self.broker_id, self.target) if self.broker_id else NO_EPOCH


@dataclass
class AnyBrokerNetwork(Network):
    """The network to any broker, a random one for each connection."""

    machines: Machines = field(kw_only=True)
    rng: Random = field(kw_only=True)

    def connect(self, client_id: str) -> Connection:
        """Errors: ConnectionRefusedError, one of LOST."""
        one: Machine = self.rng.choice([*self.machines])
        return one.network.connect(client_id)

    def disconnect(self, connection: Connection) -> None:
        self.machines.machine_of(connection).network.disconnect(connection)


def with_any_broker(shared: Shared, machines: Machines, name: str) -> Shared:
    """The shared state of all clients, with a network to any broker."""
    network = AnyBrokerNetwork(next(iter(machines)).world, machines=machines, rng=shared.rng(f"{name} finds"))
    return replace(shared, network=network)


def with_leader_network(shared: Shared, machines: Machines, target: Target, name: str) -> Shared:
    """The shared state of all clients, with a network to the leader of that partition."""
    world, rng = next(iter(machines)).world, shared.rng(f"{name} finds")
    keeps_epochs = target.topic not in INTERNAL_TOPICS
    return replace(
        shared, network=LeaderNetwork(world, machines=machines, target=target, rng=rng, keeps_epochs=keeps_epochs)
    )


@dataclass
class PartitionWriter(Writer):
    """A producer of one partition."""

    _is_refused: bool = False
    _request_epoch: int = -1  # epoch

    @property
    def _leader_network(self) -> LeaderNetwork:
        assert isinstance(self.shared.network, LeaderNetwork)
        return self.shared.network

    async def _send_all(self, connection: Connection) -> None:
        self._is_refused, self._request_epoch = False, self._leader_network.epoch
        await super()._send_all(connection)
        if self._is_refused:
            await trio.sleep(self._rng.uniform(*RESTS_S))
            raise EOFError("perhaps another one leads")

    def _take_answer(self, batch: Batch, row: PartitionProduceResponse) -> None:
        code = row.error_code
        self._is_refused |= code in ELSEWHERE or code in TOO_FEW
        if code not in TOO_FEW:
            super()._take_answer(batch, row)

    def _settle(self, batch: Batch, outcome: Outcome) -> None:
        super()._settle(batch, outcome)
        network = self._leader_network
        batch.send.life = network.machines.all[network.broker_id].life
        batch.send.epoch = min(network.epoch, self._request_epoch)


@dataclass
class PartitionCommitter(Committer):
    """A client that commits offsets for a group, whichever broker coordinates it."""

    def expect(self, code: int, what: str, *expected: ErrorCode) -> None:
        super().expect(code, what, *expected)
        if code in AWAY:
            raise EOFError("perhaps another one coordinates")


@dataclass
class PartitionConsumer(Consumer):
    """A consumer that notes the leader epoch of each reply, if it is known."""

    _request_epoch: int = field(default=-1, init=False)

    @property
    def epoch(self) -> int:
        """The leader epoch of the connected broker."""
        assert isinstance(self.shared.network, LeaderNetwork)
        return self.shared.network.epoch

    def fetch_request(
        self, positions: dict[tuple[str, int], int], *, partition_size_bytes: int = 0, **options: Any
    ) -> FetchRequest | None:
        self._request_epoch = self.epoch
        return super().fetch_request(positions, partition_size_bytes=partition_size_bytes, **options)

    def _read(self, place: Place, offset: int, invoked: int, completed: int, row: Any) -> Read:
        read = super()._read(place, offset, invoked, completed, row)
        read.epoch = self.epoch if self.epoch == self._request_epoch else -1
        return read

    async def list_offset(self, connection: Connection, name: str, partition: int, timestamp_ms: int) -> int | None:
        history, request_epoch = self.shared.history, self.epoch
        found = await super().list_offset(connection, name, partition, timestamp_ms)
        if history.lookups and history.lookups[-1].completed == history.now:  # the lookup of this call
            history.lookups[-1].epoch = self.epoch if self.epoch == request_epoch else -1
        return found


@dataclass
class PartitionReader(PartitionConsumer, Follower):
    """A follower of one partition, whichever broker leads it."""

    async def list_offset(self, connection: Connection, name: str, partition: int, timestamp_ms: int) -> int | None:
        found = await super().list_offset(connection, name, partition, timestamp_ms)
        if found is None:
            await trio.sleep(self.rng.uniform(*RESTS_S))
            raise EOFError("perhaps another one leads")
        return found

    def _advance(self, key: tuple[str, int], read: Read) -> bool:
        if read.error in ELSEWHERE:
            raise EOFError("perhaps another one leads")
        return super()._advance(key, read)


@dataclass
class PartitionWanderer(PartitionConsumer):
    """A consumer that looks up the end of a partition, and reads at an offset below it."""

    pause_s: float = 0.2

    async def run(self) -> None:
        while not self.shared.is_over:
            connection = await self.shared.connected(self.name, self.rng)
            try:
                while not self.shared.is_over:
                    await trio.sleep(self.rng.expovariate(1 / self.pause_s))
                    await self._wander(connection, *self.places[0])
            except LOST:
                continue
            finally:
                self.shared.network.disconnect(connection)

    async def _wander(self, connection: Connection, name: str, partition: int) -> None:
        end = await self.list_offset(connection, name, partition, LATEST)
        if end is None:
            raise EOFError("perhaps another one leads")
        if end:
            read = await self.read_at(connection, name, partition, self.rng.randrange(end))
            if read is not None and read.error in ELSEWHERE:
                raise EOFError("perhaps another one leads")
