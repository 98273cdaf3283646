"""Input of a peer over HTTP ends at most its own connection."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from kafkawire.http.bodies import BODY_BYTES_MAX, LARGE_AT_ONCE_MAX, LARGE_BODY_BYTES_MAX
from kafkawire.http.http1 import HEAD_BYTES_MAX
from kafkawire.http.serve import ANSWER_TIMEOUT_S, CONNECTIONS_MAX, IDLE_TIMEOUT_S, SEND_TIMEOUT_S, Connections
from kafkawire.requests.failures import LOGGED_PER_MINUTE_MAX

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


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def stream(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            await trio.sleep(1)
            yield b"piece %d;" % number

    return StreamingResponse(pieces())


async def stream_for_ever(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(1)
            yield b"more"

    return StreamingResponse(pieces())


async def fail(request: Request) -> Response:
    raise ZeroDivisionError


async def fail_midway(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun"
        raise ZeroDivisionError

    return StreamingResponse(pieces())


async def never(request: Request) -> Response:
    await trio.sleep_forever()
    raise AssertionError


def application() -> Connections:
    routes = [Route("/", answer), Route("/large", answer), Route("/echo", echo, methods=["POST"])]
    routes.append(Route("/v1/topics/{topic}/batches", echo, methods=["POST"]))
    more = [Route(f"/{path.__name__}", path) for path in (stream, stream_for_ever, fail, fail_midway, never)]
    return Connections(Starlette(routes=routes + more))


def get(path: str, *, method: str = "GET", version: str = "1.1", headers: str = "") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: x\r\n{headers}\r\n".encode()


@asynccontextmanager
async def connected(connections: Connections, nursery: trio.Nursery) -> AsyncIterator[trio.SocketStream]:
    ours, theirs = socket.socketpair()
    nursery.start_soon(connections.serve, stream_of(ours))
    async with stream_of(theirs) as stream:
        yield stream


def stream_of(end: socket.socket) -> trio.SocketStream:
    """A trio stream (which is for TCP) around one end of a socket pair."""
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
    """Java's client makes this offer with each first request; the connection goes on."""
    received = await ask(application(), UPGRADE_H2C + WELL_MEANT)
    assert received.startswith(b"HTTP/1.1 200")
    assert (received.count(b"HTTP/1.1 200"), received.count(b"HTTP/1.1")) == (2, 2)


async def test_http_2_is_not_spoken() -> None:
    received = await ask(application(), H2_PREFACE + H2_SETTINGS)
    assert received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert H2_SETTINGS[3:5] not in received


async def test_a_connection_without_a_complete_request_is_closed_after_the_idle_timeout() -> None:
    connections = application()
    async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
        await stream.send_all(WELL_MEANT[:10])
        started_s = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - started_s == pytest.approx(IDLE_TIMEOUT_S)


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
            while not answered:  # until the lost peer is noticed
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
        started_s = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() == started_s


async def test_a_head_request_is_answered_without_a_body() -> None:
    received = await ask(application(), get("/", method="HEAD") + WELL_MEANT)
    head, _, rest = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-length: 1" in head.lower()
    assert rest.startswith(b"HTTP/1.1 200"), "the next answer"
    assert (await ask(application(), get("/stream", method="HEAD"))).partition(b"\r\n\r\n")[2] == b""


async def test_an_answer_of_unknown_length_comes_in_chunks() -> None:
    received = await ask(application(), get("/stream"))
    assert b"transfer-encoding: chunked" in received.lower()
    assert received.endswith(b"\r\n8\r\npiece 0;\r\n8\r\npiece 1;\r\n8\r\npiece 2;\r\n0\r\n\r\n")
    older = await ask(application(), get("/stream", version="1.0"))
    assert older.endswith(b"\r\n\r\npiece 0;piece 1;piece 2;"), "and ends with its connection"


