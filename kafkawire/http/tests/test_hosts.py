"""Host names of the HTTP listener: not a name that a stranger has pointed at it."""

from __future__ import annotations

import json

import pytest

from kafkawire.http.hosts import AllowedHosts
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import open_broker
from testkit.asgi import get_response


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:9644", "LOCALHOST", "localhost.", "127.0.0.1:9644", "[::1]", "[::1]:9644", "10.1.2.3",
        "[fe80::1%eth0]:9644", "broker.example:9644", "Broker.Example", "kafkawire", "kafkawire:9644",
    ],
)  # fmt: skip
def test_addresses_and_names_of_the_listener_are_admitted(host: str) -> None:
    assert AllowedHosts("broker.example", ["KafkaWire"]).admits(host)


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example", "rebound.example:9644", "localhost.rebound.example", "127.0.0.1.rebound.example", "",
        ":9644", "[rebound.example]", "*", "x-kafkawire", "0x7f.1", "2130706433",
    ],
)  # fmt: skip
def test_a_foreign_host_name_is_not_admitted(host: str) -> None:
    assert not AllowedHosts("broker.example", ["kafkawire"]).admits(host)


def test_a_listener_at_every_address_has_no_name() -> None:
    assert not AllowedHosts("0.0.0.0", []).admits("rebound.example")
    assert not AllowedHosts("", []).admits("")


def test_any_name_if_so_configured() -> None:
    assert AllowedHosts("127.0.0.1", ["*"]).admits("rebound.example")


@pytest.mark.enforces("http.allowed.hosts")
async def test_names_that_the_http_listener_is_asked_for_by() -> None:
    async with open_broker(http_listeners="", http_allowed_hosts="kafkawire,metrics.example") as opened:
        app = opened.broker.http_app(LoopWatch())
        for host in ("kafkawire:9644", "metrics.example", "127.0.0.1:9644", "localhost:9644"):
            assert (await get_response(app, "/health/live", host))[0] == 200
        for path in ("/health/live", "/metrics", "/v1/topics/t/messages", "/no/such/path"):
            status, body = await get_response(app, path, "rebound.example")
            assert status == 421
            assert "http.allowed.hosts" in json.loads(body)["error"]


async def test_a_request_without_a_host_header_is_answered() -> None:
    """Probes in HTTP/1.0 send no Host header; browsers always do."""
    async with open_broker() as opened:
        assert (await get_response(opened.broker.http_app(LoopWatch()), "/health/live"))[0] == 200
