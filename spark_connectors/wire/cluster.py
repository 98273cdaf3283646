"""A cluster as connectors see it: the choice of a broker for each request, and retries.

Requests about partitions go to their leaders, requests about groups and transactional ids to their coordinators. Both
are cached until they refuse a request or do not answer. Repeatable requests are retried until a deadline, with growing
pauses: after a lost connection, and after an error that Kafka calls retriable. With `is_repeatable=False`, an unknown
outcome is an error at once. The class blocks, and is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, NamedTuple, Self, TypeVar

from spark_connectors.wire.api import Api, RequestT, ResponseT
from spark_connectors.wire.clock import Clock, SystemClock
from spark_connectors.wire.codes import RETRIABLE, ErrorCode
from spark_connectors.wire.connection import Connection, Settings
from spark_connectors.wire.errors import BrokerError, ConnectionLost, GaveUp, MalformedReply
from spark_connectors.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinated,
    FindCoordinatorRequest,
)
from spark_connectors.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from spark_connectors.wire.transport import Address, Connect, connect_tcp

_T = TypeVar("_T")

# Errors of a broker that is no coordinator any more, or not yet.
_COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class TopicPartition(NamedTuple):
    """A partition by the name of its topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions grouped by topic, as most requests need them."""
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place)
    return found


class Leader(NamedTuple):
    """The leader of a partition, and its epoch."""

    address: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionResult(Generic[_T]):
    """Result of one partition: an error code, the answer if there is no error, and the broker's error message."""

    place: TopicPartition
    code: int
    answer: _T
    message: str | None = None


FIRST_CONTACT_S: Final = 5.0  # on the driver: brokers that restart take longer, but a mistyped address is more likely


