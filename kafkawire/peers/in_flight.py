"""The order of requests and replies on the peer connections to one broker. Pure.

Requests leave in the order in which they are made, all that wait together, and no request waits for an earlier reply.
Replies come in the same order, or the other side does not speak Kafka's protocol. If a connection is lost, the requests
under way on it fail, and the waiting requests use the next connection.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.shards.pending import Answer
from kafkawire.peers.errors import LinkFailed, SentBy
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.wire.primitives import DecodeError, EncodeError

if TYPE_CHECKING:
    from kafkawire.wire.message import Message

CORRELATION_IDS: Final = 2**31


class _Asked(NamedTuple):
    """A request and the future of its reply."""

    correlation_id: int
    api_key: int
    version: int
    frame: bytes
    deadline_s: float
    answer: Answer[Message]


class InFlightRequests:
    """Requests to one broker. `asked_max`: how many may wait or be under way."""

    def __init__(self, client_id: str, asked_max: int) -> None:
        self._client_id = client_id
        self._asked_max = asked_max
        self._last_correlation_id = 0
        self._waiting: deque[_Asked] = deque()
        self._under_way: deque[_Asked] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits to be sent."""
        return bool(self._waiting)

    @property
    def deadline_s(self) -> float:
        """The deadline of the oldest request without a reply, in seconds; deadlines grow in the order of requests."""
        oldest = self._under_way or self._waiting
        return oldest[0].deadline_s if oldest else inf

    def ask(self, request: Message, version: int, deadline_s: float) -> Answer[Message]:
        """The future of the reply. It fails with LinkFailed if there are too many requests, or `version` cannot carry
        this one."""
        answer: Answer[Message] = Answer()
        if len(self._waiting) + len(self._under_way) >= self._asked_max:
            answer.settle(LinkFailed(f"{self._asked_max} requests wait for that broker"))
            return answer
        correlation_id = (self._last_correlation_id + 1) % CORRELATION_IDS
        try:
            frame = encode_request(request, version, correlation_id, self._client_id)
        except EncodeError as error:
            answer.settle(LinkFailed(str(error)))
            return answer
        self._last_correlation_id = correlation_id
        self._waiting.append(_Asked(correlation_id, request.API_KEY, version, frame, deadline_s, answer))
        return answer

    def take(self) -> list[bytes]:
        """The waiting requests, which are under way from now on."""
        frames = [one.frame for one in self._waiting]
        self._under_way += self._waiting
        self._waiting.clear()
        return frames

    def answered(self, frame: bytearray) -> None:
        """Settle the oldest request with a reply frame (without its size). Raises DecodeError if the reply is not to
        that request."""
        if not self._under_way:
            raise DecodeError("a reply to nothing")
        asked = self._under_way[0]
        correlation_id, reply = decode_response(frame, asked.api_key, asked.version)
        if correlation_id != asked.correlation_id:
            raise DecodeError(f"a reply to request {correlation_id}, not {asked.correlation_id}")
        self._under_way.popleft()
        asked.answer.settle(reply)

    def lost(self, reason: str, sent_by: SentBy) -> None:
        """Fail the requests that are under way, because their connection is over."""
        lost, self._under_way = self._under_way, deque()
        for one in lost:
            one.answer.settle(LinkFailed(reason, sent_by))

    def unreachable(self, reason: str) -> None:
        """Fail the waiting requests, because there is no connection."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer.settle(LinkFailed(reason))


def failed(reason: str) -> Answer[Message]:
    """A future that has failed, for a request that cannot be sent to any broker."""
    answer: Answer[Message] = Answer()
    answer.settle(LinkFailed(reason))
    return answer
