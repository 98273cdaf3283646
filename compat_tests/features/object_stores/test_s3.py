"""The S3 back end: against a real server, and against scripted answers."""

from __future__ import annotations

import base64
import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c

from compat_tests.features.object_stores.clients import store_at
from compat_tests.features.object_stores.scripted import Reply, Request, ScriptedServer, error, reply
from compat_tests.harness.s3_server import SECRET_KEY, S3Server, s3_server
from engine.api import FileRange
from testkit.object_store_suite import Bytes, Conformance
from tiering.object_store import (
    Content,
    ContentUnreadable,
    ObjectExists,
    ObjectMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from tiering.stores import s3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tiering.stores.s3 import S3Store

_numbers = itertools.count(1)


@pytest.fixture
def anyio_backend() -> str:
    """trio with the real clock: a real server takes its time."""
    return "trio"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Store]:
    opened = store_at(server.endpoint, server.make_bucket(f"bucket-{next(_numbers)}"))
    yield opened
    opened.close()


class TestServer(Conformance):
    pass


async def test_a_put_with_a_wrong_checksum_stores_no_object(store: S3Store) -> None:
    """The server checks the CRC, and stores no object whose bytes changed on the way."""

    class Lying(Content):
        def slices(self) -> Iterator[bytes]:
            yield b"other bytes"

    with pytest.raises(StoreUnavailable):
        await store.put("a", Lying((b"these bytes",), crc32c(b"these bytes")))
    assert await store.head("a") is None


async def test_a_client_that_stops_in_the_middle_leaves_no_object(store: S3Store) -> None:
    """A partial body makes no object, because the server waits for a checksum; without one, VersityGW publishes it."""
    half = Bytes(bytes(5_000_000))
    with pytest.raises(ContentUnreadable):
        await store.put("a", Content((FileRange(half, 0, 10_000_000),), 1))
    assert await store.head("a") is None
    await store.put("a", Content.of(b"whole"))
    assert await store.get("a") == b"whole"


@pytest.mark.parametrize("bucket", ["no-such-bucket"])
async def test_requests_to_a_missing_bucket_raise_store_refused(server: S3Server, bucket: str) -> None:
    store = store_at(server.endpoint, bucket)
    asked: list[Callable[[], object]] = [
        lambda: store.put("a", Content.of(b"x")),
        lambda: store.get("a"),
        lambda: store.list_after(""),
    ]
    for ask in asked:
        with pytest.raises(StoreRefused, match="NoSuchBucket"):
            await ask()  # type: ignore[misc]


async def test_wrong_credentials_are_told_and_no_secret_is(server: S3Server) -> None:
    bucket = server.make_bucket(f"bucket-{next(_numbers)}")
    for store in (store_at(server.endpoint, bucket, "wrong"), store_at(server.endpoint, bucket, SECRET_KEY + "x")):
        with pytest.raises(StoreRefused, match="403") as refused:
            await store.put("a", Content.of(b"x"))
        assert SECRET_KEY not in str(refused.value)
    assert SECRET_KEY not in repr(store_at(server.endpoint).options)


async def test_a_put_without_a_server_raises_store_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await store_at("http://127.0.0.1:9").put("a", Content.of(b"x"))


# Possible answers of a server


async def asked(answer: Reply, ask: Callable[[S3Store], object]) -> object:
    with ScriptedServer(lambda _request: answer) as scripted:
        store = store_at(scripted.endpoint)
        try:
            return await ask(store)  # type: ignore[misc]
        finally:
            store.close()


def put(store: S3Store) -> object:
    return store.put("a", Content.of(b"content"), if_absent=True)


