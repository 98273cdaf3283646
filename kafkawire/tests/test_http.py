"""Health and metrics, asked over ASGI without a socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import trio
from prometheus_client.parser import text_string_to_metric_families

from coordinator.api import ClusterImage
from coordinator.groups.api import GroupCounters, GroupFigures, GroupState, TopicPartition
from engine.retention import Reason
from engine.stats import StoreStats
from kafkawire.http.app import build_app
from kafkawire.http.group_metrics import PORTION, GroupMetrics
from kafkawire.http.metrics import BrokerCollector
from kafkawire.request_metrics import ApiCounters, RequestMetrics
from kafkawire.server_stats import ServerStats


class Groups:
    """`GroupStatistics` with what a test says; a member per offset."""

    def __init__(self, **offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        self.offsets = offsets

    @property
    def counters(self) -> GroupCounters:
        return GroupCounters(commits=20, generations=3, expired_members=2, expired_offsets=5)

    def figures(self) -> Iterator[GroupFigures]:
        for group_id, offsets in self.offsets.items():
            state = GroupState.STABLE if offsets else GroupState.EMPTY
            yield GroupFigures(group_id, state, len(offsets), offsets)


def high_watermark(topic: str, partition: int) -> int | None:
    return 100 if topic == "orders" else None


async def get(
    path: str, *, is_live: bool = True, requests: RequestMetrics | None = None, groups: GroupMetrics | None = None
) -> tuple[int, str]:
    storage = StoreStats()
    storage.note_removed(Reason.TIME, 100)
    image = ClusterImage(1, "c")
    collector = BrokerCollector(requests or RequestMetrics(), ServerStats(), storage, lambda: image)
    sent: list[dict[str, Any]] = []
    received: list[dict[str, Any]] = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if not received:
            await trio.sleep_forever()
        return received.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": ""}
    app = build_app(lambda: is_live, collector, groups or GroupMetrics(Groups(), high_watermark))
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent).decode()


async def test_live_until_told_to_stop() -> None:
    assert await get("/health/live") == (200, '{"status":"live"}')
    assert await get("/health/live", is_live=False) == (503, '{"status":"stopping"}')


async def test_metrics_show_requests_and_their_latency() -> None:
    produce = ApiCounters("produce", requests=3)
    produce.answered(0.3)
    produce.answered(20_000.0)
    status, text = await get("/metrics", requests=RequestMetrics(by_api={0: produce}))
    assert status == 200
    lines = text.splitlines()
    assert 'kafkawire_requests_total{request="produce"} 3.0' in lines
    assert 'kafkawire_request_latency_seconds_bucket{le="0.0005",request="produce"} 1.0' in lines
    assert 'kafkawire_request_latency_seconds_bucket{le="+Inf",request="produce"} 2.0' in lines
    assert 'kafkawire_connections_closed_total{reason="protocol_violation"} 0.0' in lines
    assert 'kafkawire_segments_removed_bytes_total{reason="time"} 100.0' in lines


async def samples_of(groups: Groups, samples_max: int = 100_000) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values by name; a family that is not in one piece is met twice."""
    status, text = await get("/metrics", groups=GroupMetrics(groups, high_watermark, samples_max))
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def test_what_the_group_coordinators_count() -> None:
    found = await samples_of(Groups(billing=[(TopicPartition("orders", 0), 90)], idle=[]))
    kafka = "kafka_server_group_coordinator_metrics_"
    assert found[f"{kafka}group_count"] == [({"protocol": "classic"}, 2)]
    states = {labels["state"]: count for labels, count in found[f"{kafka}classic_group_count"]}
    assert states == {"Empty": 1, "PreparingRebalance": 0, "CompletingRebalance": 0, "Stable": 1}
    totals = ("offset_count", "offset_commit_count", "offset_expiration_count", "group_completed_rebalance_count")
    assert [found[kafka + name] for name in totals] == [[({}, 1)], [({}, 20)], [({}, 5)], [({}, 3)]]
    assert found["kafkawire_group_members_expired_total"] == [({}, 2)]


async def test_offsets_and_lag_of_each_partition_and_of_the_group() -> None:
    orders = [(TopicPartition("orders", 0), 90), (TopicPartition("orders", 1), 60), (TopicPartition("orders", 2), 120)]
    found = await samples_of(Groups(billing=[*orders, (TopicPartition("led elsewhere", 0), 5)], idle=[]))
    first = {"consumergroup": "billing", "topic": "orders", "partition": "0"}
    assert found["kafka_consumergroup_current_offset"][0] == (first, 90.0)
    assert [value for _, value in found["kafka_consumergroup_current_offset"]] == [90, 60, 120, 5]
    assert [(labels["partition"], lag) for labels, lag in found["kafka_consumergroup_lag"]] == [
        ("0", 10),
        ("1", 40),
        ("2", 0),
    ]
    assert found["kafka_consumergroup_members"] == [({"consumergroup": "billing"}, 4), ({"consumergroup": "idle"}, 0)]
    redpanda = {"redpanda_group": "billing"}
    assert found["redpanda_kafka_consumer_group_lag_sum"] == [(redpanda, 50)]
    assert found["redpanda_kafka_consumer_group_lag_max"] == [(redpanda, 40)]
    assert found["redpanda_kafka_consumer_group_consumers"][0] == (redpanda, 4.0)
    assert found["redpanda_kafka_consumer_group_committed_offset"][1] == (
        {"redpanda_group": "billing", "redpanda_topic": "orders", "redpanda_partition": "1"}, 60.0,
    )  # fmt: skip


async def test_names_of_groups_may_be_anything() -> None:
    name = 'a "group"\\ of\nlines'
    found = await samples_of(Groups(**{name: [(TopicPartition("orders", 0), 1)]}))
    assert found["kafka_consumergroup_lag"][0][0]["consumergroup"] == name


async def test_groups_that_are_too_many_are_left_out_and_counted() -> None:
    offsets = [(TopicPartition("orders", number), 1) for number in range(6)]
    found = await samples_of(Groups(first=offsets, second=offsets, third=offsets[:2]), samples_max=10)
    assert [labels["consumergroup"] for labels, _ in found["kafka_consumergroup_members"]] == ["first", "third"]
    assert found["kafkawire_groups_left_out"] == [({}, 1)]


async def test_others_have_their_turn_while_offsets_are_written_down() -> None:
    offsets = [(TopicPartition("orders", number), 1) for number in range(10 * PORTION)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        found = await samples_of(Groups(large=offsets))
        nursery.cancel_scope.cancel()
    assert len(found["kafka_consumergroup_lag"]) == len(offsets)
    assert turns > 4 * 10  # looking, and three families of a sample for each


async def test_no_other_route() -> None:
    assert (await get("/"))[0] == 404
