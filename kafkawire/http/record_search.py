"""`GET /v1/topics/{topic}/messages`: records by key, time or offset, as JSON. It reads records with read_committed.

A response is limited in records, bytes and seconds; `next` leads to the rest. Partitions follow one another, records
are in the order of their offsets.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import trio
from starlette.routing import Route

from engine.api import FoundRecord, PartitionLog, RecordFilter
from kafkawire.http.queries import BadRequest, ReadableTopics, answered, check_known, number, parameters

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from coordinator.api import TopicInfo

COUNT_DEFAULT: Final = 100
COUNT_MAX: Final = 1_000
ANSWER_BYTES: Final = 8 * 1024 * 1024
ANSWER_S: Final = 2.0
SEARCHES_MAX: Final = 4  # at a time; further ones wait
_PARAMETERS: Final = frozenset({"key", "key_base64", "from", "to", "offset", "partition", "limit", "after"})


@dataclass(frozen=True, slots=True)
class Query:
    """A search: the wanted records, in one partition or in all, from an offset of a partition on."""

    wanted: RecordFilter
    partition: int | None
    first: tuple[int, int]
    count_max: int

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Query:
        """Parse the parameters. Raises BadRequest."""
        check_known(given, _PARAMETERS)
        by_content = {"key", "key_base64", "from", "to"} & set(given)
        if bool(by_content) is ("offset" in given) or {"key", "key_base64"} <= by_content:
            raise BadRequest("ask by key or key_base64, by from and to, or by offset")
        partition = number(given, "partition") if "partition" in given else None
        if "offset" in given and partition is None:
            raise BadRequest("offset needs a partition")
        wanted = RecordFilter(
            _key(given),
            _time_ms(given["from"]) if "from" in given else RecordFilter().from_ms,
            _time_ms(given["to"]) if "to" in given else RecordFilter().to_ms,
        )
        first = _position(given["after"]) if "after" in given else (partition or 0, number(given, "offset", 0))
        if partition not in (None, first[0]):
            raise BadRequest("after is of another partition")
        return cls(wanted, partition, first, number(given, "limit", COUNT_DEFAULT, 1, COUNT_MAX))


class RecordSearch:
    """Runs searches in the logs of this broker."""

    def __init__(self, topics: ReadableTopics) -> None:
        self._topics = topics
        self._turns = trio.CapacityLimiter(SEARCHES_MAX)

    def routes(self) -> list[Route]:
        return [Route("/v1/topics/{topic}/messages", self._respond)]

    async def _respond(self, request: Request) -> Response:
        async def ask() -> dict[str, Any]:
            query = Query.parse(parameters(request))
            topic = self._topics.topic(request)
            async with self._turns:
                return await self._search(topic, query)

        return await answered(ask)

    async def _search(self, topic: TopicInfo, query: Query) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        deadline = trio.current_time() + ANSWER_S
        size_bytes = 0
        partition, offset = query.first
        last = len(topic.partitions) - 1 if query.partition is None else query.partition
        while partition <= last:
            log = self._log(topic, partition, query)
            while offset < log.last_stable_offset:
                if len(found) >= query.count_max or size_bytes >= ANSWER_BYTES or trio.current_time() >= deadline:
                    return _answer(topic, found, f"{partition}:{offset}")
                step = await log.find_records(query.wanted, offset, query.count_max - len(found))
                found += (_as_json(partition, record) for record in step.records)
                size_bytes += sum(record.size_bytes for record in step.records)
                offset = step.next_offset
            partition, offset = partition + 1, 0
        return _answer(topic, found, None)

    def _log(self, topic: TopicInfo, partition: int, query: Query) -> PartitionLog:
        log = self._topics.log(topic, partition)
        if query.wanted.key is not None and not log.has_key_index:
            raise BadRequest(f"{topic.name} is not indexed by key: that takes the topic config index.keys=true")
        return log


def _answer(topic: TopicInfo, messages: Sequence[dict[str, Any]], following: str | None) -> dict[str, Any]:
    return {"topic": topic.name, "messages": messages, "next": following}


def _as_json(partition: int, record: FoundRecord) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if record.is_log_append_time else "CreateTime",
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": _text(key), "value": _text(value)} for key, value in record.headers],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: a string if they are UTF-8, else base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _key(given: Mapping[str, str]) -> bytes | None:
    if "key" in given:
        return given["key"].encode()
    if "key_base64" not in given:
        return None
    try:
        return base64.b64decode(given["key_base64"], validate=True)
    except ValueError:  # for example binascii.Error, or non-ASCII text
        raise BadRequest("key_base64 is not base64") from None


def _time_ms(text: str) -> int:
    """Milliseconds since the epoch, or an ISO 8601 date and time; UTC by default."""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text!r} is neither milliseconds since 1970 nor an ISO 8601 time") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _position(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    return number({"after": partition}, "after", most=2**31 - 1), number({"after": offset}, "after")
