"""Levels of the cluster's features: refusals, with Kafka's texts, and the effects of other updates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from coordinator.api import TRANSACTION_VERSION, ClusterImage, FeatureRange, FeatureUpdate, UpgradeType
from coordinator.errors import CannotStart, InvalidFeatureUpdate, MetadataUnavailable
from coordinator.metadata.changes import change_of
from coordinator.metadata.image import folded
from coordinator.metadata.nodes import decode_features, encode_features
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, Put
from coordinator.requests import features
from coordinator.testing.fakes import FakeEnsemble, FakeStore, Loss
from coordinator.testing.images import with_features
from coordinator.tests.test_cluster_manager import Machine, member, running, write_change

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN, UP, SAFE, UNSAFE = UpgradeType


@pytest.fixture(params=["embedded", "fake"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path if request.param == "embedded" else None)


def to(level: int, upgrade_type: UpgradeType = UP, feature: str = TRANSACTION_VERSION) -> FeatureUpdate:
    return FeatureUpdate(feature, level, upgrade_type)


def image_at(level: int, epoch: int = 1) -> ClusterImage:
    return with_features(ClusterImage(0, "cluster", controller_id=7), {TRANSACTION_VERSION: level}, epoch)


# Decisions


def test_the_newest_level_is_the_default() -> None:
    assert dict(features.SUPPORTED) == {TRANSACTION_VERSION: FeatureRange(0, 2)}
    assert dict(features.DEFAULT_LEVELS) == {TRANSACTION_VERSION: 2}


@pytest.mark.parametrize(
    ("before", "update", "level"),
    [
        (1, to(2), 2),
        (1, to(1), 1),
        (1, to(1, SAFE), 1),
        (1, to(1, UNSAFE), 1),
        (2, to(1, SAFE), 1),
        (2, to(1, UNSAFE), 1),
        (2, to(0, SAFE), 0),
        (0, to(2), 2),
    ],
)
def test_levels_go_the_way_they_are_sent(before: int, update: FeatureUpdate, level: int) -> None:
    assert features.decide_levels(image_at(before), [update]) == {TRANSACTION_VERSION: level}


NO_WAY = "The controller does not support the given upgrade type."
NEGATIVE = "A feature version cannot be less than 0."
RANGE = "Local controller 7 only supports versions 0-2"
NOT_HERE = "Local controller 7 does not support this feature."
TOO_LOW = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
TOO_HIGH = "Can't downgrade to a newer version."


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (to(2, UNKNOWN), NO_WAY),
        (to(-1, UNKNOWN), NO_WAY),
        (to(-1), NEGATIVE),
        (to(-1, SAFE, "no.such"), NEGATIVE),
        (to(3), RANGE),
        (to(3, SAFE), RANGE),
        (to(1, UP, "no.such"), NOT_HERE),
        (to(0, UP, "no.such"), "Feature no.such not found."),
        (to(0, SAFE, "no.such"), "Feature no.such not found."),
        (to(0), TOO_LOW),
        (to(2, SAFE), TOO_HIGH),
        (to(2, UNSAFE), TOO_HIGH),
    ],
)
def test_invalid_updates_are_refused(update: FeatureUpdate, reason: str) -> None:
    with pytest.raises(InvalidFeatureUpdate) as raised:
        features.decide_levels(image_at(1), [update])
    assert str(raised.value) == f"Invalid update version {update.level} for feature {update.feature}. {reason}"


def test_all_or_none() -> None:
    with pytest.raises(InvalidFeatureUpdate, match="feature other"):
        features.decide_levels(image_at(1), [to(2), to(1, UP, "other")])
    assert features.decide_levels(image_at(1), []) == {TRANSACTION_VERSION: 1}


def test_the_last_of_two_updates_of_the_same_feature_counts() -> None:
    assert features.decide_levels(image_at(2), [to(3), to(1, SAFE)]) == {TRANSACTION_VERSION: 1}
    with pytest.raises(InvalidFeatureUpdate, match="version 3"):
        features.decide_levels(image_at(2), [to(1, SAFE), to(3)])


def test_the_node_is_created_and_then_replaced() -> None:
    levels = {TRANSACTION_VERSION: 1}
    image = image_at(2, 0)
    for epoch, version in ((1, None), (2, 0), (3, 1)):
        [write] = features.alteration(replace(image, features={TRANSACTION_VERSION: 2}), levels).operations
        assert isinstance(write, Create | Put)
        assert (write.version if isinstance(write, Put) else None) == version
        assert decode_features(write.path, write.value) == levels
        image = folded(image, image.version + 1, change_of([write], 1, bytes(16)).nodes)
        assert (image.features, image.features_epoch) == (levels, epoch)


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    assert features.alteration(image_at(2, 0), {TRANSACTION_VERSION: 2}).operations == ()


def test_a_feature_without_a_level_is_at_0() -> None:
    assert image_at(2).feature_level(TRANSACTION_VERSION) == 2
    assert image_at(2).feature_level("no.such") == 0
    image = with_features(image_at(2), {}, 4)
    assert features.decide_levels(image, [to(1)]) == {TRANSACTION_VERSION: 1}


# Over whole brokers


async def test_levels_are_in_the_image_and_durable_and_their_epoch_never_goes_back(machine: Machine) -> None:
    async with running(machine) as coordinator:
        assert coordinator.supported_features == features.SUPPORTED
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 0)
        await coordinator.update_features([to(1, SAFE)])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 1)
        await coordinator.update_features([to(1)])
        assert coordinator.image.features_epoch == 1
    async with running(machine) as coordinator:
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 1)
        await coordinator.update_features([to(0, SAFE)])
        await coordinator.update_features([to(2)])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 3)
    async with running(machine) as coordinator:
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 3)


async def test_validate_only_changes_nothing(machine: Machine) -> None:
    async with running(machine) as coordinator:
        before = coordinator.image
        await coordinator.update_features([to(1, SAFE)], validate_only=True)
        with pytest.raises(InvalidFeatureUpdate):
            await coordinator.update_features([to(1)], validate_only=True)
        assert coordinator.image is before


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ({"no.such": 0}, "the metadata node /features has the feature no.such, which this version does not know"),
        ({TRANSACTION_VERSION: 3}, "has transaction.version at level 3; this version knows 0-2 only"),
        ({TRANSACTION_VERSION: -1}, "has transaction.version at level -1; this version knows 0-2 only"),
    ],
)
async def test_levels_that_this_version_does_not_have_refuse_to_start(
    machine: Machine, levels: dict[str, int], text: str
) -> None:
    store = await machine.open_store()
    await store.multi([Create(paths.FEATURES, encode_features(levels))])
    await store.close()
    with pytest.raises(CannotStart, match=text):
        async with running(machine):
            pass


async def test_a_feature_that_the_node_does_not_name_has_level_0(machine: Machine) -> None:
    store = await machine.open_store()
    await store.multi([Create(paths.FEATURES, encode_features({}))])
    await store.close()
    async with running(machine) as coordinator:
        assert coordinator.image.feature_level(TRANSACTION_VERSION) == 0
        await coordinator.update_features([to(1)])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 2)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
async def test_a_lost_message_changes_nothing_of_the_outcome(loss: Loss) -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        for update in (to(0, SAFE), to(1), to(2)):
            client.script.append(loss)
            await coordinator.update_features([update])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 3)
    async with running(machine) as coordinator:
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 3)


async def test_an_update_with_an_unknown_outcome_takes_effect_once() -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        client.script.append(Loss.REPLY_AND_LINE)
        with pytest.raises(MetadataUnavailable):
            await coordinator.update_features([to(1, SAFE)])
        assert coordinator.image.features_epoch == 0
        client.disconnected = False
        await coordinator.update_features([to(1, SAFE)])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 1)


async def test_an_update_is_refused_and_the_image_stays_while_the_store_is_disconnected() -> None:
    async with running(machine := Machine()) as coordinator:
        client = machine.stores[-1]
        assert isinstance(client, FakeStore)
        before = coordinator.image
        client.disconnected = True
        with pytest.raises(MetadataUnavailable):
            await coordinator.update_features([to(1, SAFE)])
        assert coordinator.image is before


async def test_an_image_that_is_behind_the_store_is_loaded_before_anything_is_decided_on_it() -> None:
    """Another broker has made a change that this one has not taken yet: first a create, then a put."""
    async with running(machine := Machine()) as coordinator:
        other, client = machine.ensemble.connect(), machine.stores[-1]
        assert isinstance(client, FakeStore)
        client.lagging = True
        write: Create | Put = Create(paths.FEATURES, encode_features({TRANSACTION_VERSION: 0}))
        await write_change(other, coordinator.image.version + 1, write)
        await coordinator.update_features([to(1)])
        assert coordinator.image.features_epoch == 2
        client.lagging = True
        write = Put(paths.FEATURES, encode_features({TRANSACTION_VERSION: 2}), 1)
        await write_change(other, coordinator.image.version + 1, write)
        await coordinator.update_features([to(1, SAFE)])
        assert (coordinator.image.features, coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 4)


async def test_any_broker_changes_them_and_the_others_follow() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await one.coordinator.update_features([to(1, SAFE)])
        await trio.testing.wait_all_tasks_blocked()
        assert (two.coordinator.image.features, two.coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 1}, 1)
        await two.coordinator.update_features([to(2)])
        await trio.testing.wait_all_tasks_blocked()
        assert (one.coordinator.image.features, one.coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 2}, 2)
        nursery.cancel_scope.cancel()


async def test_a_broker_that_follows_late_ends_with_the_same_features() -> None:
    async with trio.open_nursery() as nursery:
        ensemble = FakeEnsemble()
        one, two = [await member(nursery, ensemble, broker_id) for broker_id in (1, 2)]
        await trio.testing.wait_all_tasks_blocked()
        two.store.lagging = True
        for update in (to(1, SAFE), to(2), to(0, SAFE)):
            await one.coordinator.update_features([update])
        two.store.lagging = False
        ensemble.catch_up_all()
        await trio.testing.wait_all_tasks_blocked()
        assert (two.coordinator.image.features, two.coordinator.image.features_epoch) == ({TRANSACTION_VERSION: 0}, 3)
        nursery.cancel_scope.cancel()
