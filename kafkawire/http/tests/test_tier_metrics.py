"""The remote tier in the metrics: copied and waiting segments, and the availability of the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import trio

from engine.api import TopicIdPartition
from engine.tier import CopyLag
from kafkawire.config.tests.test_enforced import ask, fetch_request, produce
from kafkawire.config.tests.test_tier_enforced import TIER, alter, segments, tiered
from kafkawire.http.exposition import PORTION
from kafkawire.http.tests.test_metrics import scraped
from kafkawire.http.tier_metrics import AWAY_S, LATE_S, PARTITIONS_AT_ONCE, TierMetrics
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import MemoryDeps, OpenBroker, open_broker
from testkit.asgi import get_response
from tiering.object_store import Content
from tiering.statistics import TieredPartition, TopicCounters
from tiering.stores.counted import CountedStore
from tiering.stores.memory import HEALTHY, Fault, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


KAFKA, REDPANDA = "kafka_server_brokertopicmetrics_remote", "redpanda_cloud_storage_"
LOST = Fault(is_lost=True)
Found = dict[str, list[tuple[dict[str, str], float]]]


async def found_in(opened: OpenBroker) -> Found:
    return await scraped(opened.broker.http_app(LoopWatch()))


async def health(opened: OpenBroker) -> tuple[int, list[str]]:
    status, body = await get_response(opened.broker.http_app(LoopWatch()), "/health/cluster")
    reasons: list[str] = json.loads(body)["reasons"]
    assert (await get_response(opened.broker.http_app(LoopWatch()), "/health/live"))[0] == 200
    assert (await get_response(opened.broker.http_app(LoopWatch()), "/health/ready"))[0] == 200
    return status, reasons


def of_topic(found: Found, name: str) -> float:
    [(labels, value)] = found[name]
    assert labels in ({"topic": "t"}, {"redpanda_topic": "t"})
    return value


def kafka(found: Found, *names: str) -> list[float]:
    return [of_topic(found, KAFKA + name) for name in names]


async def test_without_a_tier_there_is_nothing_of_it() -> None:
    async with open_broker() as opened:
        assert not [name for name in await found_in(opened) if "remote" in name or "tier" in name or "cloud" in name]
        assert await health(opened) == (200, [])


async def test_copied_segments_are_counted_under_kafkas_and_redpandas_names() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, _):
        await trio.sleep(5)
        found = await found_in(opened)
    copied_bytes = sum(len(deps.objects.objects[key][0]) for key in segments(deps))
    assert len(segments(deps)) == 6
    assert kafka(found, "copybytes_total", "copyrequests_total", "copyerrors_total") == [copied_bytes, 6, 0]
    assert kafka(found, "copylagbytes", "copylagsegments", "logmetadatacount") == [0, 0, 6]
    [log_size_bytes] = kafka(found, "logsizebytes")
    assert 6 * 700_000 < log_size_bytes < copied_bytes
    assert of_topic(found, f"{REDPANDA}uploaded_bytes_total") == copied_bytes
    assert [of_topic(found, f"{REDPANDA}{name}") for name in ("segments", "cloud_log_size")] == [6, log_size_bytes]
    assert found[f"{REDPANDA}segment_uploads_total"] == [({}, 6)]


async def test_metrics_show_the_lag_of_segments_that_wait_to_be_copied() -> None:
    deps = MemoryDeps()
    async with tiered(deps, 2) as (opened, client):
        await trio.sleep(5)
        deps.objects.fault = lambda _operation, _key: LOST
        before = await found_in(opened)
        for _ in range(2):
            await produce(client, bytes(700_000))
        await trio.sleep(60)
        found = await found_in(opened)
        assert kafka(before, "copylagsegments") == [0]
        assert before["kafkawire_tier_copy_oldest_seconds"] == [({}, 0)]
        [lag_segments, lag_bytes, errors] = kafka(found, "copylagsegments", "copylagbytes", "copyerrors_total")
        assert lag_segments == 2
        assert 2 * 700_000 < lag_bytes < 2 * 701_000
        assert errors > 3
        assert 50 < found["kafkawire_tier_copy_oldest_seconds"][0][1] <= 60
        assert 50 < found["kafkawire_tier_store_away_seconds"][0][1] <= 60
        deps.objects.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(60)
        found = await found_in(opened)
        assert kafka(found, "copylagsegments", "copylagbytes") == [0, 0]
        assert found["kafkawire_tier_store_away_seconds"] == [({}, 0)]


async def test_reads_from_the_tier_are_counted() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await trio.sleep(5)
        await alter(client, local_retention_bytes="1")
        await trio.sleep(5)
        before = await found_in(opened)
        reply = await ask(client, fetch_request(max_wait_ms=5000), 11)
        assert len(reply.responses[0].partitions[0].records) > 700_000
        found = await found_in(opened)
    assert kafka(before, "fetchbytes_total", "fetchrequests_total") == [0, 0]
    fetched_bytes, requests, errors = kafka(found, "fetchbytes_total", "fetchrequests_total", "fetcherrors_total")
    assert fetched_bytes > 700_000
    assert requests > 0
    assert errors == 0
    assert found[f"{REDPANDA}cache_space_size_bytes"] == [({}, fetched_bytes)]
    assert found[f"{REDPANDA}cache_space_files"][0][1] > 0


async def test_metrics_show_segments_that_wait_for_deletion_from_the_tier() -> None:
    async with tiered(MemoryDeps()) as (opened, client):
        await trio.sleep(5)
        partitions = [DeleteRecordsPartition(partition_index=0, offset=2)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1000)
        await ask(client, request, 2)
        await trio.sleep(5)
        found = await found_in(opened)
        [lag_segments, lag_bytes] = kafka(found, "deletelagsegments", "deletelagbytes")
        assert lag_segments == of_topic(found, f"{REDPANDA}segments_pending_deletion") == 2
        assert 2 * 700_000 < lag_bytes < 2 * 701_000
        assert kafka(found, "logmetadatacount", "deleterequests_total") == [6, 0]
        assert of_topic(found, f"{REDPANDA}segments") == 4
        await trio.sleep(90)
        found = await found_in(opened)
        assert kafka(found, "deletelagsegments", "deletelagbytes", "deleterequests_total") == [0, 0, 2]
        assert kafka(found, "deleteerrors_total") == [0]
        assert of_topic(found, f"{REDPANDA}deleted_segments_total") == 2


async def test_requests_of_the_store_are_counted() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **TIER) as opened:
        found = await found_in(opened)
        requests = {(one["operation"], one["outcome"]): value for one, value in found["kafkawire_tier_requests_total"]}
        assert requests["put", "exists"] >= 1  # the check of the store at the start
        assert requests["get", "unavailable"] == requests["get", "refused"] == 0
        took = {labels["operation"]: value for labels, value in found["kafkawire_tier_request_latency_seconds_count"]}
        assert took == {one.value: count for one, count in deps.objects.requests.items()}
        assert found["redpanda_cloud_client_uploads_total"] == [({}, took["put"])]
        missing = sum(count for (_, outcome), count in requests.items() if outcome == "missing")
        assert found["redpanda_cloud_client_not_found_total"] == [({}, missing)]
        assert found["kafkawire_tier_sent_bytes_total"][0][1] >= len(b"first")
        assert found["kafkawire_tier_received_bytes_total"][0][1] >= len(b"first")
        directions = {labels["redpanda_direction"]: value for labels, value in found[f"{REDPANDA}errors_total"]}
        assert directions == {"tx": 0, "rx": 0}


async def test_an_unreachable_store_makes_only_the_cluster_view_unhealthy() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await trio.sleep(5)
        assert await health(opened) == (200, [])
        deps.objects.fault = lambda _operation, _key: LOST
        await produce(client, bytes(700_000))
        await trio.sleep(AWAY_S / 2)
        assert await health(opened) == (200, [])
        await trio.sleep(300)
        status, [reason] = await health(opened)
        assert status == 503
        assert reason.startswith("the store of the remote tier is away, for 5 minutes: ")
        assert reason.endswith((": no reply", ": it got lost"))
        await trio.sleep(LATE_S)
        status, [_, reason] = await health(opened)
        assert reason == "t-0 has waited for 20 minutes to be copied to the remote tier"
        deps.objects.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(60)
        assert await health(opened) == (200, [])


async def test_a_store_that_failed_once_is_not_away_for_good() -> None:
    """The store is asked again by itself, though no request needs it."""
    deps = MemoryDeps()
    deps.objects.fault = lambda _operation, _key: LOST
    async with open_broker(deps, **TIER) as opened:
        await trio.sleep(120)
        assert (await health(opened))[1][0].startswith("the store of the remote tier is away, for 2 minutes: ")
        deps.objects.fault = lambda _operation, _key: HEALTHY
        await trio.sleep(31)
        assert await health(opened) == (200, [])


async def test_a_partition_with_a_damaged_manifest_is_unhealthy_and_counted() -> None:
    deps = MemoryDeps()
    async with tiered(deps) as (opened, client):
        await trio.sleep(5)
        *_, newest = sorted(key for key in deps.objects.objects if "/manifest/" in key)
        prefix, _, version = newest.rpartition("/")
        await deps.objects.put(f"{prefix}/{int(version) + 1:020d}", Content.of(b"nonsense"))
        await produce(client, bytes(700_000))
        await trio.sleep(10)
        status, [reason] = await health(opened)
        assert status == 503
        assert reason.startswith("t-0 has trouble with the remote tier: ")
        assert reason.endswith("fails its CRC")
        assert (await found_in(opened))["kafkawire_tier_partitions_troubled"] == [({}, 1)]


class FakeUploader:
    """Fake uploader with the watched attributes."""

    def __init__(self, partitions: Sequence[TieredPartition]) -> None:
        self.topics = TopicCounters()
        self._partitions = partitions

    def partitions(self) -> Iterator[TieredPartition]:
        return iter(self._partitions)

    def ailing(self, late_s: float) -> Iterator[TieredPartition]:
        return (one for one in self._partitions if one.problem is not None or one.waiting_s > late_s)


class _Cache(NamedTuple):
    """Fake cache with the watched attributes."""

    size_bytes: int = 0
    file_count: int = 0
    statistics: object = type("Nothing", (), {"evicted": 0})


class _Deletions(NamedTuple):
    failing: int = 0
    errors: int = 0


class Tier(NamedTuple):
    """Fake tier."""

    uploader: FakeUploader
    store: CountedStore
    cache: _Cache = _Cache()
    deletions: _Deletions = _Deletions()


def many(count: int, *, waiting_s: float = 0.0, problem: str | None = None) -> TierMetrics:
    partitions = [
        TieredPartition(
            TopicIdPartition(number.to_bytes(16, "big"), f"t{number}", 0),
            CopyLag(1, 10, 0, 1), waiting_s + number, 5, 50, 0, 0, problem, is_fenced=problem is not None,
        )
        for number in range(count)
    ]  # fmt: skip
    return TierMetrics(Tier(FakeUploader(partitions), CountedStore(MemoryStore())))  # type: ignore[arg-type]


async def test_partitions_that_wait_are_one_reason_and_those_in_trouble_one_each() -> None:
    assert list(many(30, waiting_s=LATE_S - 30).ailments()) == []
    [late] = many(30, waiting_s=2 * LATE_S).ailments()
    expected = "t29-0 has waited for 30 minutes to be copied to the remote tier, and 29 more for over 15 minutes"
    assert late == expected
    fenced = list(many(30, waiting_s=2 * LATE_S, problem="others write").ailments())
    assert fenced[3] == "t3-0 is fenced in the remote tier: others write"
    assert len(fenced) == 30


async def test_counters_that_have_no_total_at_redpandas_have_none_here() -> None:
    """The parser of the other tests appends `_total` to all of them."""
    text = b"".join(many(1).portions()).decode()
    assert 'redpanda_cloud_storage_uploaded_bytes{redpanda_topic="t0"} 0' in text.splitlines()
    assert "redpanda_cloud_client_uploads{} 0" in text.splitlines()


async def test_no_piece_of_very_many_partitions_costs_much() -> None:
    pieces = list(many(10 * PORTION).portions())
    assert sum(piece == b"" for piece in pieces) == 10 * PORTION / PARTITIONS_AT_ONCE
    assert max(piece.count(b"\n") for piece in pieces) <= PORTION
