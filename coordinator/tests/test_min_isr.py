"""A replica that may lead because too few were in sync may not when fewer are enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.api import CLUSTER_DEFAULT, ConfigChange, ConfigOperation
from coordinator.metadata.nodes import decode_partition
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Put
from coordinator.requests.decisions import Decisions
from coordinator.requests.topics import TopicDefaults
from coordinator.testing.fakes import FakeValidator
from coordinator.testing.images import with_broker_configs
from coordinator.tests.test_reconcile import ID, image_of, state

KEY = "min.insync.replicas"
SMALL = replace(state(1, 2, 3, isr=(1,)), elr=(2, 3))
DECIDE = Decisions(FakeValidator(), TopicDefaults())


def of_topic(value: str | None, image_min: str = "2") -> list[str]:
    """The written paths, in their order."""
    image = image_of(SMALL, state(1, 2, 3), min_insync_replicas=image_min)
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    plan = DECIDE.topic_configs(image, "a", [ConfigChange(operation, KEY, value or "")], replaces=False)
    return [one.path for one in plan.operations]


@pytest.mark.parametrize("value", ["1", None])
def test_elrs_are_cleared_before_a_topic_asks_for_fewer(value: str | None) -> None:
    assert of_topic(value) == [paths.partition(ID, 0), paths.topic("a")]


@pytest.mark.parametrize(("value", "before"), [("3", "2"), ("2", "2"), ("4", "5")])
def test_elrs_stay_where_as_many_are_asked_for(value: str, before: str) -> None:
    """A value above the number of replicas requires all of them."""
    assert paths.partition(ID, 0) not in of_topic(value, before)


def test_replicas_on_their_way_are_asked_for_by_neither() -> None:
    """Two of three replicas are required with either value, as one of the three is added."""
    image = image_of(replace(SMALL, adding=(3,), elr=(2,)), min_insync_replicas="3")
    change = ConfigChange(ConfigOperation.SET, KEY, "2")
    plan = DECIDE.topic_configs(image, "a", [change], replaces=False)
    assert [one.path for one in plan.operations] == [paths.topic("a")]


def test_elrs_are_cleared_before_all_topics_ask_for_fewer_that_say_nothing_themselves() -> None:
    for own, cleared in (({}, [0]), ({"min_insync_replicas": "2"}, [])):
        image = with_broker_configs(image_of(SMALL, state(1, 2, 3), **own), {CLUSTER_DEFAULT: {KEY: "2"}})
        change = ConfigChange(ConfigOperation.SET, KEY, "1")
        *first, last = DECIDE.broker_configs(image, CLUSTER_DEFAULT, [change], replaces=False).operations
        assert last.path == paths.BROKER_CONFIGS
        assert [paths.partition_of(one.path)[1] for one in first] == cleared
        for put in first:
            assert isinstance(put, Put)
            assert decode_partition(put.path, 8, put.value).elr == ()
