"""The machine between bytes and an application, without sockets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkawire.http.bodies import Bodies
from kafkawire.http.http1 import PORTION_BYTES, Http1, PeerClosed, Refused

GET = b"GET /a%20b?c=d HTTP/1.1\r\nHost: x:1\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n"
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
END = {"type": "http.response.body", "body": b"ok"}
# Pieces of requests, combined in any order.
PIECES = [
    b"GET", b"POST", b"HEAD", b"PRI", b" ", b"/", b"*", b"?", b"http://x", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0",
    b"\r\n", b"\r\n\r\n", b"\n", b"Host: x", b"Connection: close", b"Connection: Upgrade", b"Upgrade: h2c",
    b"Expect: 100-continue", b"Content-Length: 3", b"Content-Length: -1", b"Transfer-Encoding: chunked",
    b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffffffff\r\n", b": ", b"\x00", b"\xff", GET,
]  # fmt: skip


def machine() -> Http1:
    return Http1(("10.0.0.1", 1), ("10.0.0.2", 2), lambda: "now", Bodies())


def answered(http: Http1, *messages: dict[str, Any]) -> bytes:
    return b"".join(portion for message in messages for portion in http.answer(message))


def test_a_complete_request_is_passed_to_the_application_as_an_asgi_scope() -> None:
    http = machine()
    http.receive(GET[:20])
    assert http.request() is None
    http.receive(GET[20:])
    request = http.request()
    assert request is not None
    assert request.body == b""
    assert request.scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "query_string": b"c=d",
        "root_path": "",
        "headers": [(b"host", b"x:1"), (b"x-twice", b"1"), (b"x-twice", b"2")],
        "client": ("10.0.0.1", 1),
        "server": ("10.0.0.2", 2),
    }


def test_requests_and_answers_take_turns() -> None:
    http = machine()
    http.receive(GET + GET)
    for _ in range(2):
        assert http.request()
        assert list(http.answer(START)) == [], "it leaves with what follows"
        assert answered(http, END) == b"HTTP/1.1 200 \r\ncontent-length: 2\r\ndate: now\r\n\r\nok"
        assert http.next_cycle()
    assert http.request() is None
    http.receive(b"")
    with pytest.raises(PeerClosed):
        http.request()


def test_large_bodies_are_made_in_portions() -> None:
    http = machine()
    http.receive(GET)
    http.request()
    body = bytes(3 * PORTION_BYTES + 1)
    list(http.answer({"type": "http.response.start", "status": 200}))
    portions = list(http.answer({"type": "http.response.body", "body": body, "more_body": True}))
    assert len(portions) == 4
    assert max(map(len, portions)) < PORTION_BYTES + 1_000
    assert sum(portion.count(0) for portion in portions) == len(body)
    assert answered(http, {"type": "http.response.body"}) == b"0\r\n\r\n"


def test_after_the_beginning_of_an_answer_there_is_no_other() -> None:
    http = machine()
    http.receive(GET)
    http.request()
    list(http.answer(START))
    assert http.refuse(500, "too late") == b""


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=20))
@example([b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", GET])
@example([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_any_input_is_answered_or_refused(pieces: list[bytes]) -> None:
    http = machine()
    refusal = None
    try:
        for piece in [*pieces, b""]:
            http.receive(piece)
            while (request := http.request()) is not None:
                body = b"" if request.scope["method"] == "HEAD" else b"ok"
                assert answered(http, START, END).endswith(b"\r\n\r\n" + body)
                if not http.next_cycle():
                    return
            http.interim()
    except PeerClosed:
        return
    except Refused as refused:
        refusal = refused
    assert refusal is not None, "at the end of what comes it is known what to do"
    assert 400 <= refusal.status < 600
    assert http.refuse(refusal.status, "no").startswith(b"HTTP/1.1 %d " % refusal.status)
