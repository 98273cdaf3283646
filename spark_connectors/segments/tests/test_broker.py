"""Answers of a broker about sealed segments over HTTP, and their interpretation."""

from __future__ import annotations

import http.client
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from spark_connectors.segments.broker import BrokerCatalogue, fetch_document
from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed
from spark_connectors.wire import TopicPartition
from testkit.cold_broker import COLD, Cold, cold_broker
from testkit.sealed_segments import app_of, segments_of

PLACE = TopicPartition("t", 0)
ID = bytes(range(16))
URL = "http://one:9644"


def row(base: int, end: int, **fields: object) -> dict[str, object]:
    return {
        "base": base,
        "end": end,
        "size_bytes": 100,
        "max_timestamp_ms": 7,
        "min_timestamp_ms": -1,
        "records": end - base,
        "digest": "ab",
        "aborted": [[11, base, base]],
        "positions": [[base + 1, 50]],
        "object": f"key-{base}",
        "file": None,
        **fields,
    }


def answer(*rows: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {
        "format": 1,
        "topic_id": ID.hex(),
        "log_start": 0,
        "sealed_end": 40,
        "tier": "s3://bucket",
        "segments": list(rows),
        "next": None,
        **fields,
    }


def catalogue(*answers: Any, has_files: bool = False) -> tuple[BrokerCatalogue, list[tuple[str, Mapping[str, object]]]]:
    """Catalogue of brokers that give these answers in turn; an answer that is an exception is raised."""
    left, seen = list(answers), list[tuple[str, Mapping[str, object]]]()

    def ask(url: str, topic: str, query: Mapping[str, object]) -> Mapping[str, Any] | None:
        assert topic == "t"
        seen.append((url, query))
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    return BrokerCatalogue([URL, "http://two:9644"], ask, has_files=has_files), seen


def sealed(*answers: Any, start: int = 0, end: int = 40) -> Sealed | None:
    return catalogue(*answers)[0].sealed(PLACE, ID, start, end)


def test_pages_are_followed_as_far_as_they_are_wanted() -> None:
    pages = [answer(row(0, 10), next=10), answer(row(10, 20), row(20, 30), next=30), answer(row(30, 40))]
    asking, seen = catalogue(*pages)
    found = asking.sealed(PLACE, ID, 5, 40)
    assert found is not None
    assert [(one.base, one.end, one.key) for one in found.segments] == [
        (base, base + 10, f"key-{base}") for base in (0, 10, 20, 30)
    ]
    assert (found.log_start, found.end, found.store) == (0, 40, "s3://bucket")
    assert found.segments[1].aborted == ((11, 10, 10),)
    assert found.segments[1].positions == ((11, 50),)
    assert [query for _, query in seen] == [{"partition": 0, "from": first, "to": 40} for first in (5, 10, 30)]
    asking, seen = catalogue(*pages[:2], has_files=True)
    assert asking.sealed(PLACE, ID, 5, 30) is not None
    assert [query["files"] for _, query in seen] == ["true", "true"]


def test_sealed_end_is_the_end_of_the_last_returned_segment() -> None:
    """A page ends at its own end, whatever is sealed behind it."""
    found = sealed(answer(row(0, 10), row(10, 20)), end=15)
    assert found is not None
    assert found.end == 20
    assert sealed(answer(), start=40, end=50) == Sealed(PLACE, ID, 0, 0, (), "s3://bucket")


@pytest.mark.parametrize("told", [None, answer(format=2), answer(topic_id="00" * 16)])
def test_catalogue_returns_none_for_an_unknown_topic_or_format(told: object) -> None:
    assert sealed(told) is None


@pytest.mark.parametrize(
    "told",
    [
        {},
        answer(row(0, 10), next=0),
        answer(row(0, 10, size_bytes="x")),
        answer(row(0, 10, positions=[[1]])),
        answer(row(0, 10, aborted=7)),
        answer(row(0, 10), row(11, 20)),
        answer(row(0, 10), sealed_end=None),
        answer("segment"),  # type: ignore[arg-type]
    ],
)
def test_malformed_answer_is_not_used(told: object) -> None:
    with pytest.raises(CatalogueUnavailable):
        sealed(told, CatalogueUnavailable("the other one is away"))


def test_another_broker_is_asked_where_one_cannot_tell() -> None:
    asking, seen = catalogue(CatalogueUnavailable("503"), answer(row(0, 40)))
    assert asking.sealed(PLACE, ID, 0, 40) is not None
    assert [url for url, _ in seen] == [URL, "http://two:9644"]
    with pytest.raises(CatalogueUnavailable, match="http://one:9644: 503; http://two:9644: 500"):
        sealed(CatalogueUnavailable("503"), CatalogueUnavailable("500"))


async def test_catalogue_reads_the_answer_of_a_broker() -> None:
    async with cold_broker(1, 3) as cold:
        await trio.sleep(1)
        found = await _as_reported(cold)
        keys = [key for key in sorted(cold.deps.objects.objects) if "/topics/" not in key]
        assert [(one.base, one.end) for one in found.segments] == [(0, 1), (1, 2), (2, 3)]
        assert all(one.key in keys and one.aborted is None and len(one.digest) == 64 for one in found.segments)
        assert (found.end, found.log_start, found.store) == (3, 0, "s3://bucket/lake")


async def _as_reported(cold: Cold) -> Sealed:
    _, document = await segments_of(app_of(cold))
    topic_id = bytes.fromhex(document["topic_id"])
    asking = BrokerCatalogue([URL], lambda *_: document, has_files=False)
    found = asking.sealed(TopicPartition(COLD, 0), topic_id, 0, 3)
    assert found is not None
    return found


class Connection:
    """Fake of http.client's connection: `status` and `body` are its answer, `asked` is the request."""

    status = 200
    body: bytes | Exception = b"{}"
    asked: str = ""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.where = host, port, timeout

    def request(self, method: str, path: str) -> None:
        assert method == "GET"
        Connection.asked = path

    def getresponse(self) -> Connection:
        return self

    def read(self, _limit: int) -> bytes:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"format": 1}', {"format": 1}),
        (404, b'{"error": "there is no topic t"}', None),
        (503, b'{"error": "NOT_LEADER"}', "503 NOT_LEADER"),
        (200, b"[]", "200"),
        (200, b"\xff", r"200 b'\\xff'"),
        (200, b'{"format"', '200 b\'{"format"'),
        (404, b"Not Found", "404 b'Not Found'"),
        (200, ConnectionResetError("gone"), "ConnectionResetError"),
        (200, http.client.IncompleteRead(b""), "IncompleteRead"),
    ],
)
def test_how_a_broker_is_asked(
    status: int, body: bytes | Exception, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    monkeypatch.setattr(Connection, "status", status)
    monkeypatch.setattr(Connection, "body", body)
    if isinstance(expected, str):
        with pytest.raises(CatalogueUnavailable, match=expected):
            fetch_document(URL, "a/b c", {"partition": 1})
    else:
        assert fetch_document(URL, "a/b c", {"partition": 1}) == expected
    assert Connection.asked == "/v1/topics/a%2Fb%20c/segments?partition=1"


def test_broker_catalogue_can_be_pickled() -> None:
    original = BrokerCatalogue([URL], has_files=True)
    copy = pickle.loads(pickle.dumps(original))
    assert vars(copy) == vars(original)
