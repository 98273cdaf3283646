"""`POST /v1/topics/{topic}/batches`: append batches at their own offsets (docs/formats/append-at-offset.md).

The only route that changes something. So it is only for clients on this machine, and needs a content type that a
browser page cannot send to another host without a preflight request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.routing import Route

from engine import errors as log_errors
from engine.errors import EngineError, OffsetOutOfRange
from kafkawire.http.queries import (
    LOOPBACK,
    BadRequest,
    ReadableTopics,
    Refused,
    answered,
    check_known,
    number,
    parameters,
    peer_of,
)
from kafkawire.requests.context import Operation
from kafkawire.requests.errors import error_code_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from coordinator.api import TopicInfo
    from engine.api import TopicIdPartition

CONTENT_TYPE: Final = "application/vnd.kafkawire.batches"
_PARAMETERS: Final = frozenset({"partition", "topic_id", "log_end"})
_ID_DIGITS: Final = 32

# Errors of a batch itself: it is wrong at any time.
_WRONG: Final = (
    log_errors.CorruptMessage,
    log_errors.InvalidRecord,
    log_errors.InvalidTimestamp,
    log_errors.MessageTooLarge,
    log_errors.RecordListTooLarge,
    log_errors.RecordsRefused,
)


class Edges(Protocol):
    """Start and end of a log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class OffsetAppender(Protocol):
    """The part of `engine.append_at_offset.KeptBatches` that the route uses."""

    async def append(self, partition: TopicIdPartition, records: memoryview, end_offset: int | None = None) -> Edges:
        """Append batches. Raises EngineError."""


@dataclass(frozen=True, slots=True)
class Query:
    """Target of the batches. `end_offset` is the expected end of the log; None if the sender does not give it."""

    partition: int
    topic_id: bytes
    end_offset: int | None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Query:
        """Parse the parameters. Raises BadRequest."""
        check_known(given, _PARAMETERS)
        if missing := sorted({"partition", "topic_id"} - set(given)):
            raise BadRequest(f"{missing[0]} is missing")
        end_offset = number(given, "log_end") if "log_end" in given else None
        return cls(number(given, "partition"), _id_of(given["topic_id"]), end_offset)


class KeptBatchesRoute:
    """The route that appends to the logs of this broker."""

    def __init__(self, topics: ReadableTopics, appender: OffsetAppender) -> None:
        self._topics = topics
        self._appender = appender

    def routes(self) -> list[Route]:
        return [Route("/v1/topics/{topic}/batches", self._respond, methods=["POST"])]

    async def _respond(self, request: Request) -> Response:
        async def ask() -> dict[str, Any]:
            if request.headers.get("content-type") != CONTENT_TYPE:
                raise Refused(415, f"batches are {CONTENT_TYPE}")
            if peer_of(request) not in LOOPBACK:
                raise Refused(403, "batches are accepted only from this machine")
            query = Query.parse(parameters(request))
            topic = self._topics.topic(request, Operation.WRITE, Operation.ALTER)
            return await self._append(topic, query, memoryview(bytearray(await request.body())))

        return await answered(ask)

    async def _append(self, topic: TopicInfo, query: Query, records: memoryview) -> dict[str, Any]:
        if topic.internal:
            raise Refused(403, f"{topic.name} is written by the broker alone")
        if topic.topic_id != query.topic_id:
            raise Refused(409, f"{topic.name} has another id, {topic.topic_id.hex()}")
        log = self._topics.log(topic, query.partition)
        try:
            edges = await self._appender.append(log.partition, records, query.end_offset)
        except OffsetOutOfRange as error:
            raise Refused(409, str(error), code=error_code_of(error).name, log_end=log.log_end_offset) from error
        except _WRONG as error:
            raise Refused(400, str(error), code=error_code_of(error).name) from error
        except EngineError as error:
            raise Refused(503, str(error), code=error_code_of(error).name) from error
        return {"log_start": edges.log_start_offset, "log_end": edges.log_end_offset}


def _id_of(text: str) -> bytes:
    """Parse a topic id. Raises BadRequest."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(text) != _ID_DIGITS or len(found) * 2 != _ID_DIGITS:
        raise BadRequest(f"topic_id is not {_ID_DIGITS} hexadecimal digits")
    return found
