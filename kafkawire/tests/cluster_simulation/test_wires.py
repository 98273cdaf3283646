"""Cut directions of the network, and data that arrive late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

import pytest
import trio

from kafkawire.server.memory_transport import MemoryListener
from kafkawire.server.transport import Transport
from kafkawire.tests.cluster_simulation import wires as module
from kafkawire.tests.cluster_simulation.wires import Wires
from kafkawire.tests.simulation.network import LOST

PORT = 9094
LONG_S = 100.0


class Pair(NamedTuple):
    wires: Wires
    near: trio.abc.Stream
    far: Transport

    def received(self) -> bytes:
        """The bytes that broker 2 has received."""
        buffer = bytearray(100)
        return bytes(buffer[: self.far.receive(memoryview(buffer)) or 0])


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Broker 1 has a connection to broker 2."""
    wires = Wires(Random(0))
    wires.listeners[PORT] = listener = MemoryListener()
    async with trio.open_nursery() as nursery:
        await nursery.start(wires.run)
        near = await wires.dial(1, 2, PORT)
        yield Pair(wires, near, (await listener.accept()).transport)
        nursery.cancel_scope.cancel()


async def test_sent_data_arrive_in_both_directions() -> None:
    async with pair() as (wires, near, far):
        await near.send_all(b"there")
        await trio.sleep(1)
        assert Pair(wires, near, far).received() == b"there"
        far.send([memoryview(b"and back")])
        assert await near.receive_some(100) == b"and back"


async def test_data_sent_into_a_cut_direction_arrive_when_it_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BREAKS", 0)
    async with pair() as one:
        one.wires.cut([(1, 2)])
        await one.near.send_all(b"late")
        one.far.send([memoryview(b"at once")])
        assert await one.near.receive_some(100) == b"at once"
        await trio.sleep(LONG_S)
        assert one.received() == b""
        one.wires.heal([(1, 2)])
        await trio.sleep(1)
        assert one.received() == b"late"


async def test_a_connection_may_be_broken_when_a_cut_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BREAKS", 1)
    async with pair() as one:
        one.wires.cut([(1, 2)])
        one.wires.heal([(1, 2)])
        with pytest.raises(LOST):
            await one.near.send_all(b"lost")


async def test_two_cuts_of_a_direction_are_healed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BREAKS", 0)
    async with pair() as one:
        for _ in range(2):
            one.wires.cut([(1, 2)])
        await one.near.send_all(b"late")
        one.wires.heal([(1, 2)])
        await trio.sleep(LONG_S)
        assert one.received() == b""
        one.wires.heal([(1, 2)])
        await trio.sleep(1)
        assert one.received() == b"late"


@pytest.mark.parametrize("direction", [(1, 2), (2, 1)])
async def test_connection_attempt_hangs_while_either_direction_is_cut(direction: tuple[int, int]) -> None:
    async with pair() as one:
        one.wires.cut([direction])
        with trio.move_on_after(LONG_S) as waited:
            await one.wires.dial(1, 2, PORT)
        assert waited.cancelled_caught


async def test_connection_to_a_port_without_a_listener_is_refused() -> None:
    async with pair() as one:
        with pytest.raises(ConnectionRefusedError):
            await one.wires.dial(2, 1, PORT - 1)


async def test_connection_to_a_machine_without_power_is_silent_until_power_returns_and_then_lost() -> None:
    async with pair() as one:
        one.wires.lose_power(2)
        with trio.move_on_after(LONG_S) as waited:
            await one.near.receive_some(100)
        assert waited.cancelled_caught
        one.wires.has_power(2)
        with pytest.raises(LOST):
            await one.near.send_all(b"lost")
