"""The network between brokers: bytes take a while, and do not arrive where a direction is cut.

Bytes that are sent into a cut direction are kept, as by a socket that retransmits them: they arrive when the cut ends,
unless the connection breaks before. A connection needs both directions to be established. No peer hears anything of a
machine without power, not even the end of its connections; the end of a killed process is noticed at once.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import trio
import trio.testing

from kafkawire.server.memory_transport import MemoryListener, MemoryStream
from kafkawire.tests.simulation.network import LOST

LATENCY_S = 0.0001, 0.001
BREAKS = 0.5  # how often a connection has broken when a cut ends
RECEIVE_MAX_BYTES = 1 << 16
Direction = tuple[int, int]  # from a broker to another
Ends = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


@dataclass(eq=False)
class Wire:
    """A connection, with an end in each broker."""

    dialer: int
    listener: int
    near: Ends  # the other end of the dialer's stream
    far: MemoryStream
    dialed: Ends

    @property
    def directions(self) -> tuple[Direction, Direction]:
        return (self.dialer, self.listener), (self.listener, self.dialer)

    def is_at(self, broker_id: int) -> bool:
        return broker_id in (self.dialer, self.listener)

    def break_off(self) -> None:
        """Break the connection at once, at both ends."""
        self.far.close()
        self.dialed.send_stream.close()
        self.dialed.receive_stream.close()
        self.near.send_stream.close()
        self.near.receive_stream.close()


@dataclass
class Wires:
    """All connections between brokers. The caller runs `run` in a task."""

    rng: Random
    listeners: dict[int, MemoryListener] = field(default_factory=dict)  # by port
    dark: set[int] = field(default_factory=set)  # machines without power
    broken: int = 0  # connections that were
    _cut: dict[Direction, int] = field(default_factory=dict)  # how many faults hold each
    _open: dict[Wire, None] = field(default_factory=dict)
    _has_changed: trio.Event = field(default_factory=trio.Event)
    _nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def dial(self, dialer: int, listener: int, port: int) -> trio.abc.Stream:
        """Raises ConnectionRefusedError; hangs while nothing goes from the one to the other and back."""
        assert self._nursery is not None
        await trio.sleep(self._latency_s())
        await self._until_open((dialer, listener))
        await self._until_open((listener, dialer))
        if (found := self.listeners.get(port)) is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no listener at port {port}")
        dialed, near = trio.testing.memory_stream_pair()
        wire = Wire(dialer, listener, near, found.connect(), dialed)
        self._open[wire] = None
        self._nursery.start_soon(self._carry, wire, near, wire.far, (dialer, listener))
        self._nursery.start_soon(self._carry, wire, wire.far, near, (listener, dialer))
        return dialed

    # Faults

    def cut(self, directions: Iterable[Direction]) -> None:
        """Cut the directions, until `heal` is called as often."""
        for one in directions:
            self._cut[one] = self._cut.get(one, 0) + 1

    def heal(self, directions: Iterable[Direction]) -> None:
        """End a cut of these directions. Some connections have broken meanwhile; the kept bytes of the others arrive
        now."""
        healed = {*directions}
        for one in healed:
            self._cut[one] -= 1
        for wire in [*self._open]:
            if not healed.isdisjoint(wire.directions) and self.rng.random() < BREAKS:
                self._break(wire)
        self._notify()

    def lose_power(self, broker_id: int) -> None:
        """Cut the power of a machine; it is dark until `has_power`."""
        self.dark.add(broker_id)

    def has_power(self, broker_id: int) -> None:
        """Note that a machine has power again. It knows none of its earlier connections, and resets them when the peer
        uses them."""
        if broker_id in self.dark:
            self.dark.discard(broker_id)
            self.break_all(broker_id)
            self._notify()

    def break_all(self, broker_id: int) -> int:
        """Break all connections of this broker. Return how many there were."""
        found = [wire for wire in self._open if wire.is_at(broker_id)]
        for wire in found:
            self._break(wire)
        return len(found)

    # Carrying

    def _break(self, wire: Wire) -> None:
        if self._open.pop(wire, wire) is None:
            self.broken += 1
            wire.break_off()

    async def _carry(self, wire: Wire, source: trio.abc.Stream, target: trio.abc.Stream, direction: Direction) -> None:
        try:
            while data := await source.receive_some(RECEIVE_MAX_BYTES):
                await trio.sleep(self._latency_s())
                await self._until_open(direction)
                await target.send_all(data)
            await self._until_open(direction)
        except LOST:
            pass
        self._break(wire)

    def _latency_s(self) -> float:
        return self.rng.uniform(*LATENCY_S)

    async def _until_open(self, direction: Direction) -> None:
        while self._cut.get(direction) or not self.dark.isdisjoint(direction):
            await self._has_changed.wait()

    def _notify(self) -> None:
        self._has_changed.set()
        self._has_changed = trio.Event()
