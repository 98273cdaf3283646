"""Leaders and coordinators move, and brokers leave and return: the choice of a broker, retries, and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkawire.messages.end_txn import EndTxnRequest as EndTxnAsked
from kafkawire.messages.end_txn import EndTxnResponse as EndTxnAnswer
from kafkawire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafkawire.messages.fetch import FetchRequest as FetchAsked
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kafkawire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.messages.list_offsets import ListOffsetsRequest as ListOffsetsAsked
from kafkawire.messages.list_offsets import ListOffsetsResponse as ListOffsetsAnswer
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_connectors.wire import (
    FIRST_CONTACT_S,
    Address,
    BrokerError,
    Cluster,
    ConnectionLost,
    Coordinated,
    ErrorCode,
    GaveUp,
    MalformedReply,
    PartitionResult,
    ReplyTooLarge,
    Settings,
    TopicPartition,
)
from spark_connectors.wire.messages.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from spark_connectors.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from spark_connectors.wire.messages.fetch import FetchResponse as Fetched
from spark_connectors.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from spark_connectors.wire.tests.fakes import FakeBroker, FakeClock, FakeNetwork
from spark_connectors.wire.transport import Stream

FIRST, SECOND = Address("one", 9092), Address("two", 9092)
IDS = {1: FIRST, 2: SECOND}
OURS = [TopicPartition("t", 0), TopicPartition("t", 1)]
TOPIC_ID = b"t" * 16


class World:
    """Two brokers, a topic with two partitions, each led by one of them, and a transactional id."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.network = FakeNetwork(self.clock)
        self.leaders = {0: 1, 1: 2}
        self.epoch = 5
        self.coordinator = 1
        self.refusals: list[int] = []  # codes for the next requests other than metadata and coordinators
        self.topic_error = 0
        for address in IDS.values():
            self.network.brokers[address] = FakeBroker(
                (MetadataRequest, self.metadata),
                (ListOffsetsAsked, self.offsets),
                (FindCoordinatorRequest, self.find),
                (EndTxnAsked, lambda _: EndTxnAnswer(error_code=self.refusal())),
                (FetchAsked, self.fetch),
            )
        self.one, self.two = self.network.brokers[FIRST], self.network.brokers[SECOND]
        self.cluster = Cluster([FIRST], Settings(**settings), connect=self.network, clock=self.clock)

    def refusal(self) -> int:
        return self.refusals.pop(0) if self.refusals else 0

    def metadata(self, request: Any) -> MetadataResponse:
        rows = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=self.epoch)
            for index, leader in self.leaders.items()
        ]
        known = {"t": MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=rows, error_code=self.topic_error)}
        names = known if request.topics is None else [one.name for one in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=key, host=one.host, port=one.port) for key, one in IDS.items()],
            topics=[known.get(name, MetadataResponseTopic(name=name, error_code=3)) for name in names],
        )

    def offsets(self, request: Any) -> ListOffsetsAnswer:
        (topic,) = request.topics
        rows = [
            ListOffsetsPartitionResponse(
                partition_index=one.partition_index, error_code=self.refusal(), offset=100 + one.partition_index
            )
            for one in topic.partitions
        ]
        return ListOffsetsAnswer(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=rows)])

    def fetch(self, request: Any) -> FetchResponse:
        row = PartitionData(partition_index=0, error_code=self.refusal(), records=memoryview(b"abc"))
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])])

    def find(self, request: Any) -> FindCoordinatorResponse:
        place = IDS[self.coordinator]
        rows = [Coordinator(key=key, host=place.host, port=place.port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)

    def ask(self, partitions: Iterable[TopicPartition] = OURS, **how: Any) -> dict[TopicPartition, int]:
        return self.cluster.at_leaders(LIST_OFFSETS, partitions, offsets_wanted, offset_results, **how)

    def end(self, **how: Any) -> EndTxnResponse:
        request = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)
        kind = Coordinated.TRANSACTIONAL_ID
        return self.cluster.at_coordinator(kind, "x", END_TXN, request, lambda reply: [reply.error_code], **how)


def offsets_wanted(theirs: dict[TopicPartition, int]) -> ListOffsetsRequest:
    rows = [
        ListOffsetsPartition(partition_index=one.partition, current_leader_epoch=epoch, timestamp=-1)
        for one, epoch in theirs.items()
    ]
    return ListOffsetsRequest(isolation_level=0, topics=(ListOffsetsTopic(name="t", partitions=tuple(rows)),))


def offset_results(reply: ListOffsetsResponse) -> Iterable[PartitionResult[int]]:
    for topic in reply.topics:
        for row in topic.partitions:
            yield PartitionResult(TopicPartition(topic.name, row.partition_index), row.error_code, row.offset)


