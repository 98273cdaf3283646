"""Cached parts of requests on the Produce fast path, and such a request from its appends to its reply."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

import trio

from engine.api import AppendResult
from kafkawire.fast_path.produce_shape import ROWS, ReplyRow
from kafkawire.fast_path.started_request import FastRequest
from kafkawire.handlers.common.pending_appends import PendingAppends
from kafkawire.handlers.produce import (
    ADMIN_CLIENT_ID,
    ALL_ACKS,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_ZSTD,
    Produced,
)
from kafkawire.messages.produce import API_KEY, PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.headers import CLIENT_ID_AT, CORRELATION_ID_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coordinator.api import TopicInfo
    from engine.api import PartitionLog, PendingAppend
    from kafkawire.fast_path.fallback import Arrival
    from kafkawire.fast_path.produce_shape import ReplyShape, TopicRows
    from kafkawire.requests.metrics import RequestMetrics
    from kafkawire.requests.started import Reply, StartedRequest


class ProducePrefix:
    """Values of a request's prefix, up to its topics."""

    __slots__ = ("acks", "allow_zstd", "is_admin", "timeout_ms", "timeout_s", "version")

    def __init__(self, request: ProduceRequest, version: int, client_id: str | None) -> None:
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.timeout_s = request.timeout_ms / 1000 if request.acks == ALL_ACKS else inf
        self.allow_zstd = version >= FIRST_VERSION_WITH_ZSTD
        self.is_admin = client_id == ADMIN_CLIENT_ID

    def request(self, topics: Iterable[tuple[Destination, Iterable[int]]]) -> ProduceRequest:
        """A request with this prefix, for these partitions of topics.

        It has no records, because the appends have them.
        """
        is_by_id = self.version >= FIRST_VERSION_WITH_IDS
        topic_data = []
        for destination, partitions in topics:
            topic, rows = destination.topic, [PartitionProduceData(index=index) for index in partitions]
            named = {"topic_id": topic.topic_id} if is_by_id else {"name": topic.name}
            topic_data.append(TopicProduceData(partition_data=rows, **named))
        return ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms, topic_data=topic_data)


class Destination:
    """A topic, and the logs of its requested partitions."""

    __slots__ = ("logs", "topic")

    def __init__(self, topic: TopicInfo) -> None:
        self.topic = topic
        self.logs: dict[int, PartitionLog] = {}


class Template:
    """Prefix of a request for one partition, up to the partition's index."""

    __slots__ = ("destination", "prefix", "reply_shape")

    def __init__(self, prefix: ProducePrefix, destination: Destination, reply_shape: ReplyShape) -> None:
        self.prefix = prefix
        self.destination = destination
        self.reply_shape = reply_shape


class ProducePath(Protocol):
    """The fast path."""

    metrics: RequestMetrics

    def finish_on_general_path(
        self, arrival: Arrival, produced: Sequence[Produced], request: ProduceRequest | None = None
    ) -> StartedRequest:
        """The request in the general path, with these appends."""


class FastProduce(FastRequest["PendingAppend"]):
    """Request with one batch for one partition; see `kafkawire.requests.started.StartedRequest`."""

    __slots__ = ("_fast_path", "_head", "_index", "_size_bytes", "_template")

    def __init__(
        self,
        fast_path: ProducePath,
        head: Arrival,
        template: Template,
        index: int,
        append: PendingAppend,
        size_bytes: int,
    ) -> None:
        """`head`: the bytes before the records. Only the append keeps the records."""
        super().__init__(append, head.now_s + template.prefix.timeout_s)
        self._fast_path = fast_path
        self._head = head
        self._template = template
        self._index = index
        self._size_bytes = size_bytes

    def call_when_released(self, callback: Callable[[], None]) -> None:
        self._pending.call_when_released(callback)

    def abandon(self) -> None:
        self._pending.stop_waiting()

    def reply(self) -> Reply:
        template, append = self._template, self._pending
        outcome = append.outcome if append.is_settled else None
        if not isinstance(outcome, AppendResult):
            produced = [Produced(template.destination.topic.name, append, self._log_start_offset, self._size_bytes)]
            request = template.prefix.request([(template.destination, [self._index])])
            return self._fast_path.finish_on_general_path(self._head, produced, request).reply()
        metrics = self._fast_path.metrics
        base_offset, last_offset, append_time_ms, log_start_offset = outcome
        topic = metrics.by_topic[template.destination.topic.name]
        topic.bytes_in += self._size_bytes
        topic.messages_in += last_offset - base_offset + 1
        metrics.by_api[API_KEY].latency.note(trio.current_time() - self._head.now_s)
        if not template.prefix.acks:
            return None
        correlation_id = self._head.frame[CORRELATION_ID_AT:CLIENT_ID_AT]
        return [template.reply_shape.reply(correlation_id, self._index, base_offset, append_time_ms, log_start_offset)]

    @property
    def _log_start_offset(self) -> int:
        return self._template.destination.logs[self._index].log_start_offset


class FastProduceSeveral(FastRequest[PendingAppends[None]]):
    """Batches for several partitions; see `kafkawire.requests.started.StartedRequest`."""

    __slots__ = ("_appends", "_fast_path", "_head", "_places", "_prefix", "_produced")

    def __init__(
        self,
        fast_path: ProducePath,
        head: Arrival,
        prefix: ProducePrefix,
        places: Sequence[tuple[Destination, TopicRows]],
        produced: Sequence[Produced],
        appends: Sequence[PendingAppend],
    ) -> None:
        """`head`: the bytes before the first records."""
        super().__init__(PendingAppends(appends, lambda: None, inf), head.now_s + prefix.timeout_s)
        self._fast_path = fast_path
        self._head = head
        self._prefix = prefix
        self._places = places
        self._produced = produced
        self._appends = appends

    def call_when_released(self, callback: Callable[[], None]) -> None:
        self._pending.call_when_released(callback)

    def abandon(self) -> None:
        self._pending.abandon()

    def reply(self) -> Reply:
        results = [append.outcome for append in self._appends if append.is_settled]
        appended = [result for result in results if isinstance(result, AppendResult)]
        if len(appended) < len(self._produced):
            topics = [
                (destination, [row.partition for row in requested.rows]) for destination, requested in self._places
            ]
            return self._fast_path.finish_on_general_path(
                self._head, self._produced, self._prefix.request(topics)
            ).reply()
        metrics = self._fast_path.metrics
        for one, result in zip(self._produced, appended, strict=True):
            counters = metrics.by_topic[one.topic]
            counters.bytes_in += one.size_bytes
            counters.messages_in += result.last_offset - result.base_offset + 1
        metrics.by_api[API_KEY].latency.note(trio.current_time() - self._head.now_s)
        return self._pack(appended) if self._prefix.acks else None

    def _pack(self, appended: Sequence[AppendResult]) -> Reply:
        remaining = iter(appended)
        topics = [
            (
                requested.named,
                [ReplyRow(row.partition, (one := next(remaining))[0], one[2], one[3]) for row in requested.rows],
            )
            for _, requested in self._places
        ]
        return [ROWS[self._prefix.version].reply(self._head.frame[CORRELATION_ID_AT:CLIENT_ID_AT], topics)]
