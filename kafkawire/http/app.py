"""The HTTP application: `/health/live` and `/metrics`. It reads the broker's counters and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain

import trio
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from kafkawire.http.group_metrics import GroupMetrics


def build_app(is_live: Callable[[], bool], collector: Collector, groups: GroupMetrics) -> Starlette:
    """The routes. `is_live` tells whether the broker serves, the others what it counted; all are asked each time."""
    registry = CollectorRegistry()
    registry.register(collector)

    async def live(request: Request) -> Response:
        alive = is_live()
        return JSONResponse({"status": "live" if alive else "stopping"}, status_code=200 if alive else 503)

    async def metrics(request: Request) -> Response:
        text = chain([generate_latest(registry)], groups.portions())
        return StreamingResponse(_InTurns(text), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/health/live", live), Route("/metrics", metrics)])


class _InTurns(AsyncIterator[bytes]):
    """Pieces as they are made, empty ones left out; before each the other tasks have their turn."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    async def __anext__(self) -> bytes:
        piece = b""
        while not piece:
            await trio.lowlevel.checkpoint()
            try:
                piece = next(self._pieces)
            except StopIteration:
                raise StopAsyncIteration from None
        return piece
