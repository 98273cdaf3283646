"""Options that the broker's parts get from its configuration."""

from __future__ import annotations

import math

import pytest

from engine.api import TopicIdPartition
from engine.replication.exchange import FollowerFetch
from kafkawire.adapters.options import coordinator_settings, fetch_limits, link_settings
from kafkawire.adapters.replica_ends import ClusterReplicaEnds
from kafkawire.config.broker_config import load
from kafkawire.messages.fetch import ReplicaState
from kafkawire.replication.fetch_session import FetchContents
from kafkawire.replication.questions import fetch_request

enforces = pytest.mark.enforces


ENDS = ClusterReplicaEnds(1, lambda: pytest.fail("nothing is asked for"))


async def never_refused(_broker: object) -> bool:
    return False


@enforces("auto.leader.rebalance.enable")
@enforces("leader.imbalance.check.interval.seconds")
def test_how_often_leaders_go_back() -> None:
    for given, expected_s in [
        ({}, 300),
        ({"leader.imbalance.check.interval.seconds": "20"}, 20),
        ({"auto.leader.rebalance.enable": "false"}, math.inf),
    ]:
        config, _ = load(given)
        assert (
            coordinator_settings(config, (), never_refused, lambda: None, None, None, ENDS).prefer_interval_s
            == expected_s
        )


@enforces("replica.fetch.wait.max.ms")
@enforces("replica.fetch.min.bytes")
@enforces("replica.fetch.max.bytes")
@enforces("replica.fetch.response.max.bytes")
def test_a_follower_fetch_request_has_the_configured_limits() -> None:
    given = {
        "replica.fetch.wait.max.ms": "70",
        "replica.fetch.min.bytes": "20",
        "replica.fetch.max.bytes": "3000",
        "replica.fetch.response.max.bytes": "9000",
    }
    config, _ = load(given)
    partition = TopicIdPartition(bytes(16), "t", 0)
    request = fetch_request(
        ReplicaState(), FetchContents(0, {partition: FollowerFetch(5, 7, 4, 0, 7)}, ()), fetch_limits(config)
    )
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (70, 20, 9000)
    assert request.topics[0].partitions[0].partition_max_bytes == 3000
    assert link_settings(config, b"secret").limits.reply_max_bytes >= 9000 + config.max_request_size_bytes


@enforces("controller.recovery.wait.ms")
def test_how_long_an_election_waits_for_replicas() -> None:
    config, _ = load({"controller.recovery.wait.ms": "700"})
    assert coordinator_settings(config, (), never_refused, lambda: None, None, None, ENDS).recovery_wait_s == 0.7


def test_a_single_broker_is_configured_without_checks_of_other_brokers() -> None:
    assert coordinator_settings(load({})[0], (), never_refused, lambda: None, None, None, ENDS).replica_ends is None
    assert coordinator_settings(load({})[0], (), never_refused, lambda: None, None, None, ENDS).is_refused is None
