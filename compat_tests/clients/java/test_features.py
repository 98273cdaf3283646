"""kafka-features of Apache Kafka: the reported features of a cluster, and changes of their levels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from compat_tests.clients.confluent.clients import Admin, create_topic, wait_until
from compat_tests.clients.java.commands import TOOLS
from compat_tests.features.restart.restarts import restart
from compat_tests.features.transactions.producers import TransactionalProducer
from compat_tests.features.transactions.readers import epoch_of
from compat_tests.harness.target import TARGET, target_broker
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.harness.broker import Broker

FEATURE = re.compile(
    r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)"
    r"\s+Epoch: (\d+)"
)
NAME = "transaction.version"
TOO_LOW = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
REFUSED = "The update failed for all features since the following feature had an error: "


class Feature(NamedTuple):
    """A line of `describe`."""

    lowest: str
    highest: str
    level: str
    epoch: int


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone, which may be stopped and killed."""
    with target_broker(tmp_path) as running:
        yield running


def features(broker: Broker, *arguments: str, check: bool = True) -> str:
    return java_tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", broker.bootstrap, *arguments, check=check)


def described(broker: Broker) -> dict[str, Feature]:
    found = [FEATURE.fullmatch(line) for line in features(broker, "describe").splitlines()]
    assert all(found)
    return {one[1]: Feature(one[2], one[3], one[4], int(one[5])) for one in found if one}


def wait_for(broker: Broker, level: int) -> int:
    """Wait until the level is reported, which takes Apache Kafka a moment. Returns its epoch."""
    seen: list[Feature] = []

    def is_there() -> bool:
        seen.append(described(broker)[NAME])
        return seen[-1].level == str(level)

    wait_until(is_there, f"{NAME} is not at {level}", 60)
    assert seen[-1][:2] == ("0", "2")
    return seen[-1].epoch


def test_levels_go_down_and_up_and_outlive_restarts(own_broker: Broker) -> None:
    epochs = [wait_for(own_broker, 2)]
    assert (
        features(own_broker, "downgrade", "--dry-run", "--feature", f"{NAME}=1") == f"{NAME} can be downgraded to 1.\n"
    )
    assert features(own_broker, "downgrade", "--feature", f"{NAME}=1") == f"{NAME} was downgraded to 1.\n"
    epochs.append(wait_for(own_broker, 1))
    restart(own_broker, orderly=True)
    assert wait_for(own_broker, 1) >= epochs[-1]
    assert features(own_broker, "downgrade", "--unsafe", "--feature", f"{NAME}=0") == f"{NAME} was downgraded to 0.\n"
    epochs.append(wait_for(own_broker, 0))
    restart(own_broker, orderly=False)
    assert wait_for(own_broker, 0) >= epochs[-1]
    assert features(own_broker, "upgrade", "--feature", f"{NAME}=2") == f"{NAME} was upgraded to 2.\n"
    epochs.append(wait_for(own_broker, 2))
    assert epochs == sorted(set(epochs))


def test_clients_speak_the_protocol_that_is_finalized(own_broker: Broker) -> None:
    """Java's client learns of the finalized transaction protocol when it connects."""
    create_topic(own_broker, "t")
    wait_for(own_broker, 2)
    rises: dict[tuple[int, int], int] = {}
    for level in (2, 1, 2):
        if level != 2:
            features(own_broker, "downgrade", "--feature", f"{NAME}={level}")
        elif rises:
            features(own_broker, "upgrade", "--feature", f"{NAME}={level}")
        wait_for(own_broker, level)
        its = TransactionalProducer(own_broker, "java", f"at-{level}-{len(rises)}")
        its.ask("initialise")
        its.transact("t", "first")
        before = epoch_of(own_broker, f"at-{level}-{len(rises)}")
        its.transact("t", "second")
        rises[level, len(rises)] = epoch_of(own_broker, f"at-{level}-{len(rises)}") - before
        its.close()
    assert rises == {(2, 0): 1, (1, 1): 0, (2, 2): 1}


@pytest.mark.parametrize(
    ("command", "feature", "level", "told"),
    [
        ("upgrade", NAME, 3, "Local controller {id} only supports versions 0-2"),
        ("upgrade", "no.such", 1, "Local controller {id} does not support this feature."),
        ("downgrade", "no.such", 0, "Feature no.such not found."),
        (
            "upgrade",
            NAME,
            1,
            TOO_LOW,
        ),
    ],
)
def test_an_invalid_level_is_refused(broker: Broker, command: str, feature: str, level: int, told: str) -> None:
    said = features(broker, command, "--feature", f"{feature}={level}", check=False)
    told = told.format(id=Admin(broker).cluster().controller.id)
    reason = f"Invalid update version {level} for feature {feature}. {told}"
    assert said == (f"Could not {command} {feature} to {level}. {REFUSED}{reason}\n1 out of 1 operation(s) failed.\n")


@pytest.mark.skipif(TARGET == "kafka", reason="Apache Kafka has them")
def test_other_features_are_told_not_to_be_there(broker: Broker) -> None:
    said = features(broker, "upgrade", "--release-version", "4.3", check=False)
    assert "does not support this feature." in said
    assert described(broker)[NAME].level == "2"
