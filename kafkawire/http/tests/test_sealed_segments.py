"""Sealed segments of a partition over HTTP: content, page after page, and refusals."""

from __future__ import annotations

import pytest
import trio

from engine.logs.segments.footer import read_footer
from kafkawire.http.queries import BadRequest
from kafkawire.http.sealed_segments import COUNT_MAX, EVERYTHING, Query
from testkit.cold_broker import COLD, WARM, cold_broker, is_segment
from testkit.sealed_segments import STORE, app_of, segments_of
from tiering.stores.memory import HEALTHY, Fault, Operation


async def test_sealed_segments_in_the_tier_are_listed_with_their_objects() -> None:
    async with cold_broker(1, 3) as cold:
        log = cold.log()
        keys = sorted(key for key in cold.deps.objects.objects if is_segment(key) and "/topics/" not in key)
        status, document = await segments_of(app_of(cold))
        segments = document.pop("segments")
        assert status == 200
        assert document == {
            "format": 1,
            "cluster_id": cold.opened.broker.coordinator.image.cluster_id,
            "topic": COLD,
            "topic_id": log.partition.topic_id.hex(),
            "partition": 0,
            "leader_epoch": log.leader_epoch,
            "log_start": 0,
            "high_watermark": 4,
            "last_stable": 4,
            "sealed_end": 3,
            "tier": STORE,
            "next": None,
        }
        assert [one["object"] for one in segments] == keys
        assert [(one["base"], one["end"], one["records"]) for one in segments] == [(0, 1, 1), (1, 2, 1), (2, 3, 1)]
        assert {one["file"] for one in segments} == {None}
        assert all(one["aborted"] is None and len(one["digest"]) == 64 for one in segments)


async def test_a_local_sealed_segment_is_listed_with_the_values_of_its_footer() -> None:
    def store_is_away(_operation: Operation, _key: str) -> Fault:
        return Fault(is_lost=True)

    async with cold_broker(1, 0) as cold:
        cold.deps.objects.fault = store_is_away
        for number in range(3):
            await cold.append(COLD, 0, bytes(700_000), number)
        await trio.sleep(5)
        cold.deps.objects.fault = lambda _operation, _key: HEALTHY
        _, document = await segments_of(app_of(cold), files="true")
        first, *others = document["segments"]
        directory, _, name = first["file"].rpartition("/")
        footer = read_footer(cold.deps.filesystem, directory, 0)
        assert name == f"{0:020d}.log"
        assert first == {
            "base": 0,
            "end": 1,
            "size_bytes": footer.size_bytes,
            "max_timestamp_ms": footer.max_timestamp_ms,
            "min_timestamp_ms": -1,
            "records": 1,
            "digest": footer.digest.hex(),
            "aborted": [],
            "positions": [],
            "object": None,
            "file": f"{directory}/{name}",
        }
        assert len(others) == 2
        await trio.sleep(60)
        _, document = await segments_of(app_of(cold))
        assert all(one["object"] and one["file"] is None for one in document["segments"])


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_are_a_whole(limit: int) -> None:
    async with cold_broker(1, 6) as cold:
        app = app_of(cold)
        found: list[int] = []
        following: int | None = 0
        while following is not None:
            _, document = await segments_of(app, from_=following, to=5, limit=limit)
            assert len(document["segments"]) <= limit
            found += [one["base"] for one in document["segments"]]
            following = document["next"]
        assert found == [0, 1, 2, 3, 4]


async def test_nothing_is_sealed_of_a_topic_that_is_new() -> None:
    async with cold_broker() as cold:
        _, document = await segments_of(app_of(cold, has_tier=False), WARM)
        assert (document["sealed_end"], document["segments"], document["next"]) == (0, [], None)
        assert (document["high_watermark"], document["tier"]) == (1, None)


async def test_invalid_requests_for_sealed_segments_are_refused_with_a_reason() -> None:
    async with cold_broker() as cold:
        app = app_of(cold)
        for topic, query, status, reason in [
            (COLD, {"partition": 1}, 404, "cold has no partition 1"),
            ("none", {}, 404, "there is no topic none"),
            (COLD, {"limit": 0}, 400, f"limit is not a number from 1 to {COUNT_MAX}"),
            (
                COLD,
                {"peer": "192.0.2.1", "files": "true"},
                403,
                "paths of files are sent only to clients on this machine",
            ),
        ]:
            found, document = await segments_of(app, topic, **query)  # type: ignore[arg-type]
            assert (found, document["error"][: len(reason)]) == (status, reason)
        assert (await segments_of(app, peer="192.0.2.1", files="false"))[0] == 200


async def test_a_client_without_the_read_right_gets_no_segments() -> None:
    async with cold_broker() as cold:
        status, document = await segments_of(app_of(cold, lambda *_: False))
        assert (status, document) == (403, {"error": "cold may not be read"})


async def test_an_unreachable_store_is_answered_with_503() -> None:
    async with cold_broker() as cold:
        cold.deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
        status, document = await segments_of(app_of(cold))
        assert (status, document["error"][:16]) == (503, "the remote tier:")


async def test_a_broker_serves_it() -> None:
    async with cold_broker() as cold:
        app = cold.opened.broker.http_app(None)  # type: ignore[arg-type] # no metrics are asked for
        status, document = await segments_of(app)
        assert (status, len(document["segments"])) == (200, 1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "say of which partition"),
        ({"partition": "x"}, "partition is not a number"),
        ({"partition": "-1"}, "partition is not a number"),
        ({"partition": "0", "to": "9" * 20}, "to is not a number"),
        ({"partition": "0", "limit": str(COUNT_MAX + 1)}, "limit is not a number"),
        ({"partition": "0", "files": "1"}, "files is neither true nor false"),
        ({"partition": "0", "offset": "1"}, "unknown parameter offset"),
    ],
)
def test_a_query_with_invalid_parameters_raises_bad_request(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        Query.parse(given)


def test_a_query_without_bounds_asks_for_all_segments() -> None:
    assert Query.parse({"partition": "3"}) == Query(3, 0, EVERYTHING, COUNT_MAX, has_files=False)
