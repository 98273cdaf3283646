"""The HTTP application: `/health/live` and `/metrics`. It reads the broker's counters and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def build_app(is_live: Callable[[], bool], collector: Collector) -> Starlette:
    """The routes. `is_live` tells whether the broker serves, `collector` what it counted; both are asked each time."""
    registry = CollectorRegistry()
    registry.register(collector)

    async def live(request: Request) -> Response:
        alive = is_live()
        return JSONResponse({"status": "live" if alive else "stopping"}, status_code=200 if alive else 503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/health/live", live), Route("/metrics", metrics)])