EXPECTED = {OURS[0]: 100, OURS[1]: 101}


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    world = World()
    assert world.ask() == EXPECTED
    (asked,) = world.two.asked(ListOffsetsAsked)
    assert [(one.partition_index, one.current_leader_epoch) for one in asked.topics[0].partitions] == [(1, 5)]
    assert world.ask() == EXPECTED
    assert len(world.one.asked(MetadataRequest)) == 1


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_leader_moves(code: ErrorCode) -> None:
    world = World()
    world.ask()
    world.leaders, world.epoch = {0: 1, 1: 1}, 6
    world.refusals = [0, code]
    assert world.ask() == EXPECTED
    asked = world.one.asked(ListOffsetsAsked)[-1]
    assert [(one.partition_index, one.current_leader_epoch) for one in asked.topics[0].partitions] == [(1, 6)]
    assert world.clock.pauses_s == [0.1]


def test_a_leader_that_is_lost_is_looked_for_again() -> None:
    world = World()
    world.ask()
    world.two.is_down = True
    world.leaders = {0: 1, 1: 1}
    assert world.ask() == EXPECTED


def test_a_partition_without_a_leader_gets_one() -> None:
    world = World(patience_s=10)
    world.leaders = {0: 1, 1: -1}
    with pytest.raises(GaveUp, match=r"given up after \d.\d s: t-1: LEADER_NOT_AVAILABLE"):
        world.ask()
    assert 9 < sum(world.clock.pauses_s) < 10
    assert world.clock.pauses_s[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_a_refusal_that_patience_does_not_help() -> None:
    world = World()
    world.refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError, match="ListOffsets of t-0: TOPIC_AUTHORIZATION_FAILED") as caught:
        world.ask()
    assert not caught.value.is_retriable
    assert world.clock.pauses_s == []


@pytest.mark.parametrize("deed", [FakeBroker.BREAK, FakeBroker.BREAK_AFTER, FakeBroker.SILENCE])
def test_a_connection_is_lost(deed: str) -> None:
    world = World(request_timeout_s=5)
    world.ask()
    world.two.next.append(deed)
    assert world.ask() == EXPECTED
    assert world.two.connections == 2


@pytest.mark.parametrize("deed", [FakeBroker.BREAK_AFTER, FakeBroker.SILENCE])
def test_unrepeatable_request_is_not_repeated_after_a_lost_connection(deed: str) -> None:
    world = World()
    world.ask()
    world.end()
    world.one.next.append(deed)
    with pytest.raises(ConnectionLost):
        world.end(is_repeatable=False)
    world.two.next.append(deed)
    with pytest.raises(ConnectionLost):
        world.ask([OURS[1]], is_repeatable=False)


def test_unrepeatable_request_is_repeated_if_it_was_not_sent() -> None:
    world = World()
    world.end()
    world.cluster.close()
    world.one.is_down = True
    world.two.is_down = False
    world.coordinator = 2
    with pytest.raises(GaveUp):
        world.end(is_repeatable=False)  # the bootstrap server is down, and there is no other connection
    world.one.is_down = False
    assert world.end(is_repeatable=False).error_code == 0


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_moves(code: ErrorCode) -> None:
    world = World()
    world.end()
    world.coordinator = 2
    world.refusals = [code]
    world.end()
    assert len(world.two.asked(EndTxnAsked)) == 1


def test_a_coordinator_is_busy() -> None:
    world = World()
    world.refusals = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    world.end()
    assert world.clock.pauses_s == [0.1, 0.2, 0.4]
    assert len(world.one.asked(FindCoordinatorRequest)) == 1


def test_a_coordinator_refuses_for_good() -> None:
    world = World()
    world.refusals = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(BrokerError, match="transactional id x: PRODUCER_FENCED"):
        world.end()


def test_a_coordinator_is_not_found_for_a_while() -> None:
    world = World()
    answers = [
        FindCoordinatorResponse(coordinators=[Coordinator(key="x", error_code=15, error_message="soon")]),
        world.find(FindCoordinatorRequest(coordinator_keys=["x"])),
    ]
    world.one.handlers[FindCoordinatorRequest] = lambda _: answers.pop(0)
    assert world.end().error_code == 0


def test_a_deadline_of_the_callers() -> None:
    world = World()
    world.one.is_down = True
    begun_s = world.clock.now_s()
    with pytest.raises(GaveUp, match="cannot connect to one:9092"):
        world.ask(deadline_s=begun_s + 3)
    assert world.clock.now_s() <= begun_s + 3


def test_a_first_contact_is_given_up_soon_if_no_process_listens() -> None:
    """A mistyped address: 5 s, and at once at the next attempt, instead of a minute each."""
    world = World()
    world.one.is_down = True
    cluster = Cluster([FIRST], Settings(), connect=world.network, clock=world.clock, first_contact_s=FIRST_CONTACT_S)
    begun_s = world.clock.now_s()
    for _ in range(3):
        with pytest.raises(GaveUp, match="cannot connect to one:9092: Connection refused"):
            cluster.topics(["t"])
    assert FIRST_CONTACT_S <= world.clock.now_s() - begun_s < FIRST_CONTACT_S + 2
    world.one.is_down = False
    assert cluster.topics(["t"])
    world.one.is_down = world.two.is_down = True
    cluster.close()
    begun_s = world.clock.now_s()
    with pytest.raises(GaveUp):
        cluster.topics(["t"])
    assert world.clock.now_s() - begun_s > 50, "a broker that was there may come back"


