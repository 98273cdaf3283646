"""A rolling restart in order is normal: no broker logs a warning or an error."""

from __future__ import annotations

import pytest
import trio
from structlog.testing import capture_logs

from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.testing import open_cluster
from kafkawire.tests.test_cluster import BROKERS, call, committed, create, led_again, produce, settled

TOPICS = {"offsets_topic_num_partitions": "3", "offsets_topic_replication_factor": "3"}
LOUD = {"warning", "error", "critical"}


@pytest.mark.parametrize("away_s", [0.0, 5.0, 60.0])
async def test_an_orderly_rolling_restart_logs_no_warning(away_s: float) -> None:
    async with open_cluster(**TOPICS) as (cluster, nursery):
        await create(cluster, 1, "t", 3, 3)
        find = FindCoordinatorRequest(key="g", key_type=0)
        await call(cluster, 1, find, 3)
        await settled(cluster)
        coordinator = (await call(cluster, 1, find, 3)).node_id
        assert await committed(cluster, coordinator, "g", 7) == 0
        await produce(cluster, 1, "t", 0)
        await trio.sleep(20)
        with capture_logs() as lines:
            for broker_id in BROKERS:
                await cluster.stop(broker_id)
                await trio.sleep(away_s)
                await nursery.start(cluster.serve, broker_id, TOPICS)
                await settled(cluster)
                await led_again(cluster, broker_id, "t")
                await trio.sleep(30)
        assert [one for one in lines if one["log_level"] in LOUD] == []
        stopped = [one["broker"] for one in lines if one["event"] == "broker fenced"]
        assert set(stopped) == set(BROKERS)