async def test_a_reply_has_the_date_and_connection_headers() -> None:
    head = (await ask(application(), WELL_MEANT)).lower()
    assert b"\r\ndate: " in head
    assert b"\r\nconnection: close\r\n" in head


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/", headers=f"X: {'x' * 2 * HEAD_BYTES_MAX}\r\n"), 431),
        (get("/" + "x" * 2 * HEAD_BYTES_MAX), 431),
        (get("/", version="2.0"), 505),
        (get("http://x/"), 400),
        (get("*", method="OPTIONS"), 400),
        (get("*", method="HEAD"), 400),
        (get("x:80", method="CONNECT"), 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (get("/echo", method="POST", headers="Content-Length: x\r\n"), 400),
        (get("/echo", method="POST", headers="Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        (get("/echo", method="POST", headers="Transfer-Encoding: gzip\r\n"), 501),
        (get("/echo", method="POST", headers="Transfer-Encoding: chunked\r\n") + b"x\r\n", 400),
        (get("/echo", method="POST", headers=f"Content-Length: {1 << 40}\r\n") + bytes(BODY_BYTES_MAX + 1), 413),
    ],
)
async def test_a_refused_request_gets_its_status_and_ends_its_connection(request_: bytes, status: int) -> None:
    received = await ask(application(), request_ + WELL_MEANT)
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert received.count(b"\r\ndate: ") == 1


@pytest.mark.parametrize("body", [b"", b"abc", bytes(BODY_BYTES_MAX)])
async def test_a_body_is_handed_on(body: bytes) -> None:
    posted = get("/echo", method="POST", headers=f"Content-Length: {len(body)}\r\n") + body
    assert (await ask(application(), posted)).endswith(b"\r\n\r\n" + body)
    chunked = get("/echo", method="POST", headers="Transfer-Encoding: chunked\r\n")
    chunked += (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    assert (await ask(application(), chunked)).endswith(b"\r\n\r\n" + body)


async def test_a_body_may_be_large_where_batches_are_taken_and_nowhere_else() -> None:
    body = bytes(LARGE_BODY_BYTES_MAX)
    for path, method, size_bytes, status in [
        ("/v1/topics/echo/batches?partition=0", "POST", LARGE_BODY_BYTES_MAX, 200),
        ("/v1/topics/echo/batches", "POST", LARGE_BODY_BYTES_MAX + 1, 413),
        ("/v1/topics/echo/batches", "PUT", BODY_BYTES_MAX + 1, 413),
        ("/v1/topics/echo/batches/more", "POST", BODY_BYTES_MAX + 1, 413),
        ("/echo?/v1/topics/echo/batches", "POST", BODY_BYTES_MAX + 1, 413),
    ]:
        posted = get(path, method=method, headers=f"Content-Length: {size_bytes}\r\nConnection: close\r\n")
        received = await ask(application(), posted + body[:size_bytes] + bytes(max(0, size_bytes - len(body))))
        assert received.startswith(b"HTTP/1.1 %d " % status), path


async def test_there_are_few_large_bodies_at_a_time() -> None:
    connections = application()
    head = get("/v1/topics/echo/batches", method="POST", headers=f"Content-Length: {BODY_BYTES_MAX + 2}\r\n")
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(connected(connections, nursery)) for _ in range(LARGE_AT_ONCE_MAX + 1)
        ]
        for stream in streams[:-1]:
            await stream.send_all(head + bytes(BODY_BYTES_MAX + 1))
            await trio.testing.wait_all_tasks_blocked()
        await streams[-1].send_all(head + bytes(BODY_BYTES_MAX + 1))
        assert (await streams[-1].receive_some()).startswith(b"HTTP/1.1 503 ")
        await streams[0].send_all(b"x")
        assert (await streams[0].receive_some()).startswith(b"HTTP/1.1 200 ")
        whole = head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + bytes(BODY_BYTES_MAX + 2)
        assert (await ask(connections, whole)).startswith(b"HTTP/1.1 200 "), "there is room again"
        nursery.cancel_scope.cancel()


async def test_a_client_that_expects_100_continue_gets_it_before_the_body() -> None:
    async with trio.open_nursery() as nursery, connected(application(), nursery) as stream:
        await stream.send_all(get("/echo", method="POST", headers="Content-Length: 3\r\nExpect: 100-continue\r\n"))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"abc")
        assert (await stream.receive_some()).endswith(b"abc")
        nursery.cancel_scope.cancel()


async def test_a_body_has_to_come_in_time() -> None:
    async with trio.open_nursery() as nursery, connected(application(), nursery) as stream:
        started_s = trio.current_time()
        await stream.send_all(get("/echo", method="POST", headers="Content-Length: 100\r\n"))
        for _ in range(3):
            await stream.send_all(b"x")
            await trio.sleep(IDLE_TIMEOUT_S / 4)
        assert await stream.receive_some() == b""
        assert trio.current_time() - started_s == pytest.approx(IDLE_TIMEOUT_S)


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    started_s = trio.current_time()
    assert (await ask(application(), get("/never"))).startswith(b"HTTP/1.1 503 ")
    assert trio.current_time() - started_s == pytest.approx(ANSWER_TIMEOUT_S)
    cut_off = await ask(application(), get("/stream_for_ever"))
    assert cut_off.startswith(b"HTTP/1.1 200 ")
    assert not cut_off.endswith(b"0\r\n\r\n")


async def test_a_failing_application_is_logged_and_ends_its_own_connection_alone() -> None:
    connections = application()
    with capture_logs() as logged:
        for _ in range(LOGGED_PER_MINUTE_MAX + 5):
            assert (await ask(connections, get("/fail"))).startswith(b"HTTP/1.1 500 ")
        started_s = await ask(connections, get("/fail_midway"))
        assert started_s.startswith(b"HTTP/1.1 200 ")
        assert not started_s.endswith(b"0\r\n\r\n")
        assert b"200" in await ask(connections, WELL_MEANT)
    assert [type(one["exc_info"]) for one in logged] == [ZeroDivisionError] * LOGGED_PER_MINUTE_MAX


async def test_a_peer_that_leaves_is_no_failure() -> None:
    connections = application()
    with capture_logs() as logged:
        async with trio.open_nursery() as nursery, connected(connections, nursery) as stream:
            await stream.send_all(get("/stream_for_ever"))
            assert await stream.receive_some()
            await stream.aclose()
    assert [one for one in logged if one["log_level"] != "debug"] == []


async def test_a_path_is_decoded_once() -> None:
    async def echo_path(request: Request) -> Response:
        return PlainTextResponse(f"{request.path_params['rest']} {request.query_params['q']}")

    connections = Connections(Starlette(routes=[Route("/at/{rest:path}", echo_path)]))
    received = await ask(connections, get("/at/%C3%A9%2525%20/%FF?q=%26%20x"))
    assert received.partition(b"\r\n\r\n")[2].decode() == "é%25 /\ufffd & x"
