"""The one authorizer of a broker: it denies Kafka clients and HTTP clients alike."""

from __future__ import annotations

from typing import Any

import pytest

from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.server.loop_watch import LoopWatch
from kafkawire.testing import open_broker
from testkit.asgi import get_response


async def test_requests_of_kafka_and_of_http_ask_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []

    def deny(principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str) -> bool:
        asked_for.append((principal, operation, resource_name))
        return False

    monkeypatch.setattr("kafkawire.broker.allow_all", deny)
    async with open_broker() as opened:
        await opened.broker.coordinator.create_topic("orders", partition_count=1)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        reply: Any = await opened.connect().call(request, 8)
        status, _ = await get_response(opened.broker.http_app(LoopWatch()), "/v1/topics/orders/messages", key="k")
    assert (reply.topics[0].error_code, status) == (29, 403)
    assert asked_for == [
        ("User:ANONYMOUS", Operation.DESCRIBE, "orders"),
        ("User:ANONYMOUS", Operation.READ, "orders"),
    ]
