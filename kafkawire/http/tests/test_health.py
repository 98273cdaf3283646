"""Responses to probes and operators, and their reasons."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator.api import NO_CONTROLLER, BrokerInfo, ClusterImage, PartitionState, TopicInfo
from engine.errors import StorageError
from engine.stats import CommitStatistics, LogDirStatistics
from kafkawire.http.app import build_app
from kafkawire.http.health import NAMED_MAX, READY_ALIASES, Health
from testkit.asgi import ANY_HOST, NoMetrics, get_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.api import TopicIdPartition

ME = 1


def log_dir(path: str, offline_reason: str | None = None) -> LogDirStatistics:
    return LogDirStatistics(path, offline_reason, 0, 0, CommitStatistics())


@dataclass
class Store:
    """Fake store with the methods that health uses."""

    dirs: Sequence[LogDirStatistics] = (log_dir("/data"),)
    offline: set[str] = field(default_factory=set)

    def log_dirs(self) -> Sequence[LogDirStatistics]:
        return self.dirs

    def get(self, partition: TopicIdPartition) -> None:
        if partition.topic in self.offline:
            raise StorageError("offline")


def topic(name: str, count: int = 1, *, leader: int = ME, isr: tuple[int, ...] = (1, 2)) -> TopicInfo:
    state = PartitionState(leader, 0, isr, (1, 2))
    return TopicInfo(name, name.encode().ljust(16), (state,) * count)


def image(*topics: TopicInfo) -> ClusterImage:
    brokers = {number: BrokerInfo(number, ()) for number in (1, 2)}
    return ClusterImage(1, "cluster", 1, brokers=brokers, topics={one.name: one for one in topics})


async def ask(
    path: str,
    known: ClusterImage | None = None,
    store: Store | None = None,
    *,
    is_live: bool = True,
    has_session: bool = True,
) -> tuple[int, Any]:
    known = known or image(topic("orders"))
    store = store or Store()
    health = Health(lambda: is_live, lambda: known, store, store.log_dirs, ME, {}, lambda: has_session)  # type: ignore[arg-type]
    status, body = await get_response(build_app(health.routes(), NoMetrics(), [], ANY_HOST), path)
    return status, json.loads(body)


async def test_live_until_told_to_stop() -> None:
    assert await ask("/health/live") == (200, {"status": "live"})
    assert await ask("/health/live", is_live=False) == (503, {"status": "stopping"})


async def test_ready_under_every_name() -> None:
    for path in ("/health/ready", *READY_ALIASES):
        assert await ask(path) == (200, {"status": "ready", "reasons": []})


async def test_why_a_broker_is_not_ready() -> None:
    broken = Store([log_dir("/data", "no such disk")])
    for known, store, is_live, reason in (
        (None, None, False, "the broker is stopping"),
        (dataclasses.replace(image(), brokers={}), None, True, "the broker is not registered"),
        (None, broken, True, "every log dir is offline"),
    ):
        status, document = await ask("/health/ready", known, store, is_live=is_live)
        assert (status, document["status"]) == (503, "not ready")
        assert document["reasons"][0].startswith(reason)


async def test_a_broker_that_knows_that_it_is_fenced_is_not_ready() -> None:
    status, document = await ask("/health/ready", has_session=False)
    assert (status, document["reasons"]) == (503, ["the broker is fenced: it registers again"])


async def test_a_cluster_without_a_controller_is_unhealthy_and_its_brokers_stay_ready() -> None:
    known = dataclasses.replace(image(), controller_id=NO_CONTROLLER)
    assert (await ask("/health/ready", known))[0] == 200
    status, document = await ask("/health/cluster", known)
    assert (status, document["reasons"]) == (503, ["there is no controller"])


async def test_a_healthy_cluster() -> None:
    assert await ask("/health/cluster") == (
        200,
        {
            "status": "healthy", "reasons": [], "cluster_id": "cluster", "controller": 1, "brokers": [1, 2],
            "topics": 1, "partitions": 1,
        },
    )  # fmt: skip


async def test_cluster_health_lists_offline_log_dirs_and_ailing_partitions() -> None:
    store = Store([log_dir("/a"), log_dir("/b", "I/O error")], {"lost"})
    known = image(
        topic("lost"), topic("led by nobody", leader=-1), topic("led by the dead", leader=7), topic("few", isr=(1,))
    )
    status, document = await ask("/health/cluster", known, store)
    assert (status, document["status"]) == (503, "ailing")
    assert document["reasons"] == [
        "log dir /b is offline: I/O error",
        "led by nobody-0 has no leader",
        "led by the dead-0 has no leader",
        "lost-0 is offline",
        "few-0 has fewer replicas in sync than it should",
    ]


async def test_a_leader_that_does_not_serve_is_none() -> None:
    known = image(dataclasses.replace(topic("t"), partitions=(PartitionState(2, 0, (2,), (1, 2), offline=(2,)),)))
    _, document = await ask("/health/cluster", known)
    assert document["reasons"] == ["t-0 has no leader", "t-0 has fewer replicas in sync than it should"]


async def test_of_many_ailing_partitions_some_are_named() -> None:
    _, document = await ask("/health/cluster", image(topic("few", 1000, isr=(1,))))
    assert len(document["reasons"]) == NAMED_MAX + 1
    assert document["reasons"][-1] == "980 more: has fewer replicas in sync than it should"


async def test_ailments_of_others_are_reasons_as_many_as_a_person_reads() -> None:
    store, many = Store(), [f"t-{number} hangs" for number in range(NAMED_MAX + 3)]
    ailments = {"transactions that hang": lambda: many, "partitions in the remote tier": lambda: ["t-0 is fenced"]}
    known = image(topic("orders"))
    health = Health(lambda: True, lambda: known, store, store.log_dirs, ME, ailments)  # type: ignore[arg-type]
    status, body = await get_response(build_app(health.routes(), NoMetrics(), [], ANY_HOST), "/health/cluster")
    assert status == 503
    expected = [*many[:NAMED_MAX], "3 more: transactions that hang", "t-0 is fenced"]
    assert json.loads(body)["reasons"] == expected
    assert (await get_response(build_app(health.routes(), NoMetrics(), [], ANY_HOST), "/health/ready"))[0] == 200
