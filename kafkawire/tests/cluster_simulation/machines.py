"""Three machines, each with a disk and the processes of a broker one after the other, and the network of their
clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import trio

from coordinator.api import ClusterImage, PartitionState
from coordinator.testing.simulated_metadata_store import FakeEnsemble
from coordinator.testing.simulated_metadata_store import Faults as StoreFaults
from engine.errors import EngineError
from engine.partitions.partition import Partition
from engine.roles import TopicIdPartition
from kafkawire.broker import Broker
from kafkawire.testing import SECRET_FILE
from kafkawire.tests.cluster_simulation.wires import Wires
from kafkawire.tests.cluster_simulation.world import MachineWorld, port_of
from kafkawire.tests.simulation.history import History, Place
from kafkawire.tests.simulation.lives import Lives
from kafkawire.tests.simulation.network import Connection, Network
from kafkawire.tests.simulation.plan import Target, TopicPlan
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.world import DiskSpeed, WatchedFileSystem

BROKERS = (1, 2, 3)
CONNECTIONS_PER_BROKER = 1_000_000  # the number of a connection tells its broker


@dataclass
class BrokerNetwork(Network):
    """The network of clients to one of the brokers. A fault that cuts clients off from it cuts them off from the others
    too."""

    broker_id: int = 0
    wires: Wires = field(default_factory=lambda: Wires(Random(0)))

    def __post_init__(self) -> None:
        self._last_number = self.broker_id * CONNECTIONS_PER_BROKER

    def connect(self, client_id: str) -> Connection:
        """Errors: ConnectionRefusedError, one of LOST."""
        if not self.is_up:
            raise ConnectionRefusedError("no broker")
        connection = Connection(self.world.listeners[port_of(self.broker_id)].connect(), client_id)
        self._last_number += 1
        connection.number = self._last_number
        self.open[connection.number] = connection
        return connection

    def cut_all(self) -> int:
        return super().cut_all() + (0 if self.broker_id in self.wires.dark else self.wires.break_all(self.broker_id))


@dataclass
class Machine:
    """A machine: its parts, and the processes of one broker, one after the other. Its history has the events of this
    broker alone."""

    broker_id: int
    world: MachineWorld
    network: BrokerNetwork
    lives: Lives

    @property
    def broker(self) -> Broker | None:
        """The broker, if it serves."""
        return self.lives.broker

    @property
    def life(self) -> int:
        """A number that is unique among the processes of all brokers."""
        return self.lives.shared.history.life * (len(BROKERS) + 1) + self.broker_id

    def replica(self, name: str, place: Place) -> Partition | None:
        """The partition on this machine; None if its log is not open."""
        if self.broker is None:
            return None
        try:
            return self.broker.store.replica(TopicIdPartition(place.topic_id, name, place.partition))
        except EngineError:
            return None


@dataclass
class Machines:
    """The machines of all brokers."""

    seed: int
    history: History
    plans: Mapping[str, TopicPlan]
    properties: Mapping[str, str]
    ensemble: FakeEnsemble
    wires: Wires
    all: dict[int, Machine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for broker_id in BROKERS:
            self.all[broker_id] = self._machine(broker_id)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.all.values())

    def _machine(self, broker_id: int) -> Machine:
        history, seed = History(), self.seed * 10 + broker_id
        disk = WatchedFileSystem(history=history)
        world = MachineWorld(seed, disk=disk, ensemble=self.ensemble, broker_id=broker_id, wires=self.wires)
        network = BrokerNetwork(world, broker_id=broker_id, wires=self.wires)
        shared = Shared(seed, history, network, dict(self.plans))
        history.now_ms = disk.now_ms = shared.now_ms
        world.speed = DiskSpeed(shared.rng("disk"))
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://memory:{port_of(broker_id)}",
            "zookeeper.connect": "ensemble:2181",
            "inter.broker.secret.file": SECRET_FILE,
            **self.properties,
        }
        return Machine(broker_id, world, network, Lives(shared, world, properties))

    # As clients find them

    def machine_of(self, connection: Connection) -> Machine:
        """The machine to which a connection leads."""
        return self.all[connection.number // CONNECTIONS_PER_BROKER]

    def described_state(self, target: Target, rng: Random) -> PartitionState | None:
        """The partition's state, as one of the running brokers would return it in a Metadata response."""
        images = [one.broker.coordinator.image for one in self if one.broker is not None and one.world.is_running]
        return rng.choice(images).partition(*target) if images else None

    def leader_epoch_at(self, broker_id: int, target: Target) -> int:
        """The epoch in which that broker leads a partition, by its own image; -1 if it does not lead."""
        broker = self.all[broker_id].broker
        state = None if broker is None else broker.coordinator.image.partition(*target)
        return -1 if state is None or state.leader != broker_id else state.leader_epoch

    # As they are

    @property
    def image(self) -> ClusterImage | None:
        """The newest image of any broker."""
        images = [one.broker.coordinator.image for one in self if one.broker is not None]
        return max(images, key=lambda image: image.version, default=None)

    def state(self, target: Target) -> PartitionState | None:
        return None if self.image is None else self.image.partition(*target)

    @property
    def are_up(self) -> bool:
        return all(one.broker is not None for one in self)

    def mend(self) -> None:
        """End all faults of disks and of the metadata store, and let all sessions read the newest metadata."""
        for machine in self:
            machine.world.speed.slow_s = 0.0
            machine.world.disk.faults.clear()
            if machine.world.session is not None:
                machine.world.session.lagging = False  # even without a write: no server lags for ever
        self.ensemble.faults = StoreFaults()
        self.ensemble.catch_up_all()

    def troubles(self) -> list[str]:
        """The troubles of all brokers, each with the broker's name."""
        return [f"broker {one.broker_id}: {text}" for one in self for text in one.lives.shared.history.troubles]


async def run_all(machines: Machines, nursery: trio.Nursery) -> None:
    """Start the brokers one after the other: the first becomes the controller."""
    await nursery.start(machines.wires.run)
    for machine in machines:
        nursery.start_soon(machine.lives.run)
        await machine.lives.next_life(0)
