"""The order of requests and replies on the peer connections to one broker. Pure.

Requests leave in the order in which they are made, all that wait together, and no request waits for an earlier reply.
Replies come in the same order, or the other side does not speak Kafka's protocol. If a connection is lost, the requests
under way on it fail, and the waiting requests use the next connection.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.futures import SettableFuture
from kafkawire.peers.errors import LinkFailed, SentBy
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.wire.primitives import DecodeError, EncodeError

if TYPE_CHECKING:
    from kafkawire.wire.message import Message

CORRELATION_IDS: Final = 2**31


class _QueuedRequest(NamedTuple):
    """A request and the future of its reply."""

    correlation_id: int
    api_key: int
    version: int
    frame: bytes
    deadline_s: float
    answer: SettableFuture[Message]


class InFlightRequests:
    """Requests to one broker. `requests_max`: how many may wait or be under way."""

    def __init__(self, client_id: str, requests_max: int) -> None:
        self._client_id = client_id
        self._requests_max = requests_max
        self._last_correlation_id = 0
        self._waiting: deque[_QueuedRequest] = deque()
        self._under_way: deque[_QueuedRequest] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits to be sent."""
        return bool(self._waiting)

    @property
    def deadline_s(self) -> float:
        """The deadline of the oldest request without a reply, in seconds; deadlines grow in the order of requests."""
        oldest = self._under_way or self._waiting
        return oldest[0].deadline_s if oldest else inf

    def ask(self, request: Message, version: int, deadline_s: float) -> SettableFuture[Message]:
        """The future of the reply. It fails with LinkFailed if there are too many requests, or `version` cannot carry
        this one."""
        answer: SettableFuture[Message] = SettableFuture()
        if len(self._waiting) + len(self._under_way) >= self._requests_max:
            answer.settle(LinkFailed(f"{self._requests_max} requests wait for that broker"))
            return answer
        correlation_id = (self._last_correlation_id + 1) % CORRELATION_IDS
        try:
            frame = encode_request(request, version, correlation_id, self._client_id)
        except EncodeError as error:
            answer.settle(LinkFailed(str(error)))
            return answer
        self._last_correlation_id = correlation_id
        self._waiting.append(_QueuedRequest(correlation_id, request.API_KEY, version, frame, deadline_s, answer))
        return answer

    def take(self) -> list[bytes]:
        """The waiting requests, which are under way from now on."""
        frames = [one.frame for one in self._waiting]
        self._under_way += self._waiting
        self._waiting.clear()
        return frames

    def settle_oldest(self, frame: bytearray) -> None:
        """Settle the oldest request with a reply frame (without its size). Raises DecodeError if the reply is not to
        that request."""
        if not self._under_way:
            raise DecodeError("a reply to nothing")
        oldest = self._under_way[0]
        correlation_id, reply = decode_response(frame, oldest.api_key, oldest.version)
        if correlation_id != oldest.correlation_id:
            raise DecodeError(f"a reply to request {correlation_id}, not {oldest.correlation_id}")
        self._under_way.popleft()
        oldest.answer.settle(reply)

    def fail_sent(self, reason: str, sent_by: SentBy) -> None:
        """Fail the requests that are under way, because their connection is over."""
        sent, self._under_way = self._under_way, deque()
        for one in sent:
            one.answer.settle(LinkFailed(reason, sent_by))

    def fail_waiting(self, reason: str) -> None:
        """Fail the waiting requests, because there is no connection."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.answer.settle(LinkFailed(reason))


def failed_reply(reason: str) -> SettableFuture[Message]:
    """A future that has failed, for a request that cannot be sent to any broker."""
    answer: SettableFuture[Message] = SettableFuture()
    answer.settle(LinkFailed(reason))
    return answer
