"""Decisions about the levels of the cluster's features: pure, from the image to a plan.

A feature is a new behaviour of brokers and clients, in effect from the moment on when all brokers support it (KIP-584).
Its level says which behaviour is in effect; brokers report it to clients in ApiVersions. Order of checks and texts are
those of Kafka's FeatureControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.api import TRANSACTION_VERSION, FeatureRange, UpgradeType
from coordinator.errors import CannotStart, InvalidFeatureUpdate
from coordinator.metadata.nodes import encode_features
from coordinator.metadata.plans import Plan, write_single
from coordinator.metadata_store import paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import ClusterImage, FeatureUpdate

TRANSACTION_VERSION_MAX: Final = 2  # 1 flexible records, 2 an epoch for each transaction
SUPPORTED: Final[Mapping[str, FeatureRange]] = {TRANSACTION_VERSION: FeatureRange(0, TRANSACTION_VERSION_MAX)}
DEFAULT_LEVELS: Final[Mapping[str, int]] = {name: levels.highest for name, levels in SUPPORTED.items()}
_UNSUPPORTED: Final = FeatureRange(0, 0)


def epoch_of(version: int | None) -> int:
    """The epoch of features whose node has this version; None: there is none yet."""
    return 0 if version is None else 1 + version


def check_supported(path: str, levels: Mapping[str, int]) -> None:
    """Raise CannotStart for levels of a node that this version does not have."""
    for name, level in levels.items():
        if name not in SUPPORTED:
            raise CannotStart(f"the metadata node {path} has the feature {name}, which this version does not know")
        if level not in SUPPORTED[name]:
            known = SUPPORTED[name]
            raise CannotStart(f"the metadata node {path} has {name} at level {level}; this version knows {known} only")


def decide_levels(image: ClusterImage, updates: Sequence[FeatureUpdate]) -> dict[str, int]:
    """The levels after all of the updates. Raises InvalidFeatureUpdate for the first wrong one. If a feature is named
    twice, the last update counts."""
    asked = {update.feature: update for update in updates}
    for update in asked.values():
        reason = _reason_against(image, update)
        if reason is not None:
            raise InvalidFeatureUpdate(f"Invalid update version {update.level} for feature {update.feature}. {reason}")
    return {**image.features, **{name: update.level for name, update in asked.items()}}


def _reason_against(image: ClusterImage, update: FeatureUpdate) -> str | None:
    supported = SUPPORTED.get(update.feature, _UNSUPPORTED)
    if update.upgrade_type is UpgradeType.UNKNOWN:
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.level not in supported:
        only = f"only supports versions {supported}" if supported.highest else "does not support this feature."
        return f"Local controller {image.controller_id} {only}"
    return _reason_against_direction(image.feature_level(update.feature), update)


def _reason_against_direction(current: int, update: FeatureUpdate) -> str | None:
    is_upgrade = update.upgrade_type is UpgradeType.UPGRADE
    if update.level < current and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if update.level > current and not is_upgrade:
        return "Can't downgrade to a newer version."
    return None if update.feature in SUPPORTED else f"Feature {update.feature} not found."


def alteration(before: ClusterImage, levels: Mapping[str, int]) -> Plan:
    """The plan that writes the node, unless all is as it was."""
    if levels == before.features:
        return Plan(())
    value = encode_features(dict(sorted(levels.items())), before.extra_of(paths.FEATURES))
    return Plan([write_single(before, paths.FEATURES, value)])
