"""UpdateFeatures, key 57: set the levels of features of the cluster (KIP-584).

Behavior:
- All levels change or none; an error of one is the error of the whole request. After success ApiVersions reports the
  new levels. If a feature is named twice, the last entry counts.
- The timeout has no effect, as in Kafka. The control plane checks. After QuorumController.updateFeatures.

Version notes: 0 has a field that allows a downgrade, which Kafka ignores: it is always an upgrade. 1 has the type of
the upgrade, and may only validate; 2 has no rows of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.api import FeatureUpdate, UpgradeType
from coordinator.errors import CoordinatorError, InvalidFeatureUpdate
from kafkawire.messages.update_features import UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened

if TYPE_CHECKING:
    from kafkawire.messages.update_features import FeatureUpdateKey

LAST_VERSION_WITH_ROWS: Final = 1
_REFUSED: Final = "The update failed for all features since the following feature had an error: "
_UPGRADE_TYPES: Final = {kind.value: kind for kind in UpgradeType}


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Change all levels at once."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    updates = [_update(one) for one in request.feature_updates]
    try:
        await context.broker.cluster.update_features(updates, validate_only=request.validate_only)
    except InvalidFeatureUpdate as error:
        return _failure(error_code_of(error), f"{_REFUSED}{error}")
    except CoordinatorError as error:
        return _failure(error_code_of(error), str(error) or None)
    has_rows = context.api_version <= LAST_VERSION_WITH_ROWS
    return UpdateFeaturesResponse(results=[_row(one.feature) for one in request.feature_updates] if has_rows else [])


def refuse(context: RequestContext, request: UpdateFeaturesRequest, code: ErrorCode) -> UpdateFeaturesResponse:
    """Refuse all features together."""
    return _failure(code)


def _update(asked: FeatureUpdateKey) -> FeatureUpdate:
    upgrade_type = _UPGRADE_TYPES.get(asked.upgrade_type, UpgradeType.UNKNOWN)
    return FeatureUpdate(asked.feature, asked.max_version_level, upgrade_type)


def _failure(code: ErrorCode, message: str | None = None) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=shortened(message))


def _row(feature: str) -> UpdatableFeatureResult:
    """Row of a feature. Kafka puts the name of the code into the text, too."""
    return UpdatableFeatureResult(feature=feature, error_code=ErrorCode.NONE, error_message=ErrorCode.NONE.name)


API = Api("update_features", UpdateFeaturesRequest, handle, refuse, 0, 2)
