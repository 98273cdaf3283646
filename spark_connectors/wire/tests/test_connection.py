"""A request and its reply over a stream with faults."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkawire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafkawire.messages.metadata import MetadataRequest as MetadataAsked
from kafkawire.messages.metadata import MetadataResponse, MetadataResponseBroker
from spark_connectors.wire.connection import FIRST_BUFFER_BYTES, Connection, Settings
from spark_connectors.wire.errors import ConnectionLost, MalformedReply, ReplyTooLarge, Unsupported
from spark_connectors.wire.messages.metadata import METADATA, MetadataRequest
from spark_connectors.wire.tests.fakes import FakeBroker, FakeClock, FakeNetwork
from spark_connectors.wire.transport import Address, connect_tcp

ADDRESS = Address("one", 9092)
ASKED = MetadataRequest(topics=None)


class World:
    """A broker, and a clock."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.broker = FakeBroker((MetadataAsked, lambda _: MetadataResponse(cluster_id="c")))
        self.network = FakeNetwork(self.clock)
        self.network.brokers[ADDRESS] = self.broker
        self.settings = Settings(**settings)

    def open(self, within_s: float = 60) -> Connection:
        deadline_s = self.clock.now_s() + within_s
        return Connection.open(ADDRESS, self.network, self.settings, self.clock, deadline_s)

    def ask(self, connection: Connection, within_s: float = 60) -> str | None:
        return connection.call(METADATA, ASKED, self.clock.now_s() + within_s).cluster_id


def test_requests_in_a_row() -> None:
    world = World()
    connection = world.open()
    assert [world.ask(connection) for _ in range(3)] == ["c"] * 3
    assert world.broker.connections == 1
    assert [type(one).__name__ for one in world.broker.requests] == ["ApiVersionsRequest"] + ["MetadataRequest"] * 3


def test_a_long_reply_comes_in_pieces() -> None:
    world = World()
    host = "x" * 32_000
    rows = [MetadataResponseBroker(node_id=number, host=host) for number in range(5 * FIRST_BUFFER_BYTES // len(host))]
    world.broker.handlers[MetadataAsked] = lambda _: MetadataResponse(brokers=rows)
    answer = world.open().call(METADATA, ASKED, world.clock.now_s() + 60)
    assert [(one.node_id, one.host) for one in answer.brokers] == [(number, host) for number in range(len(rows))]


def test_buffer_grows_with_the_received_bytes() -> None:
    """Bytes of this reply or an earlier one count: a buffer that is allocated at once is not copied."""
    world = World()
    connection = world.open()
    brokers = [MetadataResponseBroker(host="x" * 32_000) for _ in range(5 * FIRST_BUFFER_BYTES // 32_000)]
    world.broker.handlers[MetadataAsked] = lambda _: MetadataResponse(brokers=brokers)
    world.ask(connection)
    assert max(world.broker.rooms_bytes) < 5 * FIRST_BUFFER_BYTES - 32_000
    world.ask(connection)
    assert max(world.broker.rooms_bytes) > 5 * FIRST_BUFFER_BYTES - 32_000


def test_refused_connection_raises_connection_lost() -> None:
    world = World()
    world.broker.is_down = True
    with pytest.raises(ConnectionLost, match="cannot connect to one:9092: Connection refused") as caught:
        world.open()
    assert not caught.value.was_sent


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_cannot_be(host: str) -> None:
    world = World()
    with pytest.raises(ConnectionLost, match="not the name of a host"):
        Connection.open(Address(host, 1), connect_tcp, world.settings, world.clock, world.clock.now_s() + 1)


def test_there_is_no_time_to_connect() -> None:
    with pytest.raises(ConnectionLost, match="the time for it is over"):
        World().open(within_s=0)


@pytest.mark.parametrize("deed", [FakeBroker.BREAK, FakeBroker.BREAK_AFTER, FakeBroker.SILENCE])
def test_a_connection_that_is_lost_is_of_no_use(deed: str) -> None:
    world = World()
    connection = world.open()
    world.broker.next.append(deed)
    with pytest.raises(ConnectionLost, match="no answer of one:9092 to Metadata") as caught:
        world.ask(connection)
    assert caught.value.was_sent
    assert connection.is_broken


def test_request_without_a_reply_raises_after_its_timeout() -> None:
    world = World(request_timeout_s=3)
    connection = world.open()
    world.broker.next.append(FakeBroker.SILENCE)
    begun_s = world.clock.now_s()
    with pytest.raises(ConnectionLost, match="the time for it is over"):
        world.ask(connection)
    assert world.clock.now_s() == begun_s + 3


def test_and_no_more_than_the_deadline_leaves() -> None:
    world = World()
    connection = world.open()
    world.broker.next.append(FakeBroker.SILENCE)
    begun_s = world.clock.now_s()
    with pytest.raises(ConnectionLost):
        world.ask(connection, within_s=2)
    assert world.clock.now_s() == begun_s + 2
    with pytest.raises(ConnectionLost) as caught:
        world.ask(world.open(), within_s=0)
    assert not caught.value.was_sent


def test_a_reply_that_is_too_large_is_not_received() -> None:
    world = World(reply_max_bytes=1000)
    connection = world.open()
    world.broker.next.append(struct.pack(">i", 1001))
    with pytest.raises(ReplyTooLarge, match="one:9092 answers Metadata with 1001 bytes, allowed 1000"):
        world.ask(connection)
    assert connection.is_broken


@pytest.mark.parametrize("reply", [struct.pack(">i", -1), struct.pack(">i", 3), struct.pack(">ii", 4, 99)])
def test_a_reply_that_is_none(reply: bytes) -> None:
    world = World()
    connection = world.open()
    world.broker.next.append(reply)
    with pytest.raises(MalformedReply, match="one:9092 does not answer Metadata as Kafka does"):
        world.ask(connection)
    assert connection.is_broken


@pytest.mark.parametrize("versions", [[], [ApiVersion(api_key=3, min_version=0, max_version=11)]])
def test_a_version_that_the_broker_does_not_have(versions: list[ApiVersion]) -> None:
    world = World()
    world.broker.handlers[ApiVersionsRequest] = lambda _: ApiVersionsResponse(api_keys=versions)
    with pytest.raises(Unsupported, match="one:9092 does not support Metadata 12"):
        world.ask(world.open())


def test_next_request_waits_for_the_throttle_time() -> None:
    world = World()
    world.broker.handlers[MetadataAsked] = lambda _: MetadataResponse(throttle_time_ms=1500)
    connection = world.open()
    world.ask(connection)
    assert world.clock.pauses_s == []
    world.ask(connection)
    assert world.clock.pauses_s == [1.5]
    with pytest.raises(ConnectionLost, match="throttles Metadata beyond the deadline") as caught:
        world.ask(connection, within_s=1)
    assert not caught.value.was_sent
