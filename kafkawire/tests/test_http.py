"""Health and metrics, asked over ASGI without a socket."""

from __future__ import annotations

from typing import Any

from coordinator.api import ClusterImage
from kafkawire.http.app import build_app
from kafkawire.http.metrics import BrokerCollector
from kafkawire.request_metrics import ApiCounters, RequestMetrics
from kafkawire.server_stats import ServerStats


async def get(path: str, *, is_live: bool = True, requests: RequestMetrics | None = None) -> tuple[int, str]:
    collector = BrokerCollector(requests or RequestMetrics(), ServerStats(), lambda: ClusterImage(1, "c"))
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": ""}
    await build_app(lambda: is_live, collector)(scope, receive, send)
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


async def test_no_other_route() -> None:
    assert (await get("/"))[0] == 404
