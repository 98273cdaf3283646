"""Configs of topics and brokers for administrators: describe, alter (KIP-339)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Connection
from kafkawire.client.errors import ClientError, refusal
from kafkawire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kafkawire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC: Final = 2  # Kafka's ConfigResource.Type
BROKER: Final = 4


class Resource(NamedTuple):
    """Resource with configs: a topic by its name, a broker by its id, or all brokers (empty name)."""

    type: int
    name: str

    def __str__(self) -> str:
        if self.type == TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


class Operation(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    operation: Operation
    key: str
    value: str | None


async def describe_configs(
    cluster: Cluster, resource: Resource, keys: Collection[str] = ()
) -> list[DescribeConfigsResourceResult]:
    """All keys or these, by name, with synonyms and documentation. Raises ClientError."""
    asked = DescribeConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configuration_keys=sorted(keys) or None
    )
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    answer = await (await _home(cluster, resource)).call(request, DescribeConfigsResponse)
    for one in answer.results:
        if one.error_code:
            raise ClientError(f"{resource}: {refusal(one.error_code, one.error_message)}")
        return sorted(one.configs, key=lambda config: config.name)
    raise ClientError(f"the broker says nothing of {resource}")


async def alter_configs(
    cluster: Cluster, resource: Resource, changes: Sequence[Change], *, validate_only: bool = False
) -> None:
    """Make all changes or none; with `validate_only` only validate them. Raises ClientError."""
    altered = AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[AlterableConfig(name=key, config_operation=how, value=value) for how, key, value in changes],
    )
    request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
    answer = await (await _home(cluster, resource)).call(request, IncrementalAlterConfigsResponse)
    for one in answer.responses:
        if one.error_code:
            raise ClientError(f"{resource}: {refusal(one.error_code, one.error_message)}")


async def _home(cluster: Cluster, resource: Resource) -> Connection:
    """Connection for the resource: a broker answers for its own configs, the controller for all others."""
    if resource.type == BROKER and resource.name:
        return await cluster.broker_of_id(int(resource.name))
    return await cluster.controller()
