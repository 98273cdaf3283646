"""Fetch: limits, waiting, sessions, errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import trio

from coordinator.api import PartitionState, TopicInfo
from engine import errors as log_errors
from engine.api import TopicIdPartition
from engine.log_config import LogConfig
from kafkawire.fetching import sessions as fetch_sessions
from kafkawire.fetching.work import TARGETS_PER_TURN
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kafkawire.tests.harness import Broker, Settings, batch, open_handlers
from kafkawire.tests.turns import OtherTask
from kafkawire.wire.primitives import ZERO_UUID

FIRST_WITH_SESSIONS = 7
BY_NAME = 12
BY_ID = 13
MAX_BYTES = 1 << 20


def partition(number: int = 0, offset: int = 0, max_bytes: int = MAX_BYTES, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=number, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


def request(
    *partitions: FetchPartition,
    topic: str = "t",
    topic_id: bytes = ZERO_UUID,
    session: tuple[int, int] = (0, -1),
    forget: Iterable[int] = (),
    **fields: Any,
) -> FetchRequest:
    fields.setdefault("max_wait_ms", 0)
    fields.setdefault("min_bytes", 1)
    fields.setdefault("max_bytes", MAX_BYTES)
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))] if partitions else []
    forgotten = [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forget))] if forget else []
    return FetchRequest(
        topics=topics, forgotten_topics_data=forgotten, session_id=session[0], session_epoch=session[1], **fields
    )


def rows(response: Any) -> dict[int, Any]:
    """Partition rows of a reply about one topic, by index."""
    return {row.partition_index: row for topic in response.responses for row in topic.partitions}


async def fetch(broker: Broker, asked: FetchRequest, version: int = BY_NAME) -> Any:
    """The only row of a reply."""
    [row] = rows(await broker.ask(asked, version)).values()
    return row


# Without a session


@pytest.mark.parametrize("version", range(4, 19))
async def test_records_come_from_the_offset_on(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        await broker.append("t", b"first")
        await broker.append("t", b"second")
        row = await fetch(broker, request(partition(0, 1), topic_id=topic_id), version)
        assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 2, 2)
        assert b"second" in bytes(row.records)
        assert b"first" not in bytes(row.records)
        assert row.aborted_transactions is None
        assert row.log_start_offset == (0 if version >= 5 else -1)
        assert row.preferred_read_replica == -1


async def test_an_offset_in_the_middle_of_a_batch_gives_the_whole_batch() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"first", b"second")
        row = await fetch(broker, request(partition(0, 1)))
        assert b"first" in bytes(row.records)
        assert len(row.records) == len(batch(b"first", b"second"))


async def test_records_that_are_not_in_memory_are_read_from_the_disk() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        for number in range(3):
            await broker.append("t", b"a", partition=number)
        broker.filesystem.drop_cache()
        await broker.append("t", b"b", partition=1)
        whole = len(batch(b"a"))
        found = rows(await broker.ask(request(partition(0), partition(1), partition(2)), BY_NAME))
        assert [len(found[number].records) for number in range(3)] == [whole, 2 * whole, whole]
        broker.filesystem.drop_cache()
        limited = request(partition(0), partition(1), partition(2), max_bytes=whole + 10)
        found = rows(await broker.ask(limited, BY_NAME))
        assert [len(found[number].records) for number in range(3)] == [whole, 0, 0]


async def test_records_that_rot_on_the_disk_are_not_served() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        for _ in range(3):
            await broker.append("t", b"a")
        size_bytes = len(batch(b"a"))
        broker.filesystem.drop_cache()
        broker.filesystem.damage("/data/t-0/00000000000000000000.log", 2 * size_bytes - 1, b"?")
        for _ in range(2):
            assert len((await fetch(broker, request(partition()))).records) == size_bytes
            assert (await fetch(broker, request(partition(offset=1)))).error_code == 2
            assert len((await fetch(broker, request(partition(offset=2)))).records) == size_bytes


async def test_a_session_gets_records_that_are_not_in_memory() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        session_id = (await broker.ask(request(partition(0), partition(1), session=(0, 0)), BY_NAME)).session_id
        await broker.append("t", b"a", partition=0)
        await broker.append("t", b"a", partition=1)
        broker.filesystem.drop_cache()
        found = rows(await broker.ask(request(session=(session_id, 1)), BY_NAME))
        assert [len(found[number].records) for number in range(2)] == [len(batch(b"a"))] * 2


async def test_read_committed_gets_an_empty_list_of_aborted_transactions() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"v")
        row = await fetch(broker, request(partition(), isolation_level=1))
        assert (row.last_stable_offset, row.aborted_transactions) == (1, [])
        assert b"v" in bytes(row.records)


@pytest.mark.parametrize("max_bytes", [1, 0, -5])
async def test_a_fetch_returns_at_least_one_batch_at_any_byte_limit(max_bytes: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"v" * 500)
        for asked in (request(partition(), max_bytes=max_bytes), request(partition(max_bytes=max_bytes))):
            assert len((await fetch(broker, asked)).records) == len(batch(b"v" * 500))


async def test_only_the_first_partition_with_records_may_exceed_the_limits() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        for number in (1, 2):
            await broker.append("t", b"v" * 500, partition=number)
        found = rows(await broker.ask(request(*map(partition, range(3)), max_bytes=1), BY_NAME))
        assert [len(found[number].records) for number in range(3)] == [0, len(batch(b"v" * 500)), 0]
        assert found[2].high_watermark == 1, "limits do not hide the high watermark"


async def test_a_fetch_reply_is_bounded_by_the_limit_of_the_broker() -> None:
    async with open_handlers(Settings(max_fetch_size_bytes=1_024)) as broker:
        await broker.create("t")
        for _ in range(10):
            await broker.append("t", b"v" * 300)
        assert 0 < len((await fetch(broker, request(partition()))).records) <= 1_024


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (partition(0, 5), 1),
        (partition(0, -1), 1),
        (partition(9), 3),
        (partition(-1), 3),
        (partition(0, 0, epoch=0), 74),
        (partition(0, 0, epoch=99), 75),
    ],
    ids=["offset ahead", "offset below", "no such partition", "negative partition", "old epoch", "new epoch"],
)
async def test_a_partition_that_cannot_be_read(one: FetchPartition, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.store.open_partition(broker.log("t").partition, LogConfig(), 5)
        row = await fetch(broker, request(one))
        assert (row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (code, -1, -1, -1)
        assert not row.records


async def test_any_negative_leader_epoch_is_none() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        for epoch in (-1, -2):
            assert (await fetch(broker, request(partition(epoch=epoch)))).error_code == 0


async def diverged_log(broker: Broker) -> None:
    """Two records of epoch 0, then one of epoch 2; the log begins at 1."""
    topic_id = await broker.create("t")
    for value in (b"a", b"b"):
        await broker.append("t", value)
    await broker.store.open_partition(TopicIdPartition(topic_id, "t", 0), LogConfig(), 2)
    await broker.append("t", b"c")
    await broker.store.get(TopicIdPartition(topic_id, "t", 0)).delete_records(1)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [(0, 2, (-1, -1)), (2, 3, (-1, -1)), (0, 3, (0, 2)), (1, 2, (0, 2)), (-1, 3, (-1, -1)), (-2, 3, (-1, -1))],
)
async def test_kip_320_a_fetch_after_diverging_records_returns_the_diverging_epoch(
    last_epoch: int, offset: int, diverging: tuple[int, int]
) -> None:
    """A consumer that has read 0 to 2 before an unclean election goes back to 2, the end of its epoch (KIP-320).

    A log that was truncated and has grown again is not taken for the same.
    """
    async with open_handlers() as broker:
        await diverged_log(broker)
        asked = partition(0, offset)
        asked.last_fetched_epoch = last_epoch
        row = await fetch(broker, request(asked, max_wait_ms=0))
        end = row.diverging_epoch
        assert (row.error_code, row.high_watermark, row.log_start_offset) == (0, 3, 1)
        assert ((-1, -1) if end is None else (end.epoch, end.end_offset)) == diverging
        assert end is None or not row.records


@pytest.mark.parametrize(("last_epoch", "offset"), [(3, 2), (0, 0)])
async def test_unknown_last_epoch_or_offset_below_log_start_is_out_of_range(last_epoch: int, offset: int) -> None:
    async with open_handlers() as broker:
        await diverged_log(broker)
        asked = partition(0, offset)
        asked.last_fetched_epoch = last_epoch
        assert (await fetch(broker, request(asked))).error_code == 1


async def test_diverging_logs_are_told_at_once_and_in_a_session_until_they_agree() -> None:
    async with open_handlers() as broker:
        await diverged_log(broker)
        asked = partition(0, 3)
        asked.last_fetched_epoch = 0
        opened = await broker.ask(request(asked, session=(0, 0), max_wait_ms=60_000), BY_NAME)
        assert rows(opened)[0].diverging_epoch.end_offset == 2
        again = await broker.ask(request(session=(opened.session_id, 1), max_wait_ms=60_000), BY_NAME)
        assert rows(again)[0].diverging_epoch.end_offset == 2
        right = partition(0, 2)
        right.last_fetched_epoch = 0
        row = await fetch(broker, request(right, session=(opened.session_id, 2)))
        assert b"c" in bytes(row.records)


async def test_unknown_topics() -> None:
    async with open_handlers() as broker:
        assert (await fetch(broker, request(partition(), topic="nope"))).error_code == 3
        assert (await fetch(broker, request(partition(), topic_id=b"?" * 16), BY_ID)).error_code == 100


class StoreOf:
    """A store that answers for every partition with one error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get(self, wanted: object) -> object:
        raise self.error


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
async def test_old_clients_do_not_know_storage_errors(version: int, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        offline = broker.reconfigured(store=StoreOf(log_errors.StorageError("x")))
        assert (await fetch(offline, request(partition(), max_wait_ms=10_000), version)).error_code == code


async def test_a_fetch_at_a_wrong_broker_returns_the_leader_and_its_endpoint() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        [info] = broker.cluster.image.brokers.values()
        topic = TopicInfo("t", topic_id, (PartitionState(leader=2, leader_epoch=9, isr=(2,), replicas=(2,)),))
        broker.cluster.changes = {
            "topics": {"t": topic},
            "topics_by_id": {topic_id: topic},
            "brokers": {1: info, 2: replace(info, broker_id=2)},
        }
        elsewhere = broker.reconfigured(store=StoreOf(log_errors.NotLeaderOrFollower("x")))
        response = await elsewhere.ask(request(partition(), topic_id=topic_id), 16)
        leader = rows(response)[0].current_leader
        assert (rows(response)[0].error_code, leader.leader_id, leader.leader_epoch) == (6, 2, 9)
        assert [node.node_id for node in response.node_endpoints] == [2]


@pytest.mark.parametrize("version", [BY_NAME, 15])
async def test_a_client_that_poses_as_a_replica_is_refused(version: int) -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        await broker.append("t", b"v")
        asked = request(partition(), topic_id=topic_id, replica_id=2, replica_state=ReplicaState(replica_id=2))
        row = await fetch(broker, asked, version)
        assert (row.error_code, row.high_watermark) == (29, -1)
        assert not row.records


# Waiting


async def test_nothing_to_read_waits_as_long_as_asked() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        started_s = trio.current_time()
        row = await fetch(broker, request(partition(), max_wait_ms=700))
        assert trio.current_time() - started_s == pytest.approx(0.7)
        assert (row.error_code, row.high_watermark, len(row.records)) == (0, 0, 0)


@pytest.mark.parametrize(("min_bytes", "max_wait_ms"), [(0, 10_000), (1, 0), (1, -1)])
async def test_a_fetch_without_a_wait_returns_at_once(min_bytes: int, max_wait_ms: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        started_s = trio.current_time()
        await fetch(broker, request(partition(), min_bytes=min_bytes, max_wait_ms=max_wait_ms))
        assert trio.current_time() == started_s


async def test_an_append_wakes_a_waiting_fetch() -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        await broker.create("t", 2)

        async def write_later() -> None:
            await trio.sleep(3)
            await broker.append("t", b"late", partition=1)

        nursery.start_soon(write_later)
        started_s = trio.current_time()
        found = rows(await broker.ask(request(partition(0), partition(1), max_wait_ms=60_000), BY_NAME))
        assert trio.current_time() - started_s == pytest.approx(3)
        assert (len(found[0].records), found[1].high_watermark) == (0, 1)
        assert b"late" in bytes(found[1].records)


async def test_min_bytes_are_waited_for() -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        await broker.create("t", 2)
        size_bytes = len(batch(b"v"))

        async def write_now_and_then() -> None:
            for number in (0, 1, 0):
                await trio.sleep(1)
                await broker.append("t", b"v", partition=number)

        nursery.start_soon(write_now_and_then)
        started_s = trio.current_time()
        asked = request(partition(0), partition(1), max_wait_ms=60_000, min_bytes=3 * size_bytes)
        found = rows(await broker.ask(asked, BY_NAME))
        assert trio.current_time() - started_s == pytest.approx(3)
        assert [len(found[number].records) for number in (0, 1)] == [2 * size_bytes, size_bytes]


async def test_an_error_is_not_waited_with() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        started_s = trio.current_time()
        found = rows(await broker.ask(request(partition(0), partition(1, 9), max_wait_ms=60_000), BY_NAME))
        assert [found[number].error_code for number in (0, 1)] == [0, 1]
        assert trio.current_time() == started_s


async def test_an_unknown_partition_is_told_with_the_others_as_kafka_does() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 1)
        started_s = trio.current_time()
        found = rows(await broker.ask(request(partition(0), partition(9), max_wait_ms=800), BY_NAME))
        assert [found[number].error_code for number in (0, 9)] == [0, 3]
        assert trio.current_time() - started_s == pytest.approx(0.8)
        await broker.ask(request(partition(9), max_wait_ms=60_000), BY_NAME)
        assert trio.current_time() - started_s == pytest.approx(0.8), "alone it leaves nothing to wait for"


async def test_a_deleted_topic_ends_the_wait() -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        topic_id = await broker.create("t")

        async def delete_later() -> None:
            await trio.sleep(2)
            await broker.cluster.real.delete_topic("t")

        nursery.start_soon(delete_later)
        started_s = trio.current_time()
        row = await fetch(broker, request(partition(), topic_id=topic_id, max_wait_ms=60_000), BY_ID)
        assert row.error_code in (3, 6, 100)
        assert trio.current_time() - started_s == pytest.approx(2)


async def test_a_broker_that_shuts_down_answers_waiting_fetches() -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        await broker.create("t")

        async def shut_down_later() -> None:
            await trio.sleep(1)
            broker.connection.is_ending = True
            assert broker.connection.answer_early is not None
            broker.connection.answer_early()

        nursery.start_soon(shut_down_later)
        started_s = trio.current_time()
        assert (await fetch(broker, request(partition(), max_wait_ms=60_000))).error_code == 0
        assert trio.current_time() - started_s == pytest.approx(1)
        assert broker.connection.answer_early is None


# Sessions


class Client:
    """Fetch session of one client; counts the epochs."""

    def __init__(self, broker: Broker, topic_id: bytes, version: int) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.version = version
        self.session = (0, 0)

    async def fetch(self, *partitions: FetchPartition, **fields: Any) -> dict[int, Any]:
        asked = request(*partitions, topic_id=self.topic_id, session=self.session, **fields)
        response = await self.broker.ask(asked, self.version)
        assert response.error_code == 0
        self.session = (response.session_id, self.session[1] + 1)
        return rows(response)


@pytest.fixture(params=[FIRST_WITH_SESSIONS, BY_NAME, BY_ID, 18])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


async def test_a_session_tells_all_first_and_then_only_news(version: int) -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t", 3), version)
        assert set(await client.fetch(*map(partition, range(3)))) == {0, 1, 2}
        assert client.session[0] > 0
        assert await client.fetch() == {}
        await broker.append("t", b"v", partition=1)
        found = await client.fetch()
        assert set(found) == {1}
        assert b"v" in bytes(found[1].records)
        assert set(await client.fetch()) == {1}, "the records are there until the offset moves"
        assert await client.fetch(partition(1, 1)) == {}


async def test_a_session_waits_for_any_of_its_partitions(version: int) -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        client = Client(broker, await broker.create("t", 50), version)
        await client.fetch(*map(partition, range(50)))

        async def write_later() -> None:
            await trio.sleep(2)
            await broker.append("t", b"v", partition=33)

        nursery.start_soon(write_later)
        started_s = trio.current_time()
        assert set(await client.fetch(max_wait_ms=60_000)) == {33}
        assert trio.current_time() - started_s == pytest.approx(2)


async def test_a_session_opened_by_a_request_that_waited_goes_on() -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t", 2), BY_ID)
        assert set(await client.fetch(partition(0), partition(1), max_wait_ms=500)) == {0, 1}
        await broker.append("t", b"v")
        assert set(await client.fetch()) == {0}


async def test_partitions_join_and_leave(version: int) -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t", 3), version)
        await client.fetch(partition(0), partition(1))
        assert set(await client.fetch(partition(2))) == {2}
        await broker.append("t", b"v", partition=0)
        await broker.append("t", b"v", partition=2)
        assert set(await client.fetch(forget=[0])) == {2}


async def test_a_session_without_partitions_is_closed() -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t"), BY_ID)
        await client.fetch(partition())
        assert len(broker.interfaces.fetch_sessions) == 1
        assert await client.fetch(forget=[0], max_wait_ms=60_000) == {}
        assert client.session[0] == 0
        assert len(broker.interfaces.fetch_sessions) == 0


async def test_a_full_fetch_of_nothing_opens_a_session_that_can_be_added_to() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        opened = await broker.ask(request(session=(0, 0)), BY_NAME)
        assert opened.session_id > 0
        added = await broker.ask(request(partition(0), session=(opened.session_id, 1)), BY_NAME)
        assert (added.session_id, set(rows(added))) == (opened.session_id, {0})


@pytest.mark.sources
async def test_a_session_that_would_grow_too_large_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "TARGETS_MAX", 2)
    async with open_handlers() as broker:
        await broker.create("t")
        opened = await broker.ask(request(partition(0), session=(0, 0)), BY_NAME)
        grown = request(partition(1), partition(2), session=(opened.session_id, 1))
        assert (await broker.ask(grown, BY_NAME)).error_code == 70
        assert len(broker.interfaces.fetch_sessions) == 0
        again = await broker.ask(request(partition(0), partition(1), partition(2), session=(0, 0)), BY_NAME)
        assert (again.error_code, again.session_id, len(rows(again))) == (0, 0, 3)


