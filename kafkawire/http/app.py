"""The HTTP application: `/health/live` and `/metrics`. It reads the broker's counters and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def build_app(is_live: Callable[[], bool], registry: CollectorRegistry) -> Starlette:
    """The routes. `is_live` tells whether the broker serves; it is asked at every probe."""

    async def live(request: Request) -> Response:
        alive = is_live()
        return JSONResponse({"status": "live" if alive else "stopping"}, status_code=200 if alive else 503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/health/live", live), Route("/metrics", metrics)])
