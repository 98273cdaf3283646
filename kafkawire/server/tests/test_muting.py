"""Connections of producers while too many bytes of all connections wait for acknowledgements."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kafkawire.server.server import ServerLimits
from kafkawire.server.tests.test_server import serving, settle

if TYPE_CHECKING:
    from kafkawire.server.tests.test_server import Client, Running

LIMITS = ServerLimits(unanswered_max_size_bytes=1000)


async def send_apart(client: Client, kind: str, *names: int, size: int = 8) -> None:
    """Send each request as a packet of its own: a muted connection receives no further one."""
    for name in names:
        await client.send(kind, name, size=size)
        await settle()


async def muted(broker: Running) -> tuple[Client, Client]:
    """A connection with 1,000 bytes in flight, and a muted one: its request 3 waits for its request 2."""
    first, second = broker.connect(), broker.connect()
    await send_apart(first, "p", 1, size=1000)
    broker.dispatcher.gate(1).release()  # the records are written, and hold no memory
    await send_apart(second, "p", 2, 3)
    assert broker.dispatcher.order == [1, 2]
    assert broker.stats.connections_muted == 1
    assert broker.stats.unanswered_size_bytes == 1008
    return first, second


async def test_a_connection_has_one_produce_in_flight_while_too_many_bytes_are_unanswered() -> None:
    async with serving(LIMITS) as broker:
        _, second = await muted(broker)
        broker.dispatcher.gate(2).set()
        assert await second.reply() == ("p", 2)
        await settle()
        assert broker.dispatcher.order == [1, 2, 3]


async def test_a_muted_connection_goes_on_when_others_are_answered() -> None:
    async with serving(LIMITS) as broker:
        first, _ = await muted(broker)
        broker.dispatcher.gate(1).set()
        assert await first.reply() == ("p", 1)
        await settle()
        assert broker.dispatcher.order == [1, 2, 3]
        assert broker.stats.connections_muted == 0


async def test_a_muted_connection_goes_on_when_the_connection_of_others_is_gone() -> None:
    async with serving(LIMITS) as broker:
        first, _ = await muted(broker)
        await first.stream.aclose()
        broker.dispatcher.gate(1).set()
        await settle()
        assert broker.dispatcher.order == [1, 2, 3]


async def test_a_connection_without_a_produce_in_flight_is_never_muted() -> None:
    async with serving(LIMITS) as broker:
        await muted(broker)
        third = broker.connect()
        await send_apart(third, "e", 4)
        assert await third.reply() == ("e", 4)
        await send_apart(third, "w", 5)
        await send_apart(third, "e", 6)
        broker.dispatcher.gate(5).set()
        assert [await third.reply() for _ in range(2)] == [("w", 5), ("e", 6)]
        assert broker.stats.connections_muted == 1


async def test_a_connection_of_another_broker_is_never_muted() -> None:
    async with serving(LIMITS) as broker:
        await muted(broker)
        peer = broker.connect()
        await send_apart(peer, "e", 4)
        broker.dispatcher.infos[-1].is_peer = True
        await send_apart(peer, "p", 5, 6)
        assert broker.dispatcher.order == [1, 2, 4, 5, 6]
        assert broker.stats.unanswered_size_bytes == 1008


async def test_large_request_that_is_partly_received_is_received_completely_despite_muting() -> None:
    """The deadline of the request runs: a pause in its middle would cost the connection."""
    size = 200_000
    async with serving(LIMITS) as broker:
        client = broker.connect()
        await send_apart(client, "p", 1, size=900)
        large = struct.pack(">i", size) + (b"p\x02").ljust(size, b".")
        await client.stream.send_all(large[:100_000])
        await settle()
        other = broker.connect()
        await send_apart(other, "p", 3, size=1000)
        await client.stream.send_all(large[100_000:])
        await settle()
        assert broker.dispatcher.order == [1, 3, 2]


async def test_a_muted_connection_is_closed_with_its_server() -> None:
    async with serving(LIMITS) as broker:
        _, second = await muted(broker)
        broker.stop.set()
        for name in (1, 2):
            broker.dispatcher.gate(name).set()
        assert await second.reply() == ("p", 2)
        assert await second.closed()
    assert broker.stats.connections_muted == 0
