"""Connection to a broker: versions, and each failure as a line."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from kafkawire.client.connection import CONNECT_TIMEOUT_S, Address, Connect, Connection, connect_tcp, parse_bootstrap
from kafkawire.client.errors import CannotConnect, ClientError, NotSupported
from kafkawire.client.tests.fake_cluster import FakeCluster
from kafkawire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkawire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

BROKER = Address("kafka-1", 9092)


def failing(error: BaseException) -> Connect:
    async def connect(address: Address) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise error

    return connect


async def answered(reply: bytes) -> str:
    """Text for the user when a broker answers the first request with these bytes."""

    async def connect(address: Address) -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        await theirs.send_all(reply)
        await theirs.send_stream.aclose()
        return ours

    with pytest.raises(ClientError) as failure:
        await Connection.open(BROKER, connect)
    return str(failure.value)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("broker", [("broker", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "a:b", "a:0", "a:65536", "a:-1", "PLAINTEXT://a:x"])
def test_no_bootstrap_servers(text: str) -> None:
    with pytest.raises(ClientError):
        parse_bootstrap(text)


def test_bootstrap_addresses_are_shown_as_they_were_written() -> None:
    assert [str(one) for one in parse_bootstrap("a:1,[::1]:2")] == ["a:1", "[::1]:2"]


async def test_the_highest_version_that_both_know() -> None:
    cluster = FakeCluster()
    cluster.versions[ListGroupsRequest.API_KEY] = (0, 3)
    connection = await Connection.open(BROKER, cluster.connect)
    await connection.call(ListGroupsRequest(), ListGroupsResponse)
    await connection.call(ListGroupsRequest(), ListGroupsResponse, at_most=1)
    assert [version for _, request, version in cluster.requests if isinstance(request, ListGroupsRequest)] == [3, 1]


@pytest.mark.parametrize(
    ("versions", "at_least", "wanted"),
    [(None, 0, "ListGroups"), ((0, 3), 4, "ListGroups 4 or later"), ((9, 12), 0, "ListGroups")],
)
async def test_a_version_that_the_broker_lacks(versions: Any, at_least: int, wanted: str) -> None:
    cluster = FakeCluster()
    cluster.versions[ListGroupsRequest.API_KEY] = versions
    connection = await Connection.open(BROKER, cluster.connect)
    assert connection.supports(ListGroupsRequest) == (versions is not None)
    with pytest.raises(NotSupported, match=f"^kafka-1:9092 does not support {wanted}$"):
        await connection.call(ListGroupsRequest(), ListGroupsResponse, at_least=at_least)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Error connecting to ('::1', 9092)"), "Connection refused"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
        (OSError("all failed"), "all failed"),
    ],
)
async def test_a_failed_connect_raises_cannot_connect_with_the_reason(error: OSError, reason: str) -> None:
    with pytest.raises(CannotConnect, match=f"^cannot connect to kafka-1:9092: {reason}$"):
        await Connection.open(BROKER, failing(error))


async def test_the_reason_is_that_of_an_address_of_the_host() -> None:
    """The error as trio reports it if no address can be reached."""
    error = OSError("all attempts to connect to kafka-1 failed")
    error.__cause__ = BaseExceptionGroup("several", [ConnectionRefusedError(111, "Connection refused"), OSError("x")])
    with pytest.raises(CannotConnect, match=r": Connection refused$"):
        await Connection.open(BROKER, failing(error))


async def test_a_broker_that_never_answers_is_given_up_after_the_connect_timeout() -> None:
    cluster = FakeCluster()
    cluster.silent.add(BROKER)
    started_s = trio.current_time()
    with pytest.raises(CannotConnect, match="no answer in 5 s"):
        await Connection.open(BROKER, cluster.connect)
    assert trio.current_time() - started_s == CONNECT_TIMEOUT_S


async def test_a_connection_that_is_given_up_is_closed() -> None:
    ours, theirs = memory_stream_pair()

    async def connect(address: Address) -> trio.abc.Stream:
        return ours

    with pytest.raises(CannotConnect):
        await Connection.open(BROKER, connect)
    while await theirs.receive_some():
        pass  # the request, and then the end of the stream


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (b"", "lost the connection to kafka-1:9092: closed by the broker"),
        (b"\0\0\0\x0a\0\0\0\1", "lost the connection to kafka-1:9092: closed by the broker"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "kafka-1:9092 does not answer ApiVersions as Kafka does"),
        (b"\0\0\0\2\0\0", "kafka-1:9092 does not answer ApiVersions as Kafka does"),
        (b"\0\0\0\7\0\0\0\1\0\0\0", "kafka-1:9092 does not answer ApiVersions as Kafka does"),
        (b"\0\0\0\x0a\0\0\0\2\0\0\0\0\0\0", "kafka-1:9092 answered another request than ApiVersions"),
    ],
)
async def test_an_invalid_or_missing_reply_is_an_error_that_names_the_broker(reply: bytes, line: str) -> None:
    assert (await answered(reply)).startswith(line)


async def test_a_field_too_long_for_the_version_raises_a_client_error() -> None:
    connection = await Connection.open(BROKER, FakeCluster().connect)
    with pytest.raises(ClientError, match=r"^DescribeGroups cannot carry this"):
        await connection.call(DescribeGroupsRequest(groups=["x" * 40_000]), DescribeGroupsResponse, at_most=4)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_a_name_that_no_host_can_have(host: str) -> None:
    with pytest.raises(CannotConnect, match=r"label (empty or )?too long"):
        await Connection.open(Address(host, 9092), connect_tcp)
