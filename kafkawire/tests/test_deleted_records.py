"""Records below the low watermark of a DeleteRecords reply stay deleted, whichever broker leads next."""

from __future__ import annotations

from typing import Any

import pytest

from engine.batches.batch import Record
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.requests.errors import ErrorCode
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, call
from kafkawire.tests.test_replication import TOPIC, create, in_sync, kill, produce, replica, state

RECORDS = [Record(None, b"%d" % number) for number in range(10)]


async def delete_below(cluster: MemoryCluster, offset: int, *, timeout_ms: int = 20_000) -> Any:
    """Send DeleteRecords to the leader, and return the row of the reply."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=TOPIC, partitions=[partition])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
    return (await call(cluster, state(cluster).leader, request, 2)).topics[0].partitions[0]


async def fill(cluster: MemoryCluster) -> None:
    await create(cluster, BROKERS)
    await in_sync(cluster, *BROKERS)
    assert not (await produce(cluster, RECORDS)).error_code


@pytest.mark.parametrize(("offset", "expected"), [(5, 5), (-1, 10)])
async def test_delete_records_is_answered_when_all_replicas_have_deleted(offset: int, expected: int) -> None:
    async with open_cluster(3) as (cluster, _):
        await fill(cluster)
        row = await delete_below(cluster, offset)
        assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, expected)
        assert {replica(cluster, one).log_start_offset for one in BROKERS} == {expected}


async def test_deleted_records_stay_deleted_when_the_leader_is_killed() -> None:
    async with open_cluster(3) as (cluster, _):
        await fill(cluster)
        assert not (await delete_below(cluster, 5)).error_code
        await kill(cluster, state(cluster).leader)
        assert all(replica(cluster, one).log_start_offset == 5 for one in cluster.brokers)


async def test_delete_records_with_timeout_0_returns_request_timed_out_and_still_deletes() -> None:
    """The records are deleted although the request has timed out."""
    async with open_cluster(3) as (cluster, _):
        await fill(cluster)
        row = await delete_below(cluster, 5, timeout_ms=0)
        assert (row.error_code, row.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 5)
        row = await delete_below(cluster, 3)
        assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, 5)


async def test_delete_records_does_not_wait_for_replicas_on_killed_brokers() -> None:
    async with open_cluster(3) as (cluster, _):
        await fill(cluster)
        leader = state(cluster).leader
        await kill(cluster, *(one for one in BROKERS if one != leader))
        row = await delete_below(cluster, 5)
        assert (row.error_code, row.low_watermark) == (ErrorCode.NONE, 5)
