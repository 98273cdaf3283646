"""Catalogue of sealed segments from a broker, over HTTP: docs/formats/sealed-segments.md."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed, Segment
from spark_connectors.wire import TopicPartition

FORMAT: Final = 1
TIMEOUT_S: Final = 30.0
ANSWER_MAX_BYTES: Final = 64 << 20
REASON_MAX_BYTES: Final = 200

Ask = Callable[[str, str, Mapping[str, object]], Mapping[str, Any] | None]  # URL, topic and query to the answer


class BrokerCatalogue:
    """Implements `spark_connectors.segments.sealed.Catalogue`. `urls`: HTTP listeners of brokers, tried in order.
    `has_files`: also ask for the paths of files.
    """

    def __init__(self, urls: Sequence[str], ask: Ask | None = None, *, has_files: bool) -> None:
        self._urls = tuple(urls)
        self._ask = ask or fetch_document
        self._has_files = has_files

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        """See the Protocol. A broker that does not lead the partition answers so, and the next one is asked."""
        reasons = []
        for url in self._urls:
            try:
                return self._sealed_of(url, place, topic_id, start, end)
            except CatalogueUnavailable as error:
                reasons.append(f"{url}: {error}")
        raise CatalogueUnavailable("; ".join(reasons))

    def _sealed_of(self, url: str, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        segments: list[Segment] = []
        following: int | None = start
        document: Mapping[str, Any] = {}
        while following is not None and following < end:
            query = {"partition": place.partition, "from": following, "to": end}
            answer = self._ask(url, place.topic, {**query, "files": "true"} if self._has_files else query)
            if answer is None:
                return None
            document = answer
            try:
                if document["format"] != FORMAT or document["topic_id"] != topic_id.hex():
                    return None
                segments += _segments(document["segments"])
                behind = document["next"]
                if behind is not None and not following < behind:
                    raise ValueError(f"after {following} comes {behind}")
            except (KeyError, TypeError, ValueError) as error:
                raise CatalogueUnavailable(f"an answer that makes no sense: {error!r}") from error
            following = behind
        return _joined(place, topic_id, document, segments) if document else None


def fetch_document(url: str, topic: str, query: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Ask a broker. None: there is no such topic or partition. Raises CatalogueUnavailable."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/v1/topics/{quote(topic, safe='')}/segments?{urlencode(query)}")
        response = connection.getresponse()
        status, body = response.status, response.read(ANSWER_MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise CatalogueUnavailable(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    document = _document(body)
    if status == http.client.OK and document is not None:
        return document
    if status == http.client.NOT_FOUND and document is not None:
        return None
    raise CatalogueUnavailable(f"{status} {(document or {}).get('error', body[:REASON_MAX_BYTES])}")


def _document(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _segments(rows: Sequence[Mapping[str, Any]]) -> Iterator[Segment]:
    """Parse segments. Raises KeyError, TypeError, ValueError."""
    for row in rows:
        described = row["aborted"]
        aborted = (
            None if described is None else tuple((int(one), int(first), int(last)) for one, first, last in described)
        )
        positions = tuple((int(offset), int(position)) for offset, position in row["positions"])
        yield Segment(
            base=int(row["base"]),
            end=int(row["end"]),
            size_bytes=int(row["size_bytes"]),
            max_timestamp_ms=int(row["max_timestamp_ms"]),
            digest=str(row["digest"]),
            aborted=aborted,
            positions=positions,
            key=row["object"],
            path=row["file"],
            min_timestamp_ms=int(row["min_timestamp_ms"]),
            records=int(row["records"]),
        )


def _joined(place: TopicPartition, topic_id: bytes, document: Mapping[str, Any], segments: Sequence[Segment]) -> Sealed:
    """Join the answers. Raises CatalogueUnavailable if the segments have gaps."""
    if any(one.end != following.base for one, following in pairwise(segments)):
        raise CatalogueUnavailable("segments that do not follow each other")
    try:
        log_start, end = int(document["log_start"]), int(document["sealed_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogueUnavailable(f"an answer that makes no sense: {error!r}") from error
    reached = segments[-1].end if segments else log_start
    return Sealed(place, topic_id, log_start, min(end, reached), tuple(segments), document.get("tier"))
