"""Metrics, scraped over ASGI without a socket."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from coordinator.api import ClusterImage
from coordinator.groups.api import GroupCounters, GroupFigures, GroupState, TopicPartition
from engine.batches.batch import Record, build_batch
from engine.stats import CommitStatistics, LogDirStatistics, PassStats, Reason, StoreStats
from kafkawire.http.app import build_app
from kafkawire.http.exposition import PORTION
from kafkawire.http.group_metrics import GroupMetrics
from kafkawire.http.log_metrics import LogMetrics
from kafkawire.http.metrics import BrokerCollector
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.metrics import ApiCounters, RequestMetrics
from kafkawire.server.loop_watch import SAMPLE_EVERY_S, WORK_OVER_S, LoopWatch
from kafkawire.server.stats import ServerStats
from kafkawire.testing import open_broker
from kafkawire.tests.turns import OtherTask
from testkit.asgi import ANY_HOST, NoMetrics, get_response

DOCKER = Path(__file__).parents[3] / "docker"


class Groups:
    """`GroupStatistics` with given offsets; a member for each offset."""

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


async def get(path: str, *, requests: RequestMetrics) -> tuple[int, str]:
    image, dirs = ClusterImage(1, "c"), [LogDirStatistics("/data", None, 0, 0, CommitStatistics())]
    storage = StoreStats()
    storage.note_removed(Reason.TIME, 100)
    collector = BrokerCollector(requests, ServerStats(), storage, LoopWatch(), lambda: image, lambda: dirs, broker_id=1)
    return await get_response(build_app([], collector, [], ANY_HOST), path)


async def test_metrics_show_requests_and_their_latency() -> None:
    produce = ApiCounters("produce", requests=3)
    produce.latency.note(0.0003)
    produce.latency.note(20.0)
    status, text = await get("/metrics", requests=RequestMetrics(by_api={0: produce}))
    assert status == 200
    lines = text.splitlines()
    assert 'kafkawire_requests_total{request="produce"} 3.0' in lines
    assert 'kafkawire_request_latency_seconds_bucket{le="0.0005",request="produce"} 1.0' in lines
    assert 'kafkawire_request_latency_seconds_bucket{le="+Inf",request="produce"} 2.0' in lines
    assert 'kafkawire_connections_closed_total{reason="protocol_violation"} 0.0' in lines
    assert 'kafkawire_segments_removed_bytes_total{reason="time"} 100.0' in lines


async def scraped(app: Starlette) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values by name. A family that is not in one piece fails."""
    status, text = await get_response(app, "/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def test_metrics_count_written_read_and_stored_records() -> None:
    async with open_broker() as opened:
        broker = opened.broker
        topic = await broker.coordinator.create_topic("orders", partition_count=2)
        client = opened.connect()
        records = bytes(build_batch([Record(None, b"value")] * 3))
        data = PartitionProduceData(index=1, records=memoryview(bytearray(records)))
        produce = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
        )
        await client.call(produce, version=9)
        fetched = FetchTopic(topic="orders", partitions=[FetchPartition(partition=1, partition_max_bytes=1 << 20)])
        await client.call(FetchRequest(max_bytes=1 << 20, topics=[fetched]), version=4)
        found = await scraped(broker.http_app(LoopWatch()))
        of_topic, of_partition = {"topic": "orders"}, {"topic": "orders", "partition": "1"}
        counted = "kafka_server_brokertopicmetrics_"
        assert found[f"{counted}messagesin_total"] == [(of_topic, 3)]
        assert found[f"{counted}bytesin_total"] == [(of_topic, len(records))]
        assert found[f"{counted}bytesout_total"] == [(of_topic, len(records))]
        assert found["redpanda_kafka_records_produced_total"] == [({"redpanda_topic": "orders"}, 3)]
        moved = {labels["redpanda_request"]: value for labels, value in found["redpanda_kafka_request_bytes_total"]}
        assert moved == {"produce": len(records), "consume": len(records)}
        for name, value in (("logendoffset", 3), ("logstartoffset", 0), ("numlogsegments", 1), ("size", len(records))):
            assert (of_partition, value) in found[f"kafka_log_log_{name}"]
        assert (of_partition, 3) in found["kafka_topic_partition_current_offset"]
        assert ({"redpanda_topic": "orders", "redpanda_partition": "1"}, 3) in found["redpanda_kafka_max_offset"]
        assert found["kafkawire_write_latency_seconds_count"][0][1] == 1
        assert found["kafka_log_logcleaner_deadthreadcount"] == [({}, 0)]
        assert found["kafka_server_replicamanager_leadercount"] == [({}, 2)]
        assert found["kafka_server_replicamanager_reassigningpartitions"] == [({}, 0)]
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == [({}, 1)]
        await client.call(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), version=1)
        assert "orders" not in broker.metrics.by_topic
        assert topic.topic_id not in broker.coordinator.image.topics_by_id


