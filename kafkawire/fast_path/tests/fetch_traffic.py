"""Generated Fetch requests: clients with sessions and without, and some that no client would send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkawire.fast_path.tests.two_brokers import PARTITIONS, TOPICS
from kafkawire.messages.fetch import API_KEY as FETCH
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kafkawire.requests.headers import decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

VERSIONS: Final = (4, 7, 10, *(11, 12, 13, 15, 16, 17, 18) * 4)
LIMITS: Final = (52_428_800, 52_428_800, 300, 1, 0, -1)
CLIENTS: Final = 4


class FetchClient:
    """Client that uses one version, and one session after the other."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.answered_by = -1  # correlation id of the reply that updates the state above


class FetchTraffic:
    """Generator of Fetch requests. It takes the ids of sessions from the replies."""

    def __init__(self, draw: Random, ids: Mapping[str, bytes]) -> None:
        self.ids = ids
        self._draw = draw
        self._correlation_id = 1 << 20
        self._clients = [FetchClient(draw.choice(VERSIONS[3:])) for _ in range(CLIENTS)]
        self._waiting: dict[int, FetchClient] = {}

    def learn(self, outcome: object) -> None:
        """Take the session from the reply to one of the requests; ignore other outcomes."""
        if not isinstance(outcome, bytes):
            return
        client = self._waiting.pop(int.from_bytes(outcome[:4], "big"), None)
        if client is not None:
            response: Any = decode_response(outcome, FETCH, client.version)[1]
            client.session_id = response.session_id
            client.epoch = client.epoch + 1 if response.session_id else 0

    def frame(self) -> bytes:
        """A frame, half of them from clients with sessions."""
        draw = self._draw
        self._correlation_id += 1
        if draw.random() < 0.5:
            client = draw.choice(self._clients)
            self._waiting[self._correlation_id] = client
            session, version = (client.session_id, client.epoch), client.version
        else:
            session, version = draw.choice(((0, -1), (0, -1), (0, -1), (7, 0), (9, 3))), draw.choice(VERSIONS)
        request = self._request(version, *session)
        frame = encode_request(request, version, self._correlation_id, draw.choice(("me", "me", "", None, "größer")))
        return frame + bytes(draw.choice((0, 0, 0, 0, 3)))

    def _request(self, version: int, session_id: int, epoch: int) -> FetchRequest:
        draw = self._draw
        topics = [self._topic() for _ in range(draw.choice((0, 1) if epoch > 0 else (1, 1, 1, 2, 3, 0)))]
        request = FetchRequest(
            max_wait_ms=draw.choice((0, 0, 0, 500, -1)),
            min_bytes=draw.choice((1, 1, 0, 5_000)),
            max_bytes=draw.choice(LIMITS),
            isolation_level=draw.choice((0, 1, 2)),
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            rack_id="rack" if version >= 11 and draw.random() < 0.2 else "",
        )
        if version < 15 and draw.random() < 0.02:
            request.replica_id = draw.choice((2, -2))
        if version >= 15 and draw.random() < 0.02:
            request.replica_state = ReplicaState(replica_id=2)
        if version >= 12 and draw.random() < 0.02:
            request.cluster_id = "cluster"
        if version >= 7 and draw.random() < 0.1:
            name = draw.choice(TOPICS)
            forgotten = ForgottenTopic(topic=name, topic_id=self._id_of(name), partitions=[0, 1])
            request.forgotten_topics_data = [forgotten]
        return request

    def _topic(self) -> FetchTopic:
        draw = self._draw
        name = draw.choice((*TOPICS, *TOPICS, "unknown"))
        count = draw.choice((1, 1, 2, PARTITIONS, 0))
        partitions = [self._partition() for _ in range(count)]
        return FetchTopic(topic=name, topic_id=self._id_of(name), partitions=partitions)

    def _partition(self) -> FetchPartition:
        draw = self._draw
        return FetchPartition(
            partition=draw.randrange(PARTITIONS + (draw.random() < 0.05)),
            current_leader_epoch=draw.choice((-1, -1, -1, -5, 0, 0, 9)) if draw.random() < 0.3 else -1,
            fetch_offset=draw.choice((0, 1, 10, 100, draw.randrange(300), 2**40, -1)),
            last_fetched_epoch=draw.choice((-1, 0, 0, 5)) if draw.random() < 0.2 else -1,
            partition_max_bytes=draw.choice(LIMITS),
        )

    def _id_of(self, name: str) -> bytes:
        return self.ids.get(name, bytes(range(16)))
