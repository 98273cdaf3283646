"""Client of a kafkawire's HTTP API that appends batches at their offsets: docs/formats/append-at-offset.md."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from spark_connectors.jobs.importing.errors import ImportRefused, Interrupted
from spark_connectors.segments.broker import fetch_document
from spark_connectors.segments.sealed import CatalogueUnavailable
from spark_connectors.wire import TopicPartition

CONTENT_TYPE: Final = "application/vnd.kafkawire.batches"
TIMEOUT_S: Final = 150.0  # a broker answers within two minutes, by an error if necessary
ANSWER_MAX_BYTES: Final = 1 << 20
REASON_MAX_BYTES: Final = 200
_AGAIN: Final = frozenset({500, 503})  # the outcome is unknown
_HAS_MOVED: Final = "OFFSET_OUT_OF_RANGE"  # the log ends elsewhere; any other conflict is permanent


def door_of(urls: Sequence[str], topic: str) -> str | None:
    """The first of these URLs at which a kafkawire answers, whether it has the topic or not; None: none does."""
    for url in urls:
        try:
            fetch_document(url, topic, {"partition": 0, "limit": 1})
        except CatalogueUnavailable:
            continue
        return url
    return None


def knows(url: str, topic: str, topic_id: bytes) -> bool:
    """Whether the broker belongs to the cluster that has this topic. Raises CatalogueUnavailable."""
    answer = fetch_document(url, topic, {"partition": 0, "limit": 1})
    return answer is not None and answer.get("topic_id") == topic_id.hex()


class Door:
    """Connection to one broker, for one task. `with` closes it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def append(self, place: TopicPartition, topic_id: bytes, log_end: int, body: bytes) -> int:
        """Append batches to a log that ends at `log_end`; returns its new end. Raises Interrupted if the outcome is
        unknown or the log ends elsewhere, and ImportRefused if a retry cannot help.
        """
        query = urlencode({"partition": place.partition, "topic_id": topic_id.hex(), "log_end": log_end})
        path = f"/v1/topics/{quote(place.topic, safe='')}/batches?{query}"
        try:
            self._connection.request("POST", path, body, {"Content-Type": CONTENT_TYPE})
            response = self._connection.getresponse()
            status, answer = response.status, _document(response.read(ANSWER_MAX_BYTES))
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request opens it again
            raise Interrupted(f"{place}: {type(error).__name__}: {error}") from error
        if status == http.client.OK:
            return int(answer["log_end"])
        reason = f"{place}: {status} {answer.get('code', '')} {answer.get('error', '')}"
        if status in _AGAIN or (status == http.client.CONFLICT and answer.get("code") == _HAS_MOVED):
            raise Interrupted(reason)
        raise ImportRefused(reason)


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"error": body[:REASON_MAX_BYTES].decode(errors="replace")}
