"""The HTTP application: routes of the modules beside this one, and `/metrics` from their counters.

The routes read; a route that changes something is only for clients with a loopback address (there is no security yet).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain

import trio
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from kafkawire.http.hosts import AllowedHosts, HostGuard

App = Starlette
Portions = Callable[[], Iterator[bytes]]  # text of metrics, in small pieces


def build_app(
    routes: Sequence[BaseRoute], collector: Collector, portions: Sequence[Portions], hosts: AllowedHosts
) -> App:
    """Build the application. `collector` has the few metrics, `portions` the many; each scrape reads all."""
    registry = CollectorRegistry()
    registry.register(collector)

    async def metrics(request: Request) -> Response:
        text = chain([generate_latest(registry)], *(portion() for portion in portions))
        return StreamingResponse(_InTurns(text), media_type=CONTENT_TYPE_LATEST)

    return App(routes=[Route("/metrics", metrics), *routes], middleware=[Middleware(HostGuard, hosts=hosts)])


class _InTurns(AsyncIterator[bytes]):
    """Pieces as they are made, without empty ones. Other tasks may run before each."""

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
