"""The HTTP interface of sealed segments, over a broker with a cold topic."""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette

from engine.append_at_offset import KeptBatches
from kafkawire.http.topic_routes import topic_routes
from kafkawire.requests.context import allow_all
from testkit.asgi import get_response
from testkit.cold_broker import COLD, Cold

STORE = "s3://bucket/lake"


def app_of(cold: Cold, authorizer: Any = allow_all, *, has_tier: bool = True) -> Starlette:
    broker = cold.opened.broker
    tier = broker._tier if has_tier else None
    return Starlette(
        routes=topic_routes(broker.coordinator, broker.store, KeptBatches(broker.store), authorizer, STORE, tier)
    )


async def segments_of(app: Starlette, topic: str = COLD, peer: str = "127.0.0.1", **query: object) -> tuple[int, Any]:
    query = {name.removesuffix("_"): value for name, value in query.items()}
    status, body = await get_response(app, f"/v1/topics/{topic}/segments", None, peer, **{"partition": 0, **query})
    return status, json.loads(body)
