"""The machine of one of several brokers: a disk and a pool as for a single broker, connections to the other machines,
and a metadata session that ends after silence, not because its broker has died."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import trio

from coordinator.testing.simulated_metadata_store import FakeStore
from kafkawire.broker import StartError
from kafkawire.deps import Deps
from kafkawire.server.transport import Listener
from kafkawire.tests.cluster_simulation.standstill import Standstill
from kafkawire.tests.cluster_simulation.wires import Wires
from kafkawire.tests.simulation.world import SimulatedWorld

FIRST_PORT = 9092


def port_of(broker_id: int) -> int:
    return FIRST_PORT + broker_id


@dataclass
class MachineWorld(SimulatedWorld):
    """Dependencies of one of several brokers."""

    broker_id: int = 0
    wires: Wires = field(default_factory=lambda: Wires(Random(0)))
    process: trio.lowlevel.Task | None = None  # the root of the broker's tasks
    _standstill: Standstill | None = None

    def start_deps(self) -> Deps:
        self.process = trio.lowlevel.current_task()
        self.wires.has_power(self.broker_id)
        return replace(super().start_deps(), connect=self._dial, listen=self._listen_here)

    async def _listen_here(self, host: str, port: int) -> Listener:
        listener = await self._listen(host, port)
        self.wires.listeners[port] = self.listeners[port]
        return listener

    async def _dial(self, _host: str, port: int) -> trio.abc.Stream:
        return await self.wires.dial(self.broker_id, port - FIRST_PORT, port)

    @property
    def session(self) -> FakeStore | None:
        """The metadata session of the running process, or None."""
        return self.sessions[-1] if self.sessions else None

    @property
    def is_running(self) -> bool:
        """Whether the process is not stopped."""
        return self._standstill is None

    def stand_still(self) -> bool:
        """Stop the process, as SIGSTOP does. Return whether it was running."""
        if self._standstill is not None or self.process is None or self.disk.is_dead:
            return False
        self._standstill = Standstill(self.process)
        self._standstill.begin()
        for store in self.sessions:
            store.pause()
        return True

    def go_on(self) -> None:
        """Let the process go on, as SIGCONT does."""
        if self._standstill is not None:
            for store in self.sessions:
                store.resume()
            self._end_standstill()

    def _end_standstill(self) -> None:
        if self._standstill is not None:
            self._standstill.end()
            self._standstill = None

    def excuses(self, failure: BaseException) -> bool:
        """Whether a start may fail for this reason: the metadata store does not answer. The test starts the broker
        again then."""
        return super().excuses(failure) or (isinstance(failure, StartError) and "metadata store" in str(failure))

    def end_life(self) -> None:
        """End the process: its session stays open, and its port is closed."""
        for store in self.sessions:
            store.disconnected = True
            store.resume()  # of a process that stood still: its waiting requests have to end
        self.wires.listeners.pop(port_of(self.broker_id), None)
        super().end_life()
        self._end_standstill()

    def restore(self, *, power_cut: bool, rng: Random) -> None:
        """Restore the machine. The session ends by itself, or when the next process proves that this one is dead."""
        self.sessions.clear()
        super().restore(power_cut=power_cut, rng=rng)
