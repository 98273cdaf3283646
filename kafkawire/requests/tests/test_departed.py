"""A broker that was up a moment ago is still listed for a while."""

from __future__ import annotations

from typing import cast

import trio
from trio.testing import wait_all_tasks_blocked

from coordinator.api import BrokerInfo, ClusterImage, ClusterService
from kafkawire.peers.tests.peers import FakeCluster
from kafkawire.requests.departed import LISTED_S, Departed

ONE, TWO = BrokerInfo(1, ()), BrokerInfo(2, ())
MEMBERS = {1: ONE, 2: TWO}
BOTH = ClusterImage(1, "c", members=MEMBERS, brokers=MEMBERS)
ALONE = ClusterImage(2, "c", members=MEMBERS, brokers={1: ONE})


def test_gone_broker_is_listed_for_a_while_behind_the_brokers_that_are_up() -> None:
    departed = Departed()
    departed.note(BOTH, 0.0)
    departed.note(ALONE, 10.0)
    assert departed.listed(ALONE, 10.0) == [ONE, TWO]
    assert departed.listed(ALONE, 9.99 + LISTED_S) == [ONE, TWO]
    assert departed.listed(ALONE, 10.0 + LISTED_S) == [ONE]


def test_broker_that_was_never_seen_up_is_not_listed() -> None:
    departed = Departed()
    departed.note(ALONE, 0.0)
    assert departed.listed(ALONE, 0.0) == [ONE]


def test_returned_broker_is_listed_once_with_its_new_registration() -> None:
    departed, back = Departed(), BrokerInfo(2, (), incarnation=b"2" * 16)
    for image in (BOTH, ALONE):
        departed.note(image, 0.0)
    again = ClusterImage(3, "c", members={1: ONE, 2: back}, brokers={1: ONE, 2: back})
    departed.note(again, 1.0)
    assert departed.listed(again, 1.0) == [ONE, back]


def test_unregistered_broker_is_not_listed() -> None:
    departed = Departed()
    departed.note(BOTH, 0.0)
    unregistered = ClusterImage(2, "c", members={1: ONE}, brokers={1: ONE})
    departed.note(unregistered, 0.0)
    assert departed.listed(unregistered, 0.0) == [ONE]


async def test_every_image_is_seen() -> None:
    departed, cluster = Departed(), FakeCluster(BOTH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(departed.run, cast(ClusterService, cluster))
        await wait_all_tasks_blocked()
        cluster.change(brokers={1: ONE})
        await wait_all_tasks_blocked()
        assert departed.listed(cluster.image, 0.0) == [ONE, TWO]
        nursery.cancel_scope.cancel()
