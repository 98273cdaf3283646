"""The metrics reach the conditions of the alerts when elections, fenced brokers or slow followers occur."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from coordinator import cluster_events
from coordinator.event_log import Kind
from engine.api import TopicIdPartition
from engine.stats import BUCKETS_S
from kafkawire.adapters import role_log
from kafkawire.http.tests.test_metrics import scraped
from kafkawire.http.tests.test_replication_metrics import metrics_of
from kafkawire.replication import replica_events
from kafkawire.replication.replica_events import ReplicaEvents
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import MemoryCluster, open_cluster
from kafkawire.tests.test_cluster import BROKERS, until
from kafkawire.tests.test_elections import configure
from kafkawire.tests.test_replication import (
    acknowledged,
    create,
    in_sync,
    kill,
    led_by_another,
    produce,
    replica,
    state,
    until_gone,
)
from kafkawire.tests.test_repudiation import CLEAN, filled, stays_without_leader, wipe
from kafkawire.tests.test_slow_log_dirs import fall_behind, hanging, prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

ROOT = Path(__file__).resolve().parents[3]
ALERTS, RUNBOOK = ROOT / "docker" / "alerts.yaml", ROOT / "docs" / "operating" / "failures.md"
UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"
FENCED = "kafka_controller_kafkacontroller_fencedbrokercount"
RESTARTS, FAILURES, TRUNCATIONS = (
    f"kafkawire_replica_{what}_total" for what in ("restarts", "failures", "truncations")
)
SHRINKS, LED = (f"kafka_server_replicamanager_{what}" for what in ("isrshrinks_total", "leadercount"))
ROUND_TRIPS = "kafkawire_follower_round_trip_seconds_bucket"


def condition(alert: str) -> str:
    """The expression of the alert, so that a test and its alert stay together."""
    [expression] = re.findall(rf"- alert: {alert}\n        expr: (.*)\n", ALERTS.read_text(encoding="utf-8"))
    return str(expression)


async def total(cluster: MemoryCluster, name: str, brokers: Sequence[int] = ()) -> float:
    """Sum over all running brokers, or over these."""
    return float(sum([(await metrics_of(cluster, one))[name] for one in brokers or [*cluster.brokers]]))


async def test_an_unclean_election() -> None:
    assert condition("KafkawireUncleanElection") == f"sum by (job) (increase({UNCLEAN}[10m])) > 0"
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await acknowledged(cluster, b"on all")
        first, (second, third) = state(cluster).leader, [one for one in BROKERS if one != state(cluster).leader]
        await kill(cluster, second, third)
        await acknowledged(cluster, b"on one")
        await in_sync(cluster, first)
        await kill(cluster, first)
        await nursery.start(cluster.serve, second, {})
        await stays_without_leader(cluster)
        assert await total(cluster, UNCLEAN) == 0
        await configure(cluster, "unclean.leader.election.enable", "true")
        await led_by_another(cluster, first)
        assert await total(cluster, UNCLEAN) == 1
        await acknowledged(cluster, b"instead")
        assert await total(cluster, TRUNCATIONS) == 0
        await nursery.start(cluster.serve, first, {})
        await in_sync(cluster, first, second)
        assert (await metrics_of(cluster, first))[TRUNCATIONS] == 1, "it had what is lost"


async def test_a_broker_that_is_fenced() -> None:
    assert condition("KafkawireBrokerFenced") == f"max by (job) ({FENCED}) > 0"
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        assert [(await metrics_of(cluster, one))[FENCED] for one in BROKERS] == [0, 0, 0]
        gone = state(cluster).leader
        await kill(cluster, gone)
        await led_by_another(cluster, gone)
        assert [(await metrics_of(cluster, one))[FENCED] for one in cluster.brokers] == [1, 1]
        assert await total(cluster, "kafkawire_brokers_fenced_total") == 1
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        assert (await metrics_of(cluster, gone))[FENCED] == 0


async def test_a_replica_that_is_copied_again() -> None:
    assert condition("KafkawireReplicaRestarted") == f"increase({RESTARTS}[10m]) > 0"
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        log = replica(cluster, gone).log
        path = log.path_of(log.active.base_offset)
        await cluster.stop(gone)
        await until_gone(cluster, gone)
        filesystem = cluster.deps_of(gone).filesystem
        filesystem.unlink(CLEAN)
        segment = filesystem.open(path)
        segment.truncate(segment.size() - 1)
        segment.fdatasync()
        assert await total(cluster, RESTARTS) == 0
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        assert (await metrics_of(cluster, gone))[RESTARTS] == 1


async def test_a_replica_that_is_closed() -> None:
    """`kafkawire/replication/tests/test_replica_events.py` has the causes: brokers do not come to it."""
    assert condition("KafkawireReplicaFailed") == f"increase({FAILURES}[10m]) > 0"
    async with open_cluster(1) as (cluster, _):
        events = ReplicaEvents(cluster.brokers[1].broker.metrics.replication)
        assert await total(cluster, FAILURES) == 0
        events.failed(TopicIdPartition(bytes(16), "orders", 0), "the logs contradict each other")
        assert await total(cluster, FAILURES) == 1


async def test_a_replica_on_a_new_disk_is_not_counted_as_a_restarted_copy() -> None:
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        await filled(cluster)
        gone = next(one for one in BROKERS if one != state(cluster).leader)
        await kill(cluster, gone)
        wipe(cluster, gone)
        await nursery.start(cluster.serve, gone, {})
        await in_sync(cluster, *BROKERS)
        assert (await metrics_of(cluster, gone))[RESTARTS] == 0


async def test_a_follower_with_a_slow_disk_exceeds_the_threshold_of_its_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = f"histogram_quantile(0.99, sum by (follower, le) (rate({ROUND_TRIPS}[5m]))) > 1"
    assert condition("KafkawireFollowerSlow") == expected
    async with open_cluster() as (cluster, _):
        await create(cluster)
        await acknowledged(cluster, b"before")
        leader = state(cluster).leader
        slow, other = (one for one in BROKERS if one != leader)
        pool = cluster.brokers[slow].broker.deps.pool
        sync = pool.sync

        async def slow_sync(*args: Any, **kwargs: Any) -> None:
            await trio.sleep(1.5)
            await sync(*args, **kwargs)

        monkeypatch.setattr(pool, "sync", slow_sync)
        before = await round_trips(cluster, leader)
        for _ in range(20):
            assert (await produce(cluster, b"v")).error_code == 0
        after = await round_trips(cluster, leader)
        assert quantile(0.99, before[slow], after[slow]) >= 1
        assert quantile(0.99, before[other], after[other]) < 1


async def round_trips(cluster: MemoryCluster, leader: int) -> dict[int, list[float]]:
    """Cumulated buckets by follower."""
    found: dict[int, list[float]] = {}
    for labels, value in (await scraped(cluster.brokers[leader].broker.http_app(LoopWatch())))[ROUND_TRIPS]:
        found.setdefault(int(labels["follower"]), []).append(value)
    return found


def quantile(share: float, before: list[float], after: list[float]) -> float:
    """The lower bound of the bucket that Prometheus would choose."""
    counts = [late - early for early, late in zip(before, after, strict=True)]
    bucket = next(number for number, count in enumerate(counts) if count >= share * counts[-1])
    return 0.0 if bucket == 0 else BUCKETS_S[bucket - 1]


async def test_isrs_that_shrink_again_and_again() -> None:
    expected = f"sum by (job) (increase({SHRINKS}[15m])) > 3 * sum by (job) ({LED})"
    assert condition("KafkawireIsrsUnstable") == expected
    async with open_cluster() as (cluster, nursery):
        await create(cluster)
        leader = state(cluster).leader
        gone = next(one for one in BROKERS if one != leader)
        started_s = trio.current_time()

        async def has_fired() -> bool:
            return await total(cluster, SHRINKS, [leader]) > 3 * await total(cluster, LED, [leader])

        for _ in range(4):
            assert not await has_fired()
            await kill(cluster, gone)
            await in_sync(cluster, *(one for one in BROKERS if one != gone))
            await nursery.start(cluster.serve, gone, {})
            await in_sync(cluster, *BROKERS)
        await until(has_fired)
        assert trio.current_time() - started_s < 15 * 60


async def test_a_disk_that_hangs() -> None:
    behind = "kafkawire_log_dirs_behind"
    assert condition("KafkawireLogDirBehind") == f"{behind}_max_seconds > 10"
    async with prepared() as (cluster, _, path):
        assert ((await metrics_of(cluster, 1))[behind], (await metrics_of(cluster, 1))[f"{behind}_max_seconds"]) == (
            0,
            0,
        )
        with hanging(cluster, path):
            started_s = trio.current_time()
            await fall_behind(cluster)
            await trio.sleep(20)
            found = await metrics_of(cluster, 1)
            assert found[behind] == 1
            assert 20 < found[f"{behind}_max_seconds"] <= trio.current_time() - started_s
            assert (await metrics_of(cluster, 2))[behind] == 0
        await trio.sleep(1)
        assert (await metrics_of(cluster, 1))[f"{behind}_max_seconds"] == 0


def test_every_alert_has_its_place_in_the_runbook() -> None:
    headings = " ".join(re.findall(r"^### (.*)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE))
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
    assert alerts
    assert [one for one in alerts if one not in re.findall(r"\w+", headings)] == []


def test_every_event_of_the_cluster_is_in_the_runbook() -> None:
    kinds = [
        one
        for module in (cluster_events, role_log, replica_events)
        for value in vars(module).values()
        for one in (value.values() if isinstance(value, dict) else [value])
        if isinstance(one, Kind)
    ]
    assert len(kinds) > 15
    text = RUNBOOK.read_text(encoding="utf-8")
    assert [kind.event for kind in kinds if f"`{kind.event}`" not in text] == []