async def test_partitions_that_are_too_many_are_left_out_and_counted() -> None:
    async with open_broker() as opened:
        broker = opened.broker
        await broker.coordinator.create_topic("orders", partition_count=5)
        logs = LogMetrics({}, broker.store.partition_statistics, lambda: broker.coordinator.image, partitions_max=3)
        found = await scraped(build_app([], NoMetrics(), [logs.portions], ANY_HOST))
    assert len(found["kafka_log_log_size"]) == 3
    assert found["kafkawire_partitions_left_out"] == [({}, 2)]


async def test_alerts_and_dashboard_use_existing_metrics_only() -> None:
    async with open_broker(remote_log_storage_system_enable="true", tier_store="s3://bucket") as opened:
        await opened.broker.coordinator.create_topic("orders", partition_count=1)
        found = set(await scraped(opened.broker.http_app(LoopWatch())))
        _, text = await get_response(opened.broker.http_app(LoopWatch()), "/metrics")
    declared = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    known = found | declared | {f"{name}_bucket" for name in declared}
    for name in ("alerts.yaml", "grafana-dashboard.json"):
        asked_for = re.findall(r"\b(?:kafka|kafkawire|redpanda)_[a-z_]+", (DOCKER / name).read_text())
        assert asked_for
        assert set(asked_for) <= known


async def test_a_late_loop_and_a_busy_one_are_seen() -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    worked_s = 0.0
    watch = LoopWatch(lambda: worked_s)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(SAMPLE_EVERY_S * 1.5)
        clock.jump(2.0)
        await trio.sleep(WORK_OVER_S)
        worked_s = WORK_OVER_S / 4
        await trio.sleep(2 * WORK_OVER_S)
        nursery.cancel_scope.cancel()
    assert watch.lag.in_bucket[-3] == 1
    assert watch.busy_s == worked_s
    assert 0.7 < watch.idle_ratio <= 1.0


async def samples_of(groups: Groups, samples_max: int = 100_000) -> dict[str, list[tuple[dict[str, str], float]]]:
    portions = GroupMetrics(groups, high_watermark, samples_max).portions
    return await scraped(build_app([], NoMetrics(), [portions], ANY_HOST))


async def test_metrics_show_the_counts_of_the_group_coordinators() -> None:
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
    other = OtherTask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.run)
        found = await samples_of(Groups(large=offsets))
        nursery.cancel_scope.cancel()
    assert len(found["kafka_consumergroup_lag"]) == len(offsets)
    assert other.turns > 4 * 10  # for the counting, and for three families with a sample each


async def test_no_other_route() -> None:
    assert (await get("/", requests=RequestMetrics()))[0] == 404


async def test_metrics_show_the_work_of_compaction() -> None:
    storage = StoreStats()
    storage.cleaner.note(PassStats(read_bytes=400, written_bytes=100, buffer_ratio=0.25, duration_s=1.5))
    storage.cleaner.dirtiest_ratio, storage.cleaner.looked_at_s = 0.75, trio.current_time()
    storage.cleaner.given_up["/data"] = 2
    await trio.sleep(3)
    parts = RequestMetrics(), ServerStats(), storage, LoopWatch(), lambda: ClusterImage(1, "c"), list
    found = await scraped(build_app([], BrokerCollector(*parts, broker_id=1), [], ANY_HOST))
    of_manager, of_cleaner = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
    for name, value in (
        (f"{of_manager}max_dirty_percent", 75),
        (f"{of_manager}time_since_last_run_ms", 3000),
        (f"{of_cleaner}cleaner_recopy_percent", 25),
        (f"{of_cleaner}max_clean_time_secs", 1.5),
        (f"{of_cleaner}max_buffer_utilization_percent", 25),
        ("kafkawire_compactions_total", 1),
        ("kafkawire_compaction_read_bytes_total", 400),
        ("kafkawire_compaction_written_bytes_total", 100),
    ):
        assert found[name] == [({}, value)]
    assert found[f"{of_manager}uncleanable_partitions_count"] == [({"logdirectory": "/data"}, 2)]
