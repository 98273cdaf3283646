"""AlterConfigs, key 33: replace all configs of a resource; what is not named goes back to its default.

Behavior:
- Older than IncrementalAlterConfigs, and as there but for that: of two clients that read, change and write, one undoes
  what the other did. Levels of loggers are not known to it. After Kafka's ConfigAdminManager.

Version notes: 2 flexible.
"""

from __future__ import annotations

from coordinator.api import ConfigOperation
from kafkawire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kafkawire.requests.config_alteration import Alteration, AskedChange, alter
from kafkawire.requests.context import RequestContext
from kafkawire.requests.errors import ErrorCode


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replaces the configs of one resource after the other."""
    asked = [
        Alteration(
            one.resource_type,
            one.resource_name,
            [AskedChange(ConfigOperation.SET, config.name, config.value) for config in one.configs],
            replaces=True,
        )
        for one in request.resources
    ]
    rows = await alter(context, asked, AlterConfigsResourceResponse, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=rows)


def refuse(context: RequestContext, request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """All that was asked for."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )
