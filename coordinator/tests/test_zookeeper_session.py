"""Each request of a ZooKeeper session has a deadline: a server may answer pings and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from kazoo.exceptions import ConnectionLoss

from coordinator.metadata_store.statistics import SessionStatistics
from coordinator.metadata_store.zookeeper_connection import ReceiveLimit
from coordinator.metadata_store.zookeeper_session import IN_FLIGHT_MAX, Servers, Session

STATISTICS = SessionStatistics(lambda: 0.0)
SERVERS = Servers("127.0.0.1:1", 1, 18_000, None)


class Silent:
    """A client whose connection is there, and whose server answers no request."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def _call(self, request: object, reply: object) -> None:
        self.asked.append(reply)


def session_with(client: Silent) -> Session:
    session = Session(SERVERS, lambda _: None, ReceiveLimit(), STATISTICS)
    session._client = client  # type: ignore[assignment]
    return session


async def test_a_request_without_an_answer_fails_at_its_deadline() -> None:
    session, began_s = session_with(Silent()), trio.current_time()
    with trio.fail_after(60), pytest.raises(ConnectionLoss):
        await session.ask("a request")
    assert trio.current_time() - began_s == pytest.approx(12.0)


async def test_a_request_that_waits_for_its_turn_has_the_same_deadline() -> None:
    client = Silent()
    session = session_with(client)
    failed: list[float] = []

    async def ask() -> None:
        with trio.fail_after(60), pytest.raises(ConnectionLoss):
            await session.ask("a request")
        failed.append(trio.current_time())

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT_MAX + 20):
            nursery.start_soon(ask)
    assert len(client.asked) == IN_FLIGHT_MAX
    assert max(failed) - began_s == pytest.approx(12.0)


async def test_a_late_answer_frees_the_place_of_its_request() -> None:
    client = Silent()
    session = session_with(client)
    with pytest.raises(ConnectionLoss):
        await session.ask("a request")
    client.asked[0].set("late")
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            assert await session.ask("another") == "in time"

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        client.asked[1].set("in time")
    await trio.testing.wait_all_tasks_blocked()
    assert session._in_flight.value == IN_FLIGHT_MAX
