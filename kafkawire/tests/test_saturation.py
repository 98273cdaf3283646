"""More requests than a broker can hold: replication goes on, each request is answered, and the memory is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kafkawire.http.tests.test_metrics import scraped
from kafkawire.requests.errors import ErrorCode
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import open_cluster
from kafkawire.tests.test_cluster import until
from kafkawire.tests.test_replication import create, in_sync, replica, request_of, state

if TYPE_CHECKING:
    from kafkawire.testing import Client, MemoryCluster

CONNECTIONS, REQUESTS, SIZE_BYTES = 8, 16, 48_000  # 6 MB
LIMIT_BYTES = 1024 * 1024  # the least that queued.max.request.bytes takes
PRODUCER_ID = 77


async def receive_row(client: Client) -> Any:
    """Receive the next reply, and return its only row."""
    reply: Any = await client.receive()
    return reply.responses[0].partition_responses[0]


async def error_codes(client: Client, acks: int) -> list[int]:
    """The error codes of as many requests as a connection may have in flight."""
    await client.send(*[request_of(b"x" * SIZE_BYTES, acks=acks) for _ in range(REQUESTS)], version=9)
    return [(await receive_row(client)).error_code for _ in range(REQUESTS)]


@pytest.mark.parametrize("acks", [-1, 1])
async def test_produce_beyond_queued_max_request_bytes_is_acknowledged_at_once(acks: int) -> None:
    """Followers' fetches are read although the requests in flight exceed the limit."""
    async with open_cluster(queued_max_request_bytes=str(LIMIT_BYTES)) as (cluster, _):
        await create(cluster, min_insync_replicas="2")
        await in_sync(cluster, 1, 2, 3)
        leader, codes, before_s = state(cluster).leader, list[int](), trio.current_time()

        async def saturate() -> None:
            codes.extend(await error_codes(cluster.connect(leader), acks))

        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(saturate)
        assert codes == [ErrorCode.NONE] * CONNECTIONS * REQUESTS
        assert trio.current_time() - before_s < 1
        assert {*state(cluster).isr} == {1, 2, 3}


async def without_metadata_and_a_follower(cluster: MemoryCluster) -> int:
    """Take the metadata store away and kill a member of the ISR: the ISR cannot shrink, and the high watermark stands
    still. Return the leader."""
    await create(cluster, min_insync_replicas="2")
    await in_sync(cluster, 1, 2, 3)
    leader = state(cluster).leader
    for deps in cluster.deps.values():
        session = deps.sessions[-1]
        session.disconnected = True
        if session._silence is not None:  # all servers are away: none of them ends a session
            session._silence.cancel()
    cluster.kill(next(one for one in (1, 2, 3) if one != leader))
    await trio.sleep(1)
    return leader


def held_bytes(cluster: MemoryCluster, leader: int) -> int:
    """The bytes of records whose appends wait for other replicas."""
    pending = replica(cluster, leader)._state.pending
    return sum(len(one.append.records or b"") for one in (*pending._appends, *pending._duplicates))


async def test_appends_that_wait_for_a_dead_follower_hold_no_records_and_end_with_their_requests() -> None:
    async with open_cluster() as (cluster, _):
        leader = await without_metadata_and_a_follower(cluster)
        client, log = cluster.connect(leader), replica(cluster, leader)
        for attempt in range(24):
            request = request_of(b"x" * SIZE_BYTES, producer=(PRODUCER_ID, 0, attempt // 4))  # three retries of each
            await client.send(request, version=9)
            await trio.sleep(1)
            assert held_bytes(cluster, leader) == 0
            assert cluster.brokers[leader].broker.stats.in_flight_size_bytes == 0
            assert log.waiting_appends.appends == 1
            assert (await receive_row(client)).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert log.waiting_appends.appends == 0
            assert len(log._state.pending) <= 1
        assert log.log_end_offset == 6


async def test_a_retry_of_an_append_that_timed_out_is_a_duplicate_and_waits_for_the_high_watermark() -> None:
    async with open_cluster() as (cluster, _):
        leader = await without_metadata_and_a_follower(cluster)
        client, codes = cluster.connect(leader), list[int]()
        request = request_of(b"x", producer=(PRODUCER_ID, 0, 0))
        await client.send(request, version=9)
        assert (await receive_row(client)).error_code == ErrorCode.REQUEST_TIMED_OUT
        await client.send(request, version=9)
        await trio.sleep(10)
        for deps in cluster.deps.values():
            deps.sessions[-1].disconnected = False

        async def is_acknowledged() -> bool:
            with trio.move_on_after(25):
                row = await receive_row(client)
                codes.append(row.error_code)
                if row.error_code == ErrorCode.NONE:
                    return bool(row.base_offset == 0)
            await client.send(request, version=9)
            return False

        await until(is_acknowledged)
        assert replica(cluster, leader).log_end_offset == 1
        assert {*codes} <= {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}


async def test_waiting_appends_of_a_closed_connection_are_removed() -> None:
    async with open_cluster() as (cluster, _):
        leader = await without_metadata_and_a_follower(cluster)
        client, log = cluster.connect(leader), replica(cluster, leader)
        for value in (b"a", b"b"):
            request = request_of(value)
            request.timeout_ms = 3_600_000
            await client.send(request, version=9)
        await trio.sleep(1)
        waiting = log.waiting_appends
        assert (waiting.appends, waiting.size_bytes) == (2, log.log.end.position)
        assert waiting.since_s <= trio.current_time()
        await client.stream.aclose()
        await trio.sleep(60)
        assert log.waiting_appends.appends == 0
        assert len(log._state.pending) == 0
        assert log.log_end_offset == 2


async def test_waiting_appends_are_shown_in_the_metrics() -> None:
    """The metrics behind the alert KafkawireAppendsWait."""
    async with open_cluster() as (cluster, _):
        leader = await without_metadata_and_a_follower(cluster)
        broker = cluster.brokers[leader].broker
        await cluster.connect(leader).send(request_of(b"x" * SIZE_BYTES), version=9)
        await trio.sleep(12)
        found = await scraped(broker.http_app(LoopWatch()))
        assert found["kafkawire_waiting_appends"] == [({}, 1)]
        assert found["kafkawire_waiting_appends_bytes"][0][1] > SIZE_BYTES
        assert 10 < found["kafkawire_waiting_appends_seconds"][0][1] <= 12
        assert found["kafkawire_in_flight_bytes"] == [({}, 0)]
        await trio.sleep(12)
        found = await scraped(broker.http_app(LoopWatch()))
        assert found["kafkawire_waiting_appends"] == [({}, 0)]
        assert found["kafkawire_waiting_appends_seconds"] == [({}, 0)]
