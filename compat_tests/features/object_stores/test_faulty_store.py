"""Each fault does what its name says, shown with a real server and the broker's own client."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.features.object_stores.clients import store_at
from compat_tests.features.object_stores.faulty_store import FaultyStore
from compat_tests.features.object_stores.gate import Gate
from compat_tests.features.object_stores.store_faults import NO_FAULT, Always, Decision, Fault, StoreRequest, kind_of
from compat_tests.harness.s3_server import S3Server, s3_server
from tiering.object_store import Content, ObjectExists, StoreRefused, StoreUnavailable
from tiering.probe import probe
from tiering.stores import s3

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tiering.stores.s3 import S3Store

KEY = "of-a-test/0/manifest/7"
CONTENT = bytes(range(256)) * 1000
LATER_S = 3.0  # longer than the other requests take

T = TypeVar("T")

_numbers = itertools.count(1)


def ask(question: Coroutine[object, object, T]) -> T:
    """Ask a store on a loop of its own; the loop of the proxy runs in another thread."""

    async def answer() -> T:
        return await question

    return trio.run(answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


class Script:
    """A plan with one fault, for the first request of a kind."""

    def __init__(self, kind: str, decision: Decision) -> None:
        self._kind = kind
        self._decision = decision

    def decide(self, request: StoreRequest) -> Decision:
        return self._decision if (request.kind, request.number) == (self._kind, 1) else NO_FAULT


@contextmanager
def scene(
    server: S3Server, kind: str = "", fault: Fault = Fault.NONE, delay_s: float = 0.0, gate: Gate | None = None
) -> Iterator[tuple[FaultyStore, S3Store, S3Store]]:
    """The proxy, a store behind it, and the same store without the proxy. The first request of a kind has the fault."""
    bucket = server.make_bucket(f"bucket-{next(_numbers)}")
    with FaultyStore(server.endpoint, Script(kind, Decision(fault, delay_s, gate))) as proxy:
        store, direct = store_at(proxy.endpoint, bucket), store_at(server.endpoint, bucket)
        try:
            yield proxy, store, direct
        finally:
            store.close()
            direct.close()
        if fault is not Fault.NONE:
            assert proxy.faults() == {(kind, fault): 1}
    assert "faulty store" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("method", "key", "kind"),
    [
        ("PUT", "lake/cluster/topic/0/manifest/00000000000000000001", "PUT manifest"),
        ("HEAD", "lake/cluster/topic/0/collected/0000000000", "HEAD collected"),
        ("PUT", "lake/cluster/topic/0/page/0-1-0-a", "PUT page"),
        ("DELETE", "lake/cluster/topic/0/0-1-0-a", "DELETE segment"),
        ("GET", "probe/a", "GET probe"),
        ("LIST", "lake/cluster/topic/0/manifest/", "LIST manifest"),
        ("LIST", "lake/probe/", "LIST probe"),
        ("PUT", "lake/cluster/owner/0000000000", "PUT owner"),
    ],
)
def test_the_kind_of_a_request_follows_from_its_method_and_key(method: str, key: str, kind: str) -> None:
    assert kind_of(method, key) == kind


def test_a_proxy_without_faults_passes_requests_and_replies_on(server: S3Server) -> None:
    with scene(server) as (proxy, store, _):
        assert ask(probe(store, "", "name", round(time.time() * 1000))) is None
        ask(store.put(KEY, Content.of(CONTENT)))
        assert ask(store.get(KEY, 5, 1000)) == CONTENT[5:1005]
        assert ask(store.get(KEY)) == CONTENT
        assert proxy.requests()["GET manifest"] == 2
        assert not proxy.faults()


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (Fault.SLOW_DOWN, StoreUnavailable),
        (Fault.CONFLICT, StoreUnavailable),
        (Fault.SKEWED, StoreRefused),
        (Fault.REQUEST_LOST, StoreUnavailable),
        (Fault.REQUEST_CUT, StoreUnavailable),
    ],
)
def test_a_refused_or_lost_put_stores_no_object(server: S3Server, fault: Fault, raised: type[Exception]) -> None:
    with scene(server, "PUT manifest", fault) as (_, store, direct):
        with pytest.raises(raised):
            ask(store.put(KEY, Content.of(CONTENT)))
        assert ask(direct.head(KEY)) is None
        ask(store.put(KEY, Content.of(CONTENT)))
        assert ask(direct.get(KEY)) == CONTENT


def test_a_head_is_refused_without_a_word_and_the_connection_stays(server: S3Server) -> None:
    with scene(server, "HEAD manifest", Fault.SLOW_DOWN) as (_, store, _direct):
        with pytest.raises(StoreUnavailable, match="503"):
            ask(store.head(KEY))
        assert ask(store.head(KEY)) is None


def test_of_a_lost_reply_the_request_was_done(server: S3Server) -> None:
    with scene(server, "PUT manifest", Fault.REPLY_LOST) as (_, store, direct):
        with pytest.raises(StoreUnavailable):
            ask(store.put(KEY, Content.of(CONTENT), if_absent=True))
        assert ask(direct.get(KEY)) == CONTENT
        with pytest.raises(ObjectExists):
            ask(store.put(KEY, Content.of(b"other"), if_absent=True))


def test_a_late_put_stores_its_object_after_the_client_failed(server: S3Server) -> None:
    with scene(server, "PUT manifest", Fault.LATE, LATER_S) as (proxy, store, direct):
        with pytest.raises(StoreUnavailable):
            ask(store.put(KEY, Content.of(CONTENT)))
        assert ask(direct.head(KEY)) is None
        wait_until(lambda: proxy.held == 0, "it does not come")
        assert ask(direct.get(KEY)) == CONTENT


def test_a_put_lands_after_its_delete(server: S3Server) -> None:
    with scene(server, "PUT manifest", Fault.AFTER_DELETE) as (proxy, store, direct):
        with pytest.raises(StoreUnavailable):
            ask(store.put(KEY, Content.of(CONTENT)))
        time.sleep(LATER_S / 10)
        assert proxy.held == 1
        ask(store.delete(KEY))
        wait_until(lambda: proxy.held == 0, "it does not come")
        assert ask(direct.get(KEY)) == CONTENT


@pytest.mark.parametrize("fault", [Fault.SHORT_BODY, Fault.STALLED_BODY])
def test_half_of_a_body_is_none(server: S3Server, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "IO_TIMEOUT_S", LATER_S)
    with scene(server, "GET manifest", fault) as (_, store, _direct):
        ask(store.put(KEY, Content.of(CONTENT)))
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable):
            ask(store.get(KEY))
        assert (time.monotonic() - began_s >= LATER_S) == (fault is Fault.STALLED_BODY)
        assert ask(store.get(KEY)) == CONTENT


def test_a_bit_is_flipped(server: S3Server) -> None:
    with scene(server, "GET manifest", Fault.FLIPPED_BODY) as (_, store, _direct):
        ask(store.put(KEY, Content.of(CONTENT)))
        found = ask(store.get(KEY))
        assert sum((a ^ b).bit_count() for a, b in zip(found, CONTENT, strict=True)) == 1
        assert ask(store.get(KEY)) == CONTENT


def test_a_listing_is_stale(server: S3Server) -> None:
    class Second:
        def decide(self, request: StoreRequest) -> Decision:
            return Decision(Fault.STALE_LIST) if (request.kind, request.number) == ("LIST manifest", 2) else NO_FAULT

    bucket = server.make_bucket(f"bucket-{next(_numbers)}")
    with FaultyStore(server.endpoint, Second()) as proxy:
        store = store_at(proxy.endpoint, bucket)
        assert ask(store.list_after("of-a-test/0/manifest/")) == []
        ask(store.put(KEY, Content.of(CONTENT)))
        assert ask(store.list_after("of-a-test/0/manifest/")) == []
        assert [one.key for one in ask(store.list_after("of-a-test/0/manifest/"))] == [KEY]
        store.close()


def test_a_condition_is_ignored_and_the_probe_says_so(server: S3Server) -> None:
    with scene(server, "PUT manifest", Fault.UNCONDITIONAL) as (_, store, direct):
        ask(direct.put(KEY, Content.of(b"other")))
        ask(store.put(KEY, Content.of(CONTENT), if_absent=True))
        assert ask(direct.get(KEY)) == CONTENT
        with pytest.raises(ObjectExists):
            ask(store.put(KEY, Content.of(b"other"), if_absent=True))

    bucket = server.make_bucket(f"bucket-{next(_numbers)}")
    with FaultyStore(server.endpoint, Always(Decision(Fault.UNCONDITIONAL))) as proxy:
        store = store_at(proxy.endpoint, bucket)
        assert "ignores If-None-Match" in str(ask(probe(store, "", "name", round(time.time() * 1000))))
        store.close()


def test_each_request_is_held_up(server: S3Server) -> None:
    with scene(server, "HEAD manifest", Fault.NONE, LATER_S) as (_, store, _direct):
        began_s = time.monotonic()
        assert ask(store.head(KEY)) is None
        assert time.monotonic() - began_s >= LATER_S
        began_s = time.monotonic()
        assert ask(store.head(KEY)) is None
        assert time.monotonic() - began_s < LATER_S


@pytest.mark.parametrize(
    ("fault", "is_done"), [(Fault.REQUEST_LOST, False), (Fault.REQUEST_CUT, False), (Fault.REPLY_LOST, True)]
)
def test_a_request_waits_at_the_gate_until_the_gate_opens(server: S3Server, fault: Fault, is_done: bool) -> None:
    """When a request waits at the gate, the server has got all that it is to get, and the client has no answer."""
    gate = Gate()
    with scene(server, "PUT manifest", fault, gate=gate) as (_, store, direct):
        outcome: list[Exception] = []

        def put() -> None:
            try:
                ask(store.put(KEY, Content.of(CONTENT)))
            except StoreUnavailable as error:
                outcome.append(error)

        asking = threading.Thread(target=put)
        asking.start()
        assert gate.is_reached_within(30.0)
        assert (ask(direct.head(KEY)) is not None) == is_done
        time.sleep(LATER_S / 30)
        assert not outcome
        gate.open()
        asking.join()
        assert len(outcome) == 1


def test_a_store_is_unavailable_until_its_proxy_comes_back(server: S3Server) -> None:
    with scene(server) as (proxy, store, _):
        ask(store.put(KEY, Content.of(CONTENT)))
        for _ in range(2):
            proxy.go_away()
            with pytest.raises(StoreUnavailable):
                ask(store.get(KEY))
            proxy.come_back()
            assert ask(store.get(KEY)) == CONTENT


def test_once_faults_are_over_nothing_is_hit(server: S3Server) -> None:
    with scene(server) as (proxy, store, _):
        proxy.end_faults()
        ask(store.put(KEY, Content.of(CONTENT)))
        assert not proxy.faults()
