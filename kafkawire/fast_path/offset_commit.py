"""OffsetCommit of existing partitions of topics that all may be read.

The committer is known by the request's bytes (`request_prefix`). The offsets are read, and the reply is made, without
messages. Refusals of the group or of single offsets, and failures, go to the general path with the same outcome.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import trio

from coordinator.errors import GroupError
from coordinator.groups.api import Claim
from coordinator.groups.commands import CommitOffsets
from kafkawire.fast_path.fallback import Arrival, fail_on_general_path, on_general_path
from kafkawire.fast_path.offset_commit_shape import FIRST_VERSION_WITH_EPOCH, CommitShape, OtherShape
from kafkawire.fast_path.offset_commit_single import SingleCommits
from kafkawire.fast_path.request_prefix import RequestPrefixes
from kafkawire.fast_path.started_request import FastRequest
from kafkawire.handlers.offset_commit import commit, reply_about
from kafkawire.messages.offset_commit import API_KEY, OffsetCommitRequest
from kafkawire.requests.context import ANONYMOUS, Operation, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import CLIENT_ID_AT, CORRELATION_ID_AT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ClusterImage, Future, TopicInfo
    from kafkawire.fast_path.offset_commit_shape import DecodedCommit
    from kafkawire.requests.api import Api
    from kafkawire.requests.context import BrokerInterfaces
    from kafkawire.requests.started import Reply, StartedRequest
    from kafkawire.wire.connection_info import ConnectionInfo


class Committer(NamedTuple):
    """Committer of a request; `retention_ms` is the retention time of old clients."""

    group_id: str
    claim: Claim
    retention_ms: int


class _Shapes(NamedTuple):
    """Shapes of one version."""

    prefixes: RequestPrefixes[Committer]
    topics: CommitShape
    singles: SingleCommits[Committer] | None


class OffsetCommitFastPath:
    """Implements `kafkawire.requests.api.FastPath`."""

    def __init__(self, broker: BrokerInterfaces, api: Api) -> None:
        self._broker = broker
        self.metrics = broker.metrics
        self._api = api
        self._image: ClusterImage | None = None  # the image under which the singles were cached
        self._shapes = {version: _shapes(version) for version in range(api.served_min, api.max_version + 1)}

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        shapes = None if frame[2] else self._shapes.get(frame[3])
        if shapes is None:
            return None
        if self._image is not self._broker.cluster.image:
            self._forget()
        found = (shapes.singles and shapes.singles.read(frame)) or self._read(shapes, frame)
        return None if found is None else self._start(Arrival(frame, connection, now_s), *found)

    def _read(self, shapes: _Shapes, frame: bytearray) -> tuple[Committer, DecodedCommit] | None:
        assert self._image is not None
        try:
            end = shapes.prefixes.end(frame)
            decoded = shapes.topics.read(frame, end, self._image) if end else None
        except (OtherShape, IndexError, UnicodeDecodeError, struct.error):
            return None
        committer = shapes.prefixes.find(frame, end)
        if decoded is None or committer is None:
            return None
        if shapes.singles is not None:
            shapes.singles.learn(frame, committer, decoded)
        return committer, decoded

    def _forget(self) -> None:
        """Drop the caches, because the cluster has changed: a topic may have changed, or be gone."""
        self._image = self._broker.cluster.image
        for shapes in self._shapes.values():
            if shapes.singles is not None:
                shapes.singles.forget()

    def _start(self, arrival: Arrival, committer: Committer, decoded: DecodedCommit) -> StartedRequest:
        broker, api = self._broker, self._api
        counters = broker.metrics.by_api[API_KEY]
        counters.requests += 1
        counters.request_size_bytes += len(arrival.frame)
        topics, offsets, reply = decoded
        group_id, claim, retention_ms = committer
        try:
            found = self._authorized(arrival.connection, group_id, topics)
            if found is topics:
                pending = broker.groups.ask(CommitOffsets(group_id, claim, offsets, retention_ms))
                return FastOffsetCommit(self, arrival, topics, reply, pending)
        except Exception as error:
            return fail_on_general_path(broker, api, arrival, error)
        return on_general_path(broker, api, arrival, lambda context, request: commit(context, request, found))

    def _authorized(
        self, connection: ConnectionInfo, group_id: str, topics: list[TopicInfo]
    ) -> Sequence[TopicInfo] | Sequence[TopicInfo | ErrorCode]:
        """The topics, with error codes in place of the refused ones."""
        authorizer, host = self._broker.authorizer, connection.peer_host
        principal = connection.principal or ANONYMOUS
        if not authorizer(principal, host, Operation.READ, ResourceType.GROUP, group_id):
            return [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(topics)
        allowed = [authorizer(principal, host, Operation.READ, ResourceType.TOPIC, topic.name) for topic in topics]
        if all(allowed):
            return topics
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return [topic if may_read else refusal for topic, may_read in zip(topics, allowed, strict=True)]

    def reply_on_general_path(
        self, arrival: Arrival, topics: list[TopicInfo], pending: Future[list[GroupError | None]]
    ) -> Reply:
        """The reply of the general path, if some offsets were refused."""
        return on_general_path(
            self._broker, self._api, arrival, lambda context, request: reply_about(context, request, topics, pending)
        ).reply()


class FastOffsetCommit(FastRequest["Future[list[GroupError | None]]"]):
    """See `kafkawire.requests.started.StartedRequest`."""

    __slots__ = ("_arrival", "_fast_path", "_reply", "_topics")

    def __init__(
        self,
        fast_path: OffsetCommitFastPath,
        arrival: Arrival,
        topics: list[TopicInfo],
        reply: bytes,
        pending: Future[list[GroupError | None]],
    ) -> None:
        super().__init__(pending)
        self._fast_path = fast_path
        self._arrival = arrival
        self._topics = topics
        self._reply = reply

    def reply(self) -> Reply:
        try:
            is_refused = any(self._pending.result())
        except GroupError:
            is_refused = True
        if is_refused:
            return self._fast_path.reply_on_general_path(self._arrival, self._topics, self._pending)
        frame, _, received_s = self._arrival
        self._fast_path.metrics.by_api[API_KEY].latency.note(trio.current_time() - received_s)
        return [frame[CORRELATION_ID_AT:CLIENT_ID_AT] + self._reply]


def _committer(request: OffsetCommitRequest) -> Committer:
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    return Committer(request.group_id, claim, request.retention_time_ms)


def _shapes(version: int) -> _Shapes:
    singles = SingleCommits[Committer](version) if version >= FIRST_VERSION_WITH_EPOCH else None
    return _Shapes(RequestPrefixes(OffsetCommitRequest, version, _committer), CommitShape(version), singles)
