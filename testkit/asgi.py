"""Requests to an ASGI application without a socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import trio
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette

from kafkawire.http.hosts import AllowedHosts


async def get_response(
    app: Starlette, path: str, host: str | None = None, peer: str = "127.0.0.1", /, **query: object
) -> tuple[int, str]:
    """Status and body of the response to a GET of `peer`."""
    return await _request(app, "GET", path, [] if host is None else [(b"host", host.encode())], b"", peer, query)


async def posted(
    app: Starlette, path: str, content_type: str, body: bytes, peer: str = "127.0.0.1", /, **query: object
) -> tuple[int, str]:
    """Status and body of the response to a POST of `peer`."""
    return await _request(app, "POST", path, [(b"content-type", content_type.encode())], body, peer, query)


async def _request(
    app: Starlette,
    method: str,
    path: str,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    peer: str,
    query: Mapping[str, object],
) -> tuple[int, str]:
    sent: list[dict[str, Any]] = []
    received: list[dict[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if not received:
            await trio.sleep_forever()
        return received.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "query_string": urlencode(query).encode(),
        "root_path": "",
        "client": (peer, 50_000),
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent).decode()


ANY_HOST = AllowedHosts("", ["*"])


class NoMetrics(Collector):
    """Collector without metrics, for applications that serve other routes."""

    def collect(self) -> Iterator[Metric]:
        return iter(())
