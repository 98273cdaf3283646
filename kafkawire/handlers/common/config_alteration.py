"""Changes configs of any resource for AlterConfigs and IncrementalAlterConfigs, which differ only in their messages.

Errors of the request itself are found here, in the order of Kafka's ConfigAdminManager; the control plane decides the
rest. Every resource gets its own result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from coordinator.errors import CoordinatorError, InvalidConfig, InvalidTopicRequest
from kafkawire.config.entries import ConfigResourceType
from kafkawire.config.log_levels import LOGGERS, ROOT, SEVERITIES
from kafkawire.config.unbuilt_resources import check_unbuilt
from kafkawire.handlers.common.config_resources import DENIED, broker_id_of, denial
from kafkawire.requests.context import Operation
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkawire.messages import alter_configs, incremental_alter_configs
    from kafkawire.requests.context import RequestContext

    RowT = TypeVar(
        "RowT", alter_configs.AlterConfigsResourceResponse, incremental_alter_configs.AlterConfigsResourceResponse
    )


_log = structlog.get_logger(__name__)


class RequestedChange(NamedTuple):
    """Change of one key in a request, not checked yet."""

    operation: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of one resource. With `replaces`, all other keys return to their defaults."""

    resource_type: int
    resource_name: str
    changes: Sequence[RequestedChange]
    replaces: bool = False


class AlterationResult(NamedTuple):
    """The error of a resource and its text, if any."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


async def alter(
    context: RequestContext, alterations: Sequence[Alteration], new_row: type[RowT], *, validate_only: bool
) -> list[RowT]:
    """Change the resources one after the other. A resource that is named twice is refused. Return a row for each."""
    times_named = Counter((one.resource_type, one.resource_name) for one in alterations)
    outcomes = []
    for one in alterations:
        if times_named[one.resource_type, one.resource_name] > 1:
            outcomes.append(AlterationResult(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."))
            continue
        try:
            outcomes.append(await _alter_one(context, one, validate_only=validate_only))
        except CoordinatorError as error:
            outcomes.append(AlterationResult(error_code_of(error), str(error) or None))
    return [
        new_row(
            error_code=outcome.code,
            error_message=shortened(outcome.message),
            resource_type=one.resource_type,
            resource_name=one.resource_name,
        )
        for one, outcome in zip(alterations, outcomes, strict=True)
    ]


async def _alter_one(context: RequestContext, alteration: Alteration, *, validate_only: bool) -> AlterationResult:
    changes = _changes(alteration.changes)
    kind, name = _kind(alteration), alteration.resource_name
    refused = denial(context, Operation.ALTER_CONFIGS, kind, name)
    if refused is not None:
        return AlterationResult(refused, DENIED[refused])
    cluster, replaces = context.broker.cluster, alteration.replaces
    if kind is ConfigResourceType.TOPIC:
        await cluster.alter_topic_configs(name, changes, replace=replaces, validate_only=validate_only)
    elif kind is ConfigResourceType.BROKER:
        broker = _broker(context, name)
        await cluster.alter_broker_configs(broker, changes, replace=replaces, validate_only=validate_only)
    elif kind is ConfigResourceType.BROKER_LOGGER:
        _alter_levels(context, name, changes, validate_only=validate_only)
    else:
        check_unbuilt(kind, name, changes)
    return AlterationResult()


def _alter_levels(context: RequestContext, name: str, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Change log levels until the broker stops, all or none. After Kafka's RuntimeLoggerManager."""
    _check_node(context, name)
    for change in changes:
        _check_level(change)
    if validate_only:
        return
    levels = context.broker.log_levels
    for change in changes:
        if change.operation is ConfigOperation.SET:
            levels.set(change.key, change.value)
        else:
            levels.unset(change.key)
        _log.warning("logger level changed", logger=change.key, level=levels.of(change.key))


def _check_level(change: ConfigChange) -> None:
    operation, logger, level = change.operation, change.key, change.value
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise InvalidTopicRequest(f"{operation.name} operation is not allowed for the BROKER_LOGGER resource")
    if logger not in LOGGERS:
        raise InvalidConfig(f"Logger {logger} does not exist!")
    if operation is ConfigOperation.DELETE and logger == ROOT:
        raise InvalidTopicRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    if operation is ConfigOperation.SET and level not in SEVERITIES:
        known = ", ".join(sorted(SEVERITIES))
        raise InvalidConfig(
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {known}"
        )


def _changes(requested: Sequence[RequestedChange]) -> list[ConfigChange]:
    if len({one.key for one in requested}) < len(requested):
        raise InvalidTopicRequest("Error due to duplicate config keys")
    without = [one.key for one in requested if one.value is None and one.operation != ConfigOperation.DELETE]
    if without:
        raise InvalidTopicRequest(f"Null value not supported for : {', '.join(without)}")
    unknown = [one.operation for one in requested if one.operation not in set(ConfigOperation)]
    if unknown:
        raise InvalidTopicRequest(f"Unknown operations type {unknown[0]}")
    return [ConfigChange(ConfigOperation(one.operation), one.key, one.value or "") for one in requested]


def _kind(alteration: Alteration) -> ConfigResourceType:
    """The kind of the resource. Raises InvalidTopicRequest if levels of loggers are to be replaced as a whole."""
    kinds = set(ConfigResourceType) - ({ConfigResourceType.BROKER_LOGGER} if alteration.replaces else set())
    if alteration.resource_type not in kinds:
        raise InvalidTopicRequest(f"Unknown resource type {alteration.resource_type}")
    return ConfigResourceType(alteration.resource_type)


def _broker(context: RequestContext, name: str) -> str:
    if name == CLUSTER_DEFAULT:
        return name
    _check_node(context, name)
    return str(context.broker.config.node_id)


def _check_node(context: RequestContext, name: str) -> None:
    """Check that a broker resource names this broker: its configs are changed by itself."""
    broker_id, node_id = broker_id_of(name), context.broker.config.node_id
    if broker_id is None:
        raise InvalidTopicRequest(f"Node id must be an integer, but it is: {name}")
    if broker_id != node_id:
        raise InvalidTopicRequest(f"Unexpected broker id, expected {node_id}, but received {name}")
