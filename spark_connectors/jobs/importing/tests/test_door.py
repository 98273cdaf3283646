"""Requests to append batches at their offsets, and the meaning of the answers."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

import pytest

from spark_connectors.jobs.importing import door
from spark_connectors.jobs.importing.door import CONTENT_TYPE, Door, door_of, knows
from spark_connectors.jobs.importing.errors import ImportRefused, Interrupted
from spark_connectors.segments.sealed import CatalogueUnavailable
from spark_connectors.wire import TopicPartition

URL = "http://here:9644"
ID = bytes(range(16))


class Connection:
    """Fake of http.client's connection: `status` and `body` are its answer, `asked` is the request."""

    status = 200
    body: bytes | Exception = b'{"log_start": 3, "log_end": 9}'
    asked: tuple[object, ...] = ()

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.where = host, port

    def request(self, *asked: object) -> None:
        Connection.asked = self.where, *asked

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
        (200, b'{"log_start": 3, "log_end": 9}', 9),
        (400, b'{"error": "CRC", "code": "CORRUPT_MESSAGE"}', ImportRefused),
        (403, b'{"error": "from this machine alone"}', ImportRefused),
        (404, b"Not Found", ImportRefused),
        (413, b"the body is too large", ImportRefused),
        (409, b'{"error": "the log end is 7, not 5", "code": "OFFSET_OUT_OF_RANGE"}', Interrupted),
        (409, b'{"error": "orders has another id, 00"}', ImportRefused),
        (503, b'{"error": "disk", "code": "KAFKA_STORAGE_ERROR"}', Interrupted),
        (200, ConnectionResetError("gone"), Interrupted),
        (200, http.client.IncompleteRead(b""), Interrupted),
    ],
)
def test_append_returns_the_log_end_or_raises_for_each_answer(
    status: int, body: bytes | Exception, expected: int | type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    monkeypatch.setattr(Connection, "status", status)
    monkeypatch.setattr(Connection, "body", body)
    with Door(URL) as opened:
        if isinstance(expected, int):
            assert opened.append(TopicPartition("a/b", 4), ID, 5, b"batches") == expected
        else:
            with pytest.raises(expected, match="a/b-4"):
                opened.append(TopicPartition("a/b", 4), ID, 5, b"batches")
    path = f"/v1/topics/a%2Fb/batches?partition=4&topic_id={ID.hex()}&log_end=5"
    assert Connection.asked == (("here", 9644), "POST", path, b"batches", {"Content-Type": CONTENT_TYPE})


def test_door_is_the_first_broker_that_answers_and_its_topic_id_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch_document(url: str, _topic: str, _query: Mapping[str, object]) -> Mapping[str, object] | None:
        if url == "http://away:1":
            raise CatalogueUnavailable("nobody")
        return {"topic_id": ID.hex()} if url == URL else None

    monkeypatch.setattr(door, "fetch_document", fetch_document)
    assert door_of(["http://away:1"], "t") is None
    assert door_of(["http://away:1", "http://other:2", URL], "t") == "http://other:2"
    assert knows(URL, "t", ID)
    assert not knows(URL, "t", bytes(16))
    assert not knows("http://other:2", "t", ID)
