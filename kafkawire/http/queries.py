"""Shared by the routes of topics: parameters, authorization, and error responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.responses import JSONResponse, Response

from engine.errors import EngineError
from kafkawire.requests.context import ANONYMOUS, Operation, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.topic_lookup import find_log

if TYPE_CHECKING:
    from starlette.requests import Request

    from coordinator.api import ClusterService, TopicInfo
    from engine.api import PartitionLog, PartitionStore
    from kafkawire.requests.context import Authorizer


LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})


class BadRequest(Exception):
    """An invalid request; the text gives the reason."""


class Refused(Exception):
    """A valid request that is refused. `more` are further fields of the response."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.status = status
        self.more = more


async def answered(ask: Callable[[], Awaitable[dict[str, Any]]]) -> Response:
    """The response with the result of `ask`, or with its error."""
    try:
        return JSONResponse(await ask())
    except BadRequest as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    except Refused as error:
        return JSONResponse({"error": str(error), **error.more}, status_code=error.status)
    except EngineError as error:
        return JSONResponse({"error": str(error)}, status_code=503)


@dataclass(frozen=True, slots=True)
class ReadableTopics:
    """Topics of this broker, for clients that are authorized."""

    cluster: ClusterService
    store: PartitionStore
    authorizer: Authorizer

    def topic(self, request: Request, *operations: Operation) -> TopicInfo:
        """The topic in the path, if the client may do the operations (READ by default). Raises Refused."""
        name, host = request.path_params["topic"], peer_of(request)
        for operation in operations or (Operation.READ,):
            if not self.authorizer(ANONYMOUS, host, operation, ResourceType.TOPIC, name):
                raise Refused(403, f"{name} may not be {_DONE[operation]}")
        topic = self.cluster.image.topics.get(name)
        if topic is None:
            raise Refused(404, f"there is no topic {name}")
        return topic

    def log(self, topic: TopicInfo, partition: int) -> PartitionLog:
        """The log of a partition. Raises Refused."""
        log = find_log(self.store, topic, partition)
        if log is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(404, f"{topic.name} has no partition {partition}")
        if isinstance(log, ErrorCode):
            raise Refused(503, f"{topic.name}-{partition}: {log.name}")
        return log


_DONE: Final = {Operation.READ: "read", Operation.WRITE: "written", Operation.ALTER: "altered"}


def peer_of(request: Request) -> str:
    """Address of the client."""
    return request.client.host if request.client else ""


def parameters(request: Request) -> dict[str, str]:
    """Query parameters, strictly decoded: U+FFFD for invalid UTF-8, as in Starlette, may be another record's key."""
    try:
        return dict(parse_qsl(request.scope["query_string"].decode(), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise BadRequest("the query is not UTF-8; for a key that is not, there is key_base64") from None


def check_known(given: Mapping[str, str], known: frozenset[str]) -> None:
    """Raise BadRequest for an unknown parameter."""
    unknown = sorted(set(given) - known)
    if unknown:
        raise BadRequest(f"unknown parameter {unknown[0]}")


def number(given: Mapping[str, str], name: str, default: int = 0, least: int = 0, most: int = 2**63 - 1) -> int:
    """The number in a parameter. Raises BadRequest."""
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and least <= int(text) <= most):
        raise BadRequest(f"{name} is not a number from {least} to {most}")
    return int(text)
