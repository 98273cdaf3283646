"""Whatever a peer sends over HTTP, it ends its own connection at most."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kafkawire.http.serve import CONNECTIONS_MAX, IDLE_TIMEOUT_S, SEND_TIMEOUT_S, Connections

LARGE = 64 << 20
WELL_MEANT = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
UPGRADE_H2C = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n"
)
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = bytes.fromhex("000000040000000000")
H2_BAD_PATH = (
    bytes.fromhex("00000a010500000001") + bytes.fromhex("828684") + b"\x44\x01\xff" + bytes.fromhex("41017800")
)
HOSTILE = {
    "upgrade with settings that are not base64": UPGRADE_H2C.replace(b"Settings: ", b"Settings: a"),
    "HTTP/2 path that is not UTF-8": H2_PREFACE + H2_SETTINGS + H2_BAD_PATH,
    "HTTP/2 data of a stream that there is not": H2_PREFACE + H2_SETTINGS + bytes.fromhex("000001000000000009") + b"x",
    "no HTTP": b"\x00\x00\x00\x10" + bytes(16),
    "end within the head": b"GET / HTTP/1.1\r\nHost",
}


async def answer(request: Request) -> Response:
    return PlainTextResponse("x" * (LARGE if request.url.path == "/large" else 1))


def application() -> Connections:
    return Connections(Starlette(routes=[Route("/", answer), Route("/large", answer)]))


@asynccontextmanager
async def connected(connections: Connections, nursery: trio.Nursery) -> AsyncIterator[trio.SocketStream]:
    ours, theirs = socket.socketpair()
    nursery.start_soon(connections.serve, stream_of(ours))
    async with stream_of(theirs) as stream:
        yield stream


def stream_of(end: socket.socket) -> trio.SocketStream:
    """trio's streams are of TCP; this one is of a pair."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(end))


async def ask(connections: Connections, request: bytes) -> bytes:
    received = b""
    async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
        await stream.send_all(request)
        await stream.send_eof()
        try:
            async for data in stream:
                received += data
        except trio.BrokenResourceError:
            pass
    return received


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_input_ends_its_own_connection(sent: bytes) -> None:
    connections = application()
    await ask(connections, sent)
    assert b"200" in await ask(connections, WELL_MEANT)


async def test_an_offer_of_http_2_is_answered_in_http_1() -> None:
    """As Java's client makes it with each first request; and the connection goes on."""
    received = await ask(application(), UPGRADE_H2C + WELL_MEANT)
    assert received.startswith(b"HTTP/1.1 200")
    assert (received.count(b"HTTP/1.1 200"), received.count(b"HTTP/1.1")) == (2, 2)


async def test_http_2_is_not_spoken() -> None:
    received = await ask(application(), H2_PREFACE + H2_SETTINGS)
    assert received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert H2_SETTINGS[3:5] not in received


async def test_who_asks_for_nothing_is_let_go() -> None:
    connections = application()
    async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
        await stream.send_all(WELL_MEANT[:10])
        begun = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - begun == pytest.approx(IDLE_TIMEOUT_S)


async def test_requests_follow_one_another_within_the_time_of_each() -> None:
    request = WELL_MEANT.replace(b"close", b"keep-alive")
    connections = application()
    async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
        for _ in range(3):
            await trio.sleep(IDLE_TIMEOUT_S * 0.9)
            await stream.send_all(request)
            received = b""
            while not received.endswith(b"\r\n\r\nx"):
                portion = await stream.receive_some()
                assert portion
                received += portion
        nursery.cancel_scope.cancel()


async def test_connections_are_bounded() -> None:
    connections = application()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        held = [await stack.enter_async_context(connected(connections, nursery)) for _ in range(CONNECTIONS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        assert await ask(connections, WELL_MEANT) == b""
        await held[0].aclose()
        answered = b""
        with trio.fail_after(60):
            while not answered:  # until it was seen that somebody left
                await trio.sleep(1)
                answered = await ask(connections, WELL_MEANT)
        assert b"200" in answered
        nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_is_let_go() -> None:
    connections = application()
    with trio.fail_after(2 * SEND_TIMEOUT_S):
        async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            while nursery.child_tasks:  # noqa: ASYNC110
                await trio.sleep(1)


async def test_stopping_does_not_wait_for_a_peer_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    async with stream_of(theirs) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(application().serve, stream_of(ours))
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await stream.receive_some(1)
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == begun