class Cluster:
    """Client of a cluster. It connects to brokers when necessary. `with` closes the connections.

    `first_contact_s`: how long to try while no broker has ever answered and every address refuses connections or has no
    host; None: as long as any other request.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: Settings | None = None,
        *,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        first_contact_s: float | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._first_contact_s = first_contact_s
        self._first_tried_s: float | None = None
        self._was_reached = False
        self._bootstrap = tuple(bootstrap)
        self._connect = connect
        self._clock = clock or SystemClock()
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._coordinators: dict[tuple[Coordinated, str], Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from all brokers. The next request connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self, names: Collection[str] | None, deadline_s: float | None = None) -> dict[str, MetadataTopic]:
        """Metadata of these topics, or of all. No topic is created, and missing ones are left out.

        Raises WireError; BrokerError for a topic that exists and cannot be described.
        """

        def attempt(deadline_s: float) -> dict[str, MetadataTopic]:
            found = {}
            for topic in self._metadata(names, deadline_s).topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    raise BrokerError(topic.error_code, f"topic {topic.name}")
                if topic.name is not None and not topic.error_code:
                    found[topic.name] = topic
            return found

        return self._with_retries(attempt, deadline_s)

    def count_partitions(self, topic: str, deadline_s: float | None = None) -> int:
        """Number of partitions of a topic to write to. If it is missing, and the cluster allows it, the topic is
        created; the call waits for it.

        Raises WireError; BrokerError for a topic that cannot be created.
        """

        def attempt(deadline_s: float) -> int:
            (found,) = self._metadata([topic], deadline_s, creates=True).topics
            if found.error_code:
                raise BrokerError(found.error_code, f"topic {topic}")
            return len(found.partitions)

        return self._with_retries(attempt, deadline_s)

    def at_any_broker(
        self,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        codes_of: Callable[[ResponseT], Iterable[int]],
        *,
        deadline_s: float | None = None,
        retry_on: Collection[int] = RETRIABLE,
    ) -> ResponseT:
        """Reply of any broker. Error codes in `retry_on` are retried; other ones are left to the caller. Raises
        WireError.
        """

        def attempt(deadline_s: float) -> ResponseT:
            reply = self._ask_any_broker(api, request, deadline_s)
            for code in codes_of(reply):
                if code in retry_on:
                    raise BrokerError(code, api.name)
            return reply

        return self._with_retries(attempt, deadline_s, retry_on)

    def at_leaders(
        self,
        api: Api[RequestT, ResponseT],
        partitions: Iterable[TopicPartition],
        request_for: Callable[[dict[TopicPartition, int]], RequestT],
        results_of: Callable[[ResponseT], Iterable[PartitionResult[_T]]],
        *,
        deadline_s: float | None = None,
        retry_on: Collection[int] = RETRIABLE,
        is_repeatable: bool = True,
    ) -> dict[TopicPartition, _T]:
        """Answers of the leaders of these partitions, with one request to each leader.

        `request_for` gets the partitions of one leader with their leader epochs. `results_of` returns the results in a
        reply. Raises WireError; BrokerError for a code that is not in `retry_on`.
        """
        answers: dict[TopicPartition, _T] = {}
        wanted = list(dict.fromkeys(partitions))

        def attempt(deadline_s: float) -> dict[TopicPartition, _T]:
            trouble: BrokerError | ConnectionLost | None = None
            left = [one for one in wanted if one not in answers]
            for address, theirs in self._by_leader(left, deadline_s).items():
                try:
                    reply = self._connection(address, deadline_s).call(api, request_for(theirs), deadline_s)
                except ConnectionLost as error:
                    self._forget(theirs)
                    if not is_repeatable and error.was_sent:
                        raise
                    trouble = error
                    continue
                trouble = self._take(api.name, theirs, results_of(reply), answers, retry_on) or trouble
            if trouble is not None:
                raise trouble
            return answers

        return self._with_retries(attempt, deadline_s, retry_on, is_repeatable=is_repeatable)

    def at_coordinator(
        self,
        kind: Coordinated,
        name: str,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        codes_of: Callable[[ResponseT], Iterable[int]],
        *,
        deadline_s: float | None = None,
        retry_on: Collection[int] = RETRIABLE,
        is_repeatable: bool = True,
    ) -> ResponseT:
        """Reply of the coordinator of this group or transactional id, without error codes.

        Raises WireError; BrokerError for the first code that is not in `retry_on`.
        """
        subject = f"{kind.name.lower().replace('_', ' ')} {name}"

        def attempt(deadline_s: float) -> ResponseT:
            address = self._coordinator(kind, name, deadline_s)
            try:
                reply = self._connection(address, deadline_s).call(api, request, deadline_s)
            except ConnectionLost:
                self._coordinators.pop((kind, name), None)
                raise
            codes = [code for code in codes_of(reply) if code != ErrorCode.NONE]
            if any(code in _COORDINATOR_MOVED for code in codes):
                self._coordinators.pop((kind, name), None)
            if codes:
                raise BrokerError(next((code for code in codes if code not in retry_on), codes[0]), subject)
            return reply

        return self._with_retries(attempt, deadline_s, retry_on, is_repeatable=is_repeatable)

    def _with_retries(
        self,
        attempt: Callable[[float], _T],
        deadline_s: float | None,
        retry_on: Collection[int] = RETRIABLE,
        *,
        is_repeatable: bool = True,
    ) -> _T:
        started_s = self._clock.now_s()
        end_s = started_s + self.settings.patience_s if deadline_s is None else deadline_s
        pause_s = self.settings.retry_first_s
        while True:
            try:
                return attempt(end_s)
            except ConnectionLost as error:
                if error.was_sent and not is_repeatable:
                    raise
                trouble: ConnectionLost | BrokerError = error
            except BrokerError as error:
                if error.code not in retry_on:
                    raise
                trouble = error
            if self._clock.now_s() + pause_s >= end_s or self._is_nothing_there(trouble):
                raise GaveUp(f"given up after {self._clock.now_s() - started_s:.1f} s: {trouble}") from trouble
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, self.settings.retry_max_s)

    def _is_nothing_there(self, trouble: ConnectionLost | BrokerError) -> bool:
        """Whether the time for a first contact is over, and no address has a broker as far as is known."""
        if self._first_contact_s is None or self._was_reached or self._first_tried_s is None:
            return False
        is_refused = isinstance(trouble, ConnectionLost) and trouble.is_refused
        return is_refused and self._clock.now_s() - self._first_tried_s >= self._first_contact_s

    def _connection(self, address: Address, deadline_s: float) -> Connection:
        known = self._connections.get(address)
        if known is not None and not known.is_broken:
            return known
        if self._first_tried_s is None:
            self._first_tried_s = self._clock.now_s()
        opened = Connection.open(address, self._connect, self.settings, self._clock, deadline_s)
        self._was_reached = True
        self._connections[address] = opened
        return opened

    def _ask_any_broker(self, api: Api[RequestT, ResponseT], request: RequestT, deadline_s: float) -> ResponseT:
        """Ask connected brokers first, then the bootstrap servers, then all other known brokers."""
        connected = [address for address, one in self._connections.items() if not one.is_broken]
        problems: list[ConnectionLost] = []
        for address in dict.fromkeys([*connected, *self._bootstrap, *self._brokers.values()]):
            try:
                return self._connection(address, deadline_s).call(api, request, deadline_s)
            except ConnectionLost as error:
                problems.append(error)
        text = "; ".join(dict.fromkeys(map(str, problems)))
        raise ConnectionLost(text, was_sent=False, is_refused=all(one.is_refused for one in problems))

    def _metadata(self, names: Collection[str] | None, deadline_s: float, *, creates: bool = False) -> MetadataResponse:
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in sorted(names))
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=creates)
        answer = self._ask_any_broker(METADATA, request, deadline_s)
        self._brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        for topic in answer.topics:
            for row in topic.partitions:
                leader = self._brokers.get(row.leader_id)
                if leader is not None and topic.name is not None:
                    partition = TopicPartition(topic.name, row.partition_index)
                    self._leaders[partition] = Leader(leader, row.leader_epoch)
        return answer

    def _by_leader(
        self, partitions: Collection[TopicPartition], deadline_s: float
    ) -> dict[Address, dict[TopicPartition, int]]:
        """Partitions by the address of their leader, with their leader epochs."""
        unknown = {one.topic for one in partitions if one not in self._leaders}
        if unknown:
            refused = {one.name: one.error_code for one in self._metadata(unknown, deadline_s).topics}
            for one in partitions:
                if one not in self._leaders:
                    is_there = refused.get(one.topic) == ErrorCode.NONE
                    code = ErrorCode.LEADER_NOT_AVAILABLE if is_there else refused.get(one.topic, -1)
                    raise BrokerError(code, str(one))
        grouped: dict[Address, dict[TopicPartition, int]] = {}
        for one in partitions:
            leader = self._leaders[one]
            grouped.setdefault(leader.address, {})[one] = leader.epoch
        return grouped

    def _take(
        self,
        name: str,
        requested: dict[TopicPartition, int],
        results: Iterable[PartitionResult[_T]],
        answers: dict[TopicPartition, _T],
        retry_on: Collection[int],
    ) -> BrokerError | None:
        """Store successful answers in `answers`. Returns an error that can be retried; raises another one."""
        refused: dict[TopicPartition, BrokerError] = {}
        for one in results:
            if one.code == ErrorCode.NONE:
                answers[one.place] = one.answer
            else:
                refused[one.place] = BrokerError(one.code, f"{name} of {one.place}", one.message)
        self._forget(refused)
        for error in refused.values():
            if error.code not in retry_on:
                raise error
        for partition in requested:
            if partition not in answers and partition not in refused:
                raise MalformedReply(f"the answer to {name} says nothing of {partition}")
        return next(iter(refused.values()), None)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._leaders.pop(partition, None)

    def _coordinator(self, kind: Coordinated, name: str, deadline_s: float) -> Address:
        known = self._coordinators.get((kind, name))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))
        for one in self._ask_any_broker(FIND_COORDINATOR, request, deadline_s).coordinators:
            if one.key == name:
                if one.error_code:
                    raise BrokerError(one.error_code, f"coordinator of {name}", one.error_message)
                self._coordinators[kind, name] = Address(one.host, one.port)
                return self._coordinators[kind, name]
        raise MalformedReply(f"the answer to FindCoordinator says nothing of {name}")