async def test_a_new_session_and_a_last_request_close_the_old_one() -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t"), BY_ID)
        await client.fetch(partition())
        first = client.session[0]
        client.session = (first, 0)
        await client.fetch(partition())
        assert client.session[0] not in (0, first)
        assert len(broker.interfaces.fetch_sessions) == 1
        client.session = (client.session[0], -1)
        assert set(await client.fetch(partition())) == {0}
        assert len(broker.interfaces.fetch_sessions) == 0


@pytest.mark.parametrize(
    ("session", "version", "code"), [((1, 1), BY_ID, 70), ((0, 2), BY_ID, 71), ((0, 1), BY_NAME, 106)]
)
async def test_session_errors(session: tuple[int, int], version: int, code: int) -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t"), BY_ID)
        await client.fetch(partition())
        wrong = (client.session[0] + session[0], session[1])
        response = await broker.ask(request(session=wrong), version)
        assert (response.error_code, response.session_id, response.responses) == (code, 0, [])
        assert await client.fetch() == {}, "the session itself is unharmed"


async def test_a_second_request_of_a_busy_session_is_refused() -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        client = Client(broker, await broker.create("t"), BY_ID)
        await client.fetch(partition())
        session_id = client.session[0]
        nursery.start_soon(lambda: client.fetch(max_wait_ms=1_000))
        await trio.sleep(0.5)
        other = replace(broker)
        response = await other.ask(request(session=(session_id, 2)), BY_ID)
        assert response.error_code == 71
        await trio.sleep(1)
        assert await client.fetch() == {}