def get(store: S3Store) -> object:
    return store.get("a", 2, 4)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(503, "SlowDown"), StoreUnavailable),
        (error(500, "InternalError"), StoreUnavailable),
        (error(429, "TooManyRequests"), StoreUnavailable),
        (error(409, "ConditionalRequestConflict"), StoreUnavailable),
        (error(400, "BadDigest"), StoreUnavailable),
        (error(400, "RequestTimeout"), StoreUnavailable),
        (error(412, "PreconditionFailed"), ObjectExists),
        (error(403, "RequestTimeTooSkewed"), StoreRefused),
        (error(403, "AccessDenied"), StoreRefused),
        (error(404, "NoSuchBucket"), StoreRefused),
        (error(400, "InvalidRequest"), StoreRefused),
        (error(501, "NotImplemented"), StoreUnavailable),
        (error(301, "PermanentRedirect"), StoreRefused),
        (reply(307, Location="http://127.0.0.1:1/elsewhere"), StoreRefused),
        (reply(502, b"<html>a gateway"), StoreUnavailable),
        (Reply(b"", closes=True), StoreUnavailable),
        (Reply(b"HTTP/1.1 200 OK\r\nContent-Le", closes=True), StoreUnavailable),
        (Reply(b"this is no HTTP\r\n\r\n", closes=True), StoreUnavailable),
    ],
)
async def test_each_failed_reply_to_a_put_raises_its_store_error(answer: Reply, expected: type[StoreError]) -> None:
    with pytest.raises(expected):
        await asked(answer, put)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(404, "NoSuchKey"), ObjectMissing),
        (reply(404), ObjectMissing),
        (error(404, "NoSuchBucket"), StoreRefused),
        (reply(206, b"half", declared=8), StoreUnavailable),
        (error(503, "SlowDown"), StoreUnavailable),
    ],
)
async def test_each_failed_reply_to_a_get_raises_its_store_error(answer: Reply, expected: type[StoreError]) -> None:
    with pytest.raises(expected):
        await asked(answer, get)


async def test_a_part_behind_the_end_is_nothing() -> None:
    assert await asked(error(416, "InvalidRange"), get) == b""


async def test_a_reply_longer_than_the_range_raises_store_unavailable() -> None:
    for answer in (reply(206, bytes(20_000_000)), reply(206, b"three")):
        with pytest.raises(StoreUnavailable, match="longer than"):
            await asked(answer, get)


async def test_a_store_that_ignores_ranges_raises_store_refused() -> None:
    with pytest.raises(StoreRefused, match="ignores"):
        await asked(reply(200, b"whole"), get)
    assert await asked(reply(200, b"all"), lambda store: store.get("a")) == b"all"


async def test_nothing_of_an_object_is_nothing() -> None:
    assert await asked(reply(206, b"x"), lambda store: store.get("a", 0, 0)) == b""


async def test_a_reply_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "IO_TIMEOUT_S", 2.0)
    monkeypatch.setattr(s3, "CONNECT_TIMEOUT_S", 2.0)
    with pytest.raises(StoreUnavailable, match="too long"):
        await asked(reply(206, bytes(1000), drips=True), lambda store: store.get("a", 0, 1000))


async def test_a_listing_that_makes_no_sense_is_a_matter_of_time() -> None:
    for data in (b"<ListBucketResult><Contents>", b"not found in any XML", b""):
        with pytest.raises(StoreUnavailable):
            await asked(reply(200, data), lambda store: store.list_after("a/"))


async def test_a_reply_without_end_is_not_read_to_the_end() -> None:
    endless = reply(500, bytes(20_000_000))
    with pytest.raises(StoreUnavailable):
        await asked(endless, put)


@pytest.mark.parametrize("answer", [Reply(b"", stalls=True), Reply(reply(206, b"ha", declared=4).data, stalls=True)])
async def test_a_server_that_says_nothing_is_given_up(answer: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "IO_TIMEOUT_S", 0.3)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await asked(answer, get)
    assert time.monotonic() - began < 5


async def test_closing_the_store_ends_waiting_and_later_requests() -> None:
    with ScriptedServer(lambda _request: Reply(b"", stalls=True)) as scripted:
        store = store_at(scripted.endpoint)
        threading.Timer(0.3, store.close).start()
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.get("a")
        assert time.monotonic() - began < 5


async def test_requests_carry_signature_checksum_and_condition_on_one_connection() -> None:
    """Requests are signed, have a checksum and a condition; and successive requests share a connection."""

    def answer(request: Request) -> Reply:
        return reply(206, b"cont") if request.method == "GET" else reply(200)

    with ScriptedServer(answer) as scripted:
        store = store_at(scripted.endpoint)
        await store.put("a/b", Content.of(b"content"), if_absent=True)
        assert await store.get("a/b", 0, 4) == b"cont"
        store.close()
        put_request, get_request = scripted.requests
        assert (put_request.method, put_request.target) == ("PUT", "/bucket/a/b")
        assert put_request.body == b"content"
        assert put_request.headers["if-none-match"] == "*"
        assert (
            put_request.headers["x-amz-checksum-crc32c"]
            == base64.b64encode(crc32c(b"content").to_bytes(4, "big")).decode()
        )
        assert "x-amz-checksum-crc32c" in put_request.headers["authorization"]
        assert "transfer-encoding" not in put_request.headers
        assert get_request.headers["range"] == "bytes=0-3"
        assert scripted.connections == 1
