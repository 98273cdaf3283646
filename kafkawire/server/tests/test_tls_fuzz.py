"""Mutated bytes to a listener with TLS, before, during and after the handshake: connections end, and nothing else."""

from __future__ import annotations

import os
import random
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from kafkawire.server.tests.test_tls import REQUEST_SIZE_BYTES, client_end, names, request, serving, settle
from kafkawire.wire.connection import CloseReason

if TYPE_CHECKING:
    from kafkawire.server.memory_transport import MemoryStream
    from kafkawire.server.tests.test_tls import Running
    from testkit.certificates import Authority

SEED = int(os.environ.get("KAFKAWIRE_FUZZ_SEED", "1"))
CONNECTIONS = int(os.environ.get("KAFKAWIRE_FUZZ_FRAMES", "20000")) // 20
TURNS_MAX = 4


def mutated(source: random.Random, data: bytes) -> bytes:
    """The data with some bytes changed, cut, repeated or inserted."""
    found = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        place = source.randrange(len(found) + 1)
        match source.randrange(4):
            case 0 if found:
                found[min(place, len(found) - 1)] = source.randrange(256)
            case 1:
                del found[place : place + source.randrange(1, 40)]
            case 2:
                found[place:place] = found[place : place + source.randrange(1, 200)]
            case _:
                found[place:place] = source.randbytes(source.randrange(1, 40))
    return bytes(found)


async def converse(source: random.Random, broker: Running, authority: Authority) -> None:
    """A conversation in which one flight of the client is mutated."""
    raw = broker.tls.connect(f"10.{source.randrange(256)}.0.1")
    end, to_client, to_server = client_end(authority)
    harmed = source.randrange(3)
    for turn in range(TURNS_MAX):
        try:
            end.do_handshake()
            end.write(request("e", turn))
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            break
        flight = to_server.read()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await raw.send_all(mutated(source, flight) if turn == harmed else flight)
        await settle()
        to_client.write(arrived(raw))
    raw.close()


def arrived(raw: MemoryStream) -> bytes:
    """The bytes that have arrived, without a wait."""
    found = bytes(raw._incoming.data)
    raw._incoming.data.clear()
    return found


@pytest.mark.fuzz
async def test_mutated_flights(authority: Authority) -> None:
    source = random.Random(SEED)
    async with serving(authority) as broker:
        for number in range(CONNECTIONS):
            await converse(source, broker, authority)
            assert not broker.stats.closed[CloseReason.HANDLER_FAILED], f"seed {SEED}, connection {number}"
        await trio.sleep(60)
        assert broker.stats.connections_open == 0
        assert broker.stats.closed[CloseReason.HANDSHAKE_FAILED] > CONNECTIONS / 4
        stream = await broker.connect()
        await stream.send_all(request("e", 1, REQUEST_SIZE_BYTES))
        assert await names(stream, 1) == [1]