async def test_without_room_there_is_no_session() -> None:
    async with open_handlers() as broker:
        topic_id = await broker.create("t")
        for _ in range(10):
            await Client(broker, topic_id, BY_ID).fetch(partition())
        client = Client(broker, topic_id, BY_ID)
        assert set(await client.fetch(partition())) == {0}
        assert client.session[0] == 0


async def test_no_partition_starves_in_a_session() -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t", 3), BY_ID)
        await client.fetch(*map(partition, range(3)))
        for number in range(3):
            await broker.append("t", b"v" * 100, partition=number)
        served = []
        for _ in range(6):
            found = await client.fetch(max_bytes=1)
            served += [number for number, row in found.items() if len(row.records)]
        assert served == [0, 1, 2, 0, 1, 2]


async def test_an_error_in_a_session_is_returned_until_it_is_resolved() -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t", 2), BY_ID)
        await client.fetch(partition(0), partition(1, 7))
        for _ in range(2):
            found = await client.fetch()
            assert {number: row.error_code for number, row in found.items()} == {1: 1}
        assert (await client.fetch(partition(1, 0)))[1].error_code == 0
        assert await client.fetch() == {}


@pytest.mark.parametrize(("again", "code"), [(False, 3), (True, 103)])
async def test_a_session_returns_an_error_when_its_topic_was_deleted(again: bool, code: int) -> None:
    async with open_handlers() as broker:
        client = Client(broker, await broker.create("t"), BY_ID)
        await client.fetch(partition())
        await broker.cluster.real.delete_topic("t")
        if again:
            await broker.create("t")
        assert (await client.fetch())[0].error_code == code


async def test_a_session_by_name_goes_on_with_a_topic_created_again() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"old")
        client = Client(broker, ZERO_UUID, BY_NAME)
        await client.fetch(partition(0, 1))
        await broker.cluster.real.delete_topic("t")
        await broker.create("t")
        assert (await client.fetch())[0].error_code == 1
        await broker.append("t", b"new")
        assert b"new" in bytes((await client.fetch(partition(0, 0)))[0].records)


@pytest.mark.parametrize("session", [(0, -1), (0, 0)], ids=["no session", "session"])
async def test_a_fetch_of_many_partitions_lets_others_run(session: tuple[int, int]) -> None:
    async with open_handlers() as broker, trio.open_nursery() as nursery:
        await broker.create("t")
        other = OtherTask()
        nursery.start_soon(other.run)
        asked = request(*(partition(number) for number in range(5 * TARGETS_PER_TURN)), session=session)
        turns = other.turns
        full = await broker.ask(asked, BY_NAME)
        assert other.turns - turns > 5  # reading and answering both yield
        turns = other.turns
        if full.session_id:
            await broker.ask(request(session=(full.session_id, 1)), BY_NAME)
            assert other.turns - turns > 4
        nursery.cancel_scope.cancel()
