"""Features of the cluster on the wire: reports in ApiVersions, and changes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.api import TRANSACTION_VERSION, FeatureRange
from coordinator.errors import MetadataUnavailable
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kafkawire.requests.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.requests.errors import MESSAGE_MAX_CHARACTERS
from kafkawire.tests.harness import Broker, Rewritten, open_handlers

UP, SAFE, UNSAFE = 1, 2, 3
REFUSED = "The update failed for all features since the following feature had an error: "


def to(level: int, upgrade_type: int = UP, feature: str = TRANSACTION_VERSION, **fields: Any) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type, **fields)


async def update(broker: Broker, *updates: FeatureUpdateKey, version: int = 2, **fields: Any) -> tuple[int, str | None]:
    """The error code and text of the whole response; there are no rows with one, nor in version 2."""
    reply = await broker.ask(UpdateFeaturesRequest(feature_updates=list(updates), **fields), version)
    expected = [(one.feature, 0, "NONE") for one in updates] if version < 2 and not reply.error_code else []
    assert [(row.feature, row.error_code, row.error_message) for row in reply.results] == expected
    return reply.error_code, reply.error_message


async def reported(broker: Broker, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """Supported levels, finalized levels, and the epoch of the latter."""
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    reply = await broker.ask(request, version)
    assert all(row.min_version_level == row.max_version_level for row in reply.finalized_features)
    return (
        {row.name: (row.min_version, row.max_version) for row in reply.supported_features},
        {row.name: row.max_version_level for row in reply.finalized_features},
        reply.finalized_features_epoch,
    )


# ApiVersions


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, ({}, {}, -1)),
        (2, ({}, {}, -1)),
        (3, ({}, {TRANSACTION_VERSION: 2}, 0)),
        (4, ({TRANSACTION_VERSION: (0, 2)}, {TRANSACTION_VERSION: 2}, 0)),
    ],
)
async def test_api_versions_returns_the_features_that_its_version_can_carry(version: int, expected: object) -> None:
    async with open_handlers() as broker:
        assert await reported(broker, version) == expected


async def test_a_range_that_does_not_begin_with_0_is_for_older_clients_too() -> None:
    async with open_handlers() as broker:

        class Other:
            image = broker.cluster.image
            supported_features = {"f": FeatureRange(1, 1), "g": FeatureRange(0, 1)}  # noqa: RUF012

        other = broker.reconfigured(cluster=Other())
        assert (await reported(other, 3))[0] == {"f": (1, 1)}
        assert (await reported(other, 4))[0] == {"f": (1, 1), "g": (0, 1)}


async def test_a_level_of_0_is_not_reported() -> None:
    async with open_handlers() as broker:
        assert await update(broker, to(0, SAFE)) == (0, None)
        assert await reported(broker) == ({TRANSACTION_VERSION: (0, 2)}, {}, 1)


# UpdateFeatures


@pytest.mark.parametrize("version", [1, 2])
async def test_levels_go_down_and_up(version: int) -> None:
    async with open_handlers() as broker:
        for number, (level, upgrade_type) in enumerate([(1, SAFE), (0, UNSAFE), (2, UP), (2, SAFE)]):
            assert await update(broker, to(level, upgrade_type), version=version) == (0, None)
            assert broker.cluster.image.features == {TRANSACTION_VERSION: level}
            assert broker.cluster.image.features_epoch == min(number + 1, 3)
        assert (await reported(broker))[1:] == ({TRANSACTION_VERSION: 2}, 3)


async def test_version_0_never_goes_down() -> None:
    """Version 0 cannot downgrade: Kafka ignores its `allow_downgrade`."""
    async with open_handlers() as broker:
        text = (
            "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade."
        )
        assert await update(broker, to(1, allow_downgrade=True), version=0) == (95, REFUSED + text)
        assert await update(broker, to(2, allow_downgrade=True), version=0) == (0, None)
        assert await update(broker, to(1, SAFE)) == (0, None)
        assert await update(broker, to(2), version=0) == (0, None)
        assert broker.cluster.image.features == {TRANSACTION_VERSION: 2}


INVALID = "Invalid update version {} for feature {}. "


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (to(3), INVALID.format(3, TRANSACTION_VERSION) + "Local controller 1 only supports versions 0-2"),
        (to(-1), INVALID.format(-1, TRANSACTION_VERSION) + "A feature version cannot be less than 0."),
        (to(1, feature="f"), INVALID.format(1, "f") + "Local controller 1 does not support this feature."),
        (to(0, feature=""), INVALID.format(0, "") + "Feature  not found."),
        *(
            (
                to(1, upgrade_type),
                INVALID.format(1, TRANSACTION_VERSION) + "The controller does not support the given upgrade type.",
            )
            for upgrade_type in (0, 4, -1)
        ),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
async def test_an_invalid_feature_update_is_refused(version: int, asked: FeatureUpdateKey, text: str) -> None:
    async with open_handlers() as broker:
        for validate_only in (True, False):
            assert await update(broker, asked, version=version, validate_only=validate_only) == (95, REFUSED + text)
        assert broker.cluster.image.features_epoch == 0


async def test_all_or_none() -> None:
    async with open_handlers() as broker:
        code, text = await update(broker, to(1, SAFE), to(1, feature="f"))
        assert (code, "for feature f." in str(text)) == (95, True)
        assert broker.cluster.image.features == {TRANSACTION_VERSION: 2}


@pytest.mark.parametrize("version", range(3))
async def test_nothing_is_asked_for(version: int) -> None:
    async with open_handlers() as broker:
        assert await update(broker, version=version) == (0, None)
        assert broker.cluster.image.features_epoch == 0


async def test_the_last_update_of_a_feature_named_twice_counts() -> None:
    async with open_handlers() as broker:
        assert await update(broker, to(9), to(1, SAFE), version=1) == (0, None)
        assert broker.cluster.image.features == {TRANSACTION_VERSION: 1}
        assert (await update(broker, to(2), to(9), version=1))[0] == 95


async def test_validating_changes_nothing() -> None:
    async with open_handlers() as broker:
        assert await update(broker, to(1, SAFE), validate_only=True) == (0, None)
        assert await update(broker, to(1, SAFE), validate_only=True, version=1) == (0, None)
        assert (await update(broker, to(1), validate_only=True))[0] == 95
        assert broker.cluster.image.features == {TRANSACTION_VERSION: 2}


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_the_time_out_means_nothing(timeout_ms: int) -> None:
    async with open_handlers() as broker:
        assert await update(broker, to(1, SAFE), timeout_ms=timeout_ms) == (0, None)


async def test_a_long_name_is_told_as_far_as_there_is_room() -> None:
    async with open_handlers() as broker:
        code, text = await update(broker, to(1, feature="f" * 30_000))
        assert (code, len(str(text))) == (95, MESSAGE_MAX_CHARACTERS)


@pytest.mark.parametrize("version", range(3))
async def test_a_feature_update_without_the_metadata_store_is_refused_with_a_timeout(version: int) -> None:
    class Failing(Rewritten):
        async def update_features(self, *_: object, **__: object) -> None:
            raise MetadataUnavailable("away")

    async with open_handlers() as broker:
        failing = broker.reconfigured(cluster=Failing(broker.cluster.real))
        assert await update(failing, to(1, SAFE), version=version) == (7, "away")


@pytest.mark.parametrize("version", range(3))
async def test_a_feature_update_requires_the_right_to_alter_the_cluster(version: int) -> None:
    async with open_handlers() as broker:
        denied = broker.without((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        assert await update(denied, to(1, SAFE), version=version) == (31, None)
        assert broker.cluster.image.features_epoch == 0
