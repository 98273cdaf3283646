"""IncrementalAlterConfigs, key 44: set, delete, append to and subtract from single configs (KIP-339).

Behavior:
- Each resource has its own result: a topic, this broker, or the default of all brokers. Its changes are made together
  or not at all, on the present values, and are durable.
- Configs that have no effect here are refused: see docs/configs.md. After Kafka's ConfigAdminManager and
  ConfigurationControlManager.

Version notes: 1 flexible.
"""

from __future__ import annotations

from kafkawire.handlers.common.config_alteration import Alteration, RequestedChange, alter
from kafkawire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode


async def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change one resource after the other."""
    alterations = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [RequestedChange(config.config_operation, config.name, config.value) for config in one.configs],
        )
        for one in request.resources
    ]
    rows = await alter(context, alterations, AlterConfigsResourceResponse, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=rows)


def refuse(
    context: RequestContext, request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Refuse every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


API = Api("incremental_alter_configs", IncrementalAlterConfigsRequest, handle, refuse, 0, 1)
