"""AlterConfigs, key 33: replace all configs of a resource. Configs that are not named return to their defaults.

Behavior:
- It is older than IncrementalAlterConfigs, and works alike except for the replacement: if two clients read, change and
  write, one of them undoes the other's change. Log levels cannot be set. After Kafka's ConfigAdminManager.

Version notes: 2 flexible.
"""

from __future__ import annotations

from coordinator.api import ConfigOperation
from kafkawire.handlers.common.config_alteration import Alteration, RequestedChange, alter
from kafkawire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace the configs of one resource after the other."""
    alterations = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [RequestedChange(ConfigOperation.SET, config.name, config.value) for config in one.configs],
            replaces=True,
        )
        for one in request.resources
    ]
    rows = await alter(context, alterations, AlterConfigsResourceResponse, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=rows)


def refuse(context: RequestContext, request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Refuse every resource."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )


API = Api("alter_configs", AlterConfigsRequest, handle, refuse, 0, 2)
