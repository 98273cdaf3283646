"""DescribeConfigs, key 32: the configs in effect for topics and brokers, and the source of each value.

Behavior:
- Resources are topics, this broker by its id, the brokers' default under the empty name, this broker's loggers, groups
  and clients' metrics. Each has its own result. An unknown resource type makes the whole request INVALID_REQUEST.
- Without named keys, all keys are described; an unknown key is left out silently. Values of passwords are null.
- Another broker is not described: only the broker itself knows its configs. After Kafka's ConfigHelper.

Version notes: 1 source and synonyms (KIP-226), 3 type and documentation (KIP-569), 4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from coordinator.errors import InvalidTopicRequest
from kafkawire.config.entries import ConfigEntry, ConfigResourceType, ConfigSource
from kafkawire.config.log_levels import LOGGERS
from kafkawire.config.unbuilt_resources import describe_unbuilt
from kafkawire.handlers.common.config_resources import DENIED, broker_id_of, denial
from kafkawire.handlers.common.repeats import check_repeats
from kafkawire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation
from kafkawire.requests.errors import ErrorCode, shortened
from kafkawire.requests.topic_lookup import is_legal_topic_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkawire.requests.context import RequestContext

RESOURCES_PER_TURN: Final = 20
FAILED: Final = "The request failed."


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe one resource after the other."""
    check_repeats([(one.resource_type, one.resource_name) for one in request.resources])
    if any(one.resource_type not in set(ConfigResourceType) for one in request.resources):
        text = "This most likely occurs because of a request being malformed by the client library."
        return DescribeConfigsResponse(
            results=[_refused(one, ErrorCode.INVALID_REQUEST, text) for one in request.resources]
        )
    response = DescribeConfigsResponse(results=[])
    rows = _Rows(request)
    for count, resource in enumerate(request.resources, 1):
        response.results.append(_describe(context, rows, resource))
        if count % RESOURCES_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    return response


def refuse(context: RequestContext, request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Refuse every resource."""
    return DescribeConfigsResponse(results=[_refused(resource, code, FAILED) for resource in request.resources])


class _Rows:
    """Rows of config entries, each made once. Topics share the catalogue's entry of a key that they do not set."""

    def __init__(self, request: DescribeConfigsRequest) -> None:
        self._request = request
        # By identity: a comparison would cost as much as it saves. The entry is kept, so that its id stays unique.
        self._made: dict[int, tuple[ConfigEntry, DescribeConfigsResourceResult]] = {}

    def of(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        made = self._made.get(id(entry))
        if made is None:
            made = self._made[id(entry)] = entry, _row(self._request, entry)
        return made[1]


def _describe(context: RequestContext, rows: _Rows, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    kind = ConfigResourceType(resource.resource_type)
    refused = denial(context, Operation.DESCRIBE_CONFIGS, kind, resource.resource_name)
    if refused is not None:
        return _refused(resource, refused, DENIED[refused])
    try:
        found = _entries(context, kind, resource.resource_name)
    except InvalidTopicRequest as error:
        return _refused(resource, ErrorCode.INVALID_REQUEST, str(error))
    if isinstance(found, ErrorCode):
        return _refused(resource, found, "")
    keys = frozenset(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[rows.of(entry) for entry in found if not keys or entry.name in keys],
    )


def _entries(context: RequestContext, kind: ConfigResourceType, name: str) -> Sequence[ConfigEntry] | ErrorCode:
    """Config entries of a resource, or an error code. Raises InvalidTopicRequest for an impossible resource."""
    if kind is ConfigResourceType.TOPIC:
        topic = context.broker.cluster.image.topics.get(name)
        if topic is not None:
            return context.broker.configs.topic(name, topic.configs)
        known = is_legal_topic_name(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.INVALID_TOPIC_EXCEPTION
    if kind is ConfigResourceType.BROKER:
        if not name:
            return context.broker.configs.cluster_default()
        _check_broker(context, name, "or empty string, ")
        return context.broker.configs.broker()
    if kind is ConfigResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidTopicRequest("Broker id must not be empty")
        _check_broker(context, name, "")
        levels = context.broker.log_levels
        return [ConfigEntry(one, levels.of(one), ConfigSource.DYNAMIC_BROKER_LOGGER) for one in LOGGERS]
    if not name:
        group = kind is ConfigResourceType.GROUP
        raise InvalidTopicRequest(f"{'Group' if group else 'Client metrics subscription'} name must not be empty")
    return describe_unbuilt(kind)


def _check_broker(context: RequestContext, name: str, alternative: str) -> None:
    broker_id, node_id = broker_id_of(name), context.broker.config.node_id
    if broker_id is None:
        raise InvalidTopicRequest(f"Broker id must be an integer, but it is: {name}")
    if broker_id != node_id:
        raise InvalidTopicRequest(f"Unexpected broker id, expected {node_id} {alternative}but received {name}")


def _row(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _refused(resource: DescribeConfigsResource, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=shortened(message),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


API = Api("describe_configs", DescribeConfigsRequest, handle, refuse, 1, 4)
