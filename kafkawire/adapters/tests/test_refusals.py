"""The process of a broker is gone if its system refuses connections, and for no other reason."""

from __future__ import annotations

import socket

import pytest
import trio

from coordinator.api import BrokerEndpoint, BrokerInfo
from kafkawire.adapters.refusals import TIMEOUT_S, refusals


def broker(host: str, port: int) -> BrokerInfo:
    return BrokerInfo(1, (BrokerEndpoint("PLAINTEXT", "clients", 1), BrokerEndpoint("INSIDE", host, port)))


async def never(_host: str, _port: int) -> trio.abc.Stream:
    await trio.sleep_forever()
    raise AssertionError


async def without_route(_host: str, _port: int) -> trio.abc.Stream:
    raise OSError("no route to host")


async def half_refused(_host: str, _port: int) -> trio.abc.Stream:
    raise OSError("all attempts failed") from ExceptionGroup("", [ConnectionRefusedError(), OSError("no route")])


@pytest.mark.enforces("inter.broker.listener.name")
async def test_a_connection_check_uses_the_endpoint_of_the_inter_broker_listener() -> None:
    asked: list[tuple[str, int]] = []

    async def refuses(host: str, port: int) -> trio.abc.Stream:
        asked.append((host, port))
        raise ConnectionRefusedError

    assert await refusals(refuses, "INSIDE")(broker("host", 7))
    assert asked == [("host", 7)]
    assert not await refusals(refuses, "ANOTHER")(broker("host", 7))


async def test_silence_and_other_errors_say_nothing() -> None:
    before_s = trio.current_time()
    assert not await refusals(never, "INSIDE")(broker("host", 7))
    assert trio.current_time() - before_s == TIMEOUT_S
    assert not await refusals(without_route, "INSIDE")(broker("host", 7))
    assert not await refusals(half_refused, "INSIDE")(broker("host", 7))


def test_the_systems_own_words_are_understood() -> None:
    """Uses the real clock, because the operating system answers."""
    ask = refusals(trio.open_tcp_stream, "INSIDE")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert not trio.run(ask, broker("127.0.0.1", port))
    assert trio.run(ask, broker("127.0.0.1", port))
