"""The last replica of a coordinator's partition answers reads, in each state in which the others failed (RULES K26)."""

from __future__ import annotations

import trio

from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests import test_coordinators_over_brokers as coordinators
from kafkawire.tests.test_cluster import BROKERS, call, until

MIN_ISR = {"default_replication_factor": "3", "min_insync_replicas": "2"}
UNDER_WAY = 100


async def left_alone(cluster: MemoryCluster) -> tuple[int, int]:
    """Let the coordinator and another broker die while commits are under way: first the third one is elected, then it
    is the coordinator. It has commits that were never acknowledged."""
    first = await coordinators.coordinated(cluster)
    await coordinators.set_min_isr(cluster, 2)
    await coordinators.committed(cluster, 7)
    last, other = (one for one in BROKERS if one != first)
    log = coordinators.replica(cluster, last)
    connection, offset, end_offset = cluster.connect(first), UNDER_WAY, log.log_end_offset
    with trio.fail_after(10):
        while log.log_end_offset <= end_offset or log.high_watermark == log.log_end_offset:
            await connection.send(coordinators.commit_of(offset), version=8)
            await trio.sleep(0.0005)
            offset += 1
    cluster.kill(first)
    cluster.kill(other)

    async def is_alone() -> bool:
        state = coordinators.state(cluster)
        return state.leader == last and list(state.isr) == [last]

    await until(is_alone)
    assert log.high_watermark < log.log_end_offset
    return last, first


async def test_the_last_replica_answers_reads_and_takes_no_commits() -> None:
    async with open_cluster(**coordinators.TOPICS, **MIN_ISR) as (cluster, nursery):
        last, first = await left_alone(cluster)
        await trio.sleep(5)
        log = coordinators.replica(cluster, last)
        end_offset = log.log_end_offset
        for pause_s in (0, 30, 600):
            await trio.sleep(pause_s)
            assert await coordinators.fetched(cluster, last) >= UNDER_WAY
            assert await coordinators.fetched(cluster, last, require_stable=True) < 0
            assert await coordinators.commit(cluster, last, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            described = await call(cluster, last, DescribeGroupsRequest(groups=[coordinators.GROUP]), 5)
            assert described.groups[0].error_code == 0
            listed = await call(cluster, last, ListGroupsRequest(), 4)
            assert (listed.error_code, [one.group_id for one in listed.groups]) == (0, [coordinators.GROUP])
        assert (log.log_end_offset, log.high_watermark < end_offset) == (end_offset, True)
        shard = cluster.brokers[last].broker.coordinators.groups._shards.find(0)
        assert shard is not None
        table = shard.table
        await nursery.start(cluster.serve, first, {**coordinators.TOPICS, **MIN_ISR})
        assert await coordinators.committed(cluster, 9) == last
        assert await coordinators.newest(cluster) == 9
        assert shard.table is table, "the partition is not read again"