def test_a_broker_that_does_not_answer_is_given_its_time_at_a_first_contact() -> None:
    world = World()

    def silent(address: Address, timeout_s: float) -> Stream:
        world.clock.sleep(timeout_s)
        raise TimeoutError

    cluster = Cluster([FIRST], Settings(), connect=silent, clock=world.clock, first_contact_s=FIRST_CONTACT_S)
    begun_s = world.clock.now_s()
    with pytest.raises(GaveUp):
        cluster.topics(["t"])
    assert world.clock.now_s() - begun_s > 50


def test_the_bootstrap_server_goes_and_others_are_known() -> None:
    world = World()
    world.ask()
    world.one.is_down = True
    world.leaders = {0: 2, 1: 2}
    assert world.ask() == EXPECTED
    world.cluster.close()
    assert world.ask() == EXPECTED


def test_reply_without_the_requested_item_is_malformed() -> None:
    world = World()
    world.one.handlers[ListOffsetsAsked] = lambda _: ListOffsetsAnswer()
    with pytest.raises(MalformedReply, match="says nothing of t-0"):
        world.ask()
    world.one.handlers[FindCoordinatorRequest] = lambda _: FindCoordinatorResponse()
    with pytest.raises(MalformedReply, match="says nothing of x"):
        world.end()


def test_a_reply_that_is_too_large_is_not_asked_for_again() -> None:
    world = World(reply_max_bytes=2000)
    world.ask()
    world.one.next.append(b"\x7f\xff\xff\xff")
    with pytest.raises(ReplyTooLarge):
        world.ask()
    assert world.clock.pauses_s == []


def test_topics() -> None:
    world = World()
    assert list(world.cluster.topics(None)) == ["t"]
    assert world.cluster.topics(["gone"]) == {}
    (topic,) = world.cluster.topics(["gone", "t"]).values()
    assert topic.topic_id == TOPIC_ID
    assert [one.partition_index for one in topic.partitions] == [0, 1]


def test_lookup_of_topics_raises_the_error_of_the_broker_or_gives_up() -> None:
    world = World()
    world.topic_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerError, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        world.cluster.topics(["t"])
    world.topic_error = ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(GaveUp):
        world.cluster.topics(["t"])


def test_a_topic_that_is_not_there_is_waited_for() -> None:
    world = World(patience_s=5)
    with pytest.raises(GaveUp, match="gone-0: UNKNOWN_TOPIC_OR_PARTITION"):
        world.ask([TopicPartition("gone", 0)])


def fetch(world: World, **how: Any) -> dict[TopicPartition, Any]:
    def wanted(theirs: dict[TopicPartition, int]) -> FetchRequest:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10)
        topics = (FetchTopic(topic_id=TOPIC_ID, partitions=(row,)),)
        return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10, isolation_level=0, topics=topics)

    def results_in(reply: Fetched) -> Iterable[PartitionResult[Any]]:
        return [
            PartitionResult(OURS[0], row.error_code, row.records)
            for topic in reply.responses
            for row in topic.partitions
        ]

    return world.cluster.at_leaders(FETCH, [OURS[0]], wanted, results_in, **how)


def test_an_unknown_topic_id_may_become_known() -> None:
    world = World()
    world.refusals = [ErrorCode.UNKNOWN_TOPIC_ID]
    assert fetch(world)[OURS[0]] == b"abc"
    assert len(world.one.asked(MetadataRequest)) == 2


def test_or_is_for_the_caller_to_judge() -> None:
    world = World()
    world.refusals = [ErrorCode.UNKNOWN_TOPIC_ID]
    with pytest.raises(BrokerError) as caught:
        fetch(world, retry_on=())
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("ask", [World.ask, World.end])
def test_broker_that_throttles_is_asked_again_after_the_throttle_time(ask: Callable[[World], Any]) -> None:
    world = World()
    world.one.handlers[EndTxnAsked] = lambda _: EndTxnAnswer(throttle_time_ms=700)
    offsets = world.offsets

    def throttled(request: Any) -> ListOffsetsAnswer:
        answer = offsets(request)
        answer.throttle_time_ms = 700
        return answer

    world.one.handlers[ListOffsetsAsked] = throttled
    ask(world)
    ask(world)
    assert world.clock.pauses_s == [pytest.approx(0.7)]


def test_with_closes() -> None:
    world = World()
    with world.cluster as cluster:
        assert world.ask() == EXPECTED
    assert cluster.topics(None)
    assert world.one.connections == 2
