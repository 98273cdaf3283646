"""Events between an image and the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, ClusterImage, PartitionState, TopicInfo
from coordinator.controller import elections
from coordinator.controller.elections import NO_LOG, Electorate
from coordinator.metadata.transitions import Departure, Elected, Election, IsrChanged, LeaderLost, transitions
from coordinator.testing.images import with_members, with_partitions, with_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMBERS = {number: BrokerInfo(number, (), incarnation=bytes([number]) * 16) for number in (1, 2, 3)}
LED = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), incarnation=MEMBERS[1].incarnation)
TOPIC = TopicInfo("orders", bytes(range(16)), (LED, LED), {"min.insync.replicas": "2"})


def image_of(*states: PartitionState, members: Mapping[int, BrokerInfo] = MEMBERS, **configs: str) -> ClusterImage:
    image = with_members(ClusterImage(0, "cluster"), members, 1)
    more = {key.replace("_", "."): value for key, value in configs.items()}
    return with_topics(image, [replace(TOPIC, partitions=states, configs={**TOPIC.configs, **more})])


def in_state(broker_state: BrokerState, *broker_ids: int) -> dict[int, BrokerInfo]:
    return MEMBERS | {number: replace(MEMBERS[number], state=broker_state) for number in broker_ids}


def restarted(broker_id: int, broker_state: BrokerState = BrokerState.RECOVERING) -> dict[int, BrokerInfo]:
    life = replace(MEMBERS[broker_id], incarnation=b"n" * 16, epoch=1, state=broker_state)
    return MEMBERS | {broker_id: life}


def settled(state: PartitionState, members: Mapping[int, BrokerInfo]) -> PartitionState:
    """The state as the controller writes it."""
    return elections.settled(state, Electorate(members, 2))


def step(
    before: PartitionState,
    after: PartitionState,
    members: Mapping[int, BrokerInfo] = MEMBERS,
    *,
    is_synced: bool = True,
) -> tuple[list[Elected], list[LeaderLost], list[IsrChanged]]:
    """The events of one partition's change, among others that stay as they are."""
    old = image_of(LED, before, members=members)
    new = with_topics(old, [with_partitions(old.topics["orders"], {1: after})])
    found = transitions(old, new, lambda _: is_synced)
    every = [*found.elected, *found.lost, *found.isr]
    assert {(one.topic, one.partition) for one in every} <= {("orders", 1)}
    return found.elected, found.lost, found.isr


def test_an_image_without_changed_states_or_members_gives_no_events() -> None:
    image = image_of(LED, LED)
    same = with_topics(image, [replace(TOPIC, configs={"retention.ms": "1"})])
    read_again = with_members(with_topics(same, [replace(TOPIC, partitions=(replace(LED), replace(LED)))]), {
        number: replace(one) for number, one in MEMBERS.items()
    }, 1)  # fmt: skip
    for new in (image, same, read_again):
        found = transitions(image, new)
        assert (found.members, found.elected, found.lost, found.isr) == ([], [], [], [])


def test_topics_that_are_new_or_gone_tell_nothing() -> None:
    """Their partitions have leaders from the start, without an election."""
    image = image_of(LED, LED)
    other = TopicInfo("other", b"o" * 16, (LED,))
    for new in (with_topics(image, [other]), with_topics(image, [], [image.topics["orders"]])):
        found = transitions(image, new)
        assert (found.elected, found.lost, found.isr) == ([], [], [])
    grown = with_topics(image, [replace(image.topics["orders"], partitions=(LED, LED, LED))])
    assert transitions(image, grown).elected == []


@pytest.mark.parametrize(
    ("members", "reason", "departure"),
    [
        (in_state(BrokerState.FENCED, 1), Election.BROKER_FENCED, Departure.BROKER_FENCED),
        (in_state(BrokerState.LEAVING, 1), Election.CONTROLLED_SHUTDOWN, Departure.CONTROLLED_SHUTDOWN),
        (restarted(1), Election.BROKER_RESTARTED, Departure.BROKER_RESTARTED),
        ({2: MEMBERS[2], 3: MEMBERS[3]}, Election.BROKER_UNREGISTERED, Departure.BROKER_UNREGISTERED),
    ],
)
def test_a_leader_that_goes_says_why_another_is_elected(
    members: dict[int, BrokerInfo], reason: Election, departure: Departure
) -> None:
    [elected], [], [isr] = step(LED, settled(LED, members), members)
    assert (elected.before.leader, elected.state.leader, elected.reason) == (1, 2, reason)
    assert (isr.removed, isr.added, isr.reason, isr.is_too_small) == ((1,), (), departure, False)
    assert not elected.is_from_elr


def test_a_leader_that_is_registered_again_begins_an_epoch() -> None:
    """The broker is the only replica, or was elected again before another could be."""
    alone = replace(LED, replicas=(1,), isr=(1,))
    members = restarted(1, BrokerState.SERVING)
    [elected], [], [] = step(alone, settled(alone, members), members)
    assert (elected.state.leader, elected.reason) == (1, Election.BROKER_RESTARTED)


def test_a_leader_that_reports_missing_records_leaves_the_isr_and_another_leader_is_elected() -> None:
    suspected = elections.with_suspect(LED, 1, (3, 10), 2)
    [], [], [isr] = step(LED, suspected)
    assert (isr.removed, isr.reason) == ((1,), Departure.REPLICA_LACKS_RECORDS)
    [elected], [], [] = step(suspected, settled(suspected, MEMBERS))
    assert elected.reason is Election.LEADER_LACKS_RECORDS


def test_the_preferred_replica_leads_again() -> None:
    moved = replace(LED, leader=2, incarnation=MEMBERS[2].incarnation)
    [elected], [], [] = step(moved, elections.preferred(moved, Electorate(MEMBERS)))
    assert (elected.state.leader, elected.reason) == (1, Election.PREFERRED)


def test_a_reassignment_that_ends_moves_the_leader_and_shrinks_the_isr() -> None:
    after = replace(LED, leader=2, leader_epoch=5, isr=(2, 3), replicas=(2, 3), incarnation=MEMBERS[2].incarnation)
    [elected], [], [isr] = step(LED, after)
    assert (elected.reason, isr.reason, isr.removed) == (Election.REASSIGNMENT, Departure.REASSIGNMENT, (1,))


def test_a_new_epoch_of_the_same_leader_is_no_election() -> None:
    assert step(LED, replace(LED, leader_epoch=5, replicas=(1, 2, 3, 4))) == ([], [], [])


def test_a_lost_leader_and_its_return_are_events_with_their_reasons() -> None:
    alone = replace(LED, isr=(1,))
    members = in_state(BrokerState.FENCED, 1)
    lost = settled(alone, members)
    [], [event], [] = step(alone, lost, members)
    assert (event.before.leader, event.state.leader, event.reason) == (
        1,
        NO_LEADER,
        Election.BROKER_FENCED,
    )
    [elected], [], [] = step(lost, settled(lost, MEMBERS))
    assert (elected.state.leader, elected.reason) == (1, Election.REPLICA_RETURNED)


def test_an_election_event_says_that_the_leader_is_from_the_elr() -> None:
    few = replace(LED, isr=(1,), elr=(2,))
    members = in_state(BrokerState.FENCED, 1)
    [elected], [], _ = step(few, settled(few, members), members)
    assert (elected.state.leader, elected.is_from_elr) == (2, True)


def test_a_leaders_proposal_shrinks_and_expands_the_isr() -> None:
    two, one = replace(LED, isr=(1, 3)), replace(LED, isr=(1,))
    [], [], [shrunk] = step(LED, two)
    assert (shrunk.removed, shrunk.reason, shrunk.is_too_small) == ((2,), Departure.FOLLOWER_OUT_OF_SYNC, False)
    [], [], [shrunk] = step(two, one)
    assert (shrunk.removed, shrunk.is_too_small) == ((3,), True)
    [], [], [expanded] = step(one, LED)
    assert (expanded.added, expanded.removed, expanded.reason) == ((2, 3), (), None)


@pytest.mark.parametrize("is_synced", [False, True])
def test_ordered_and_automatic_elections_that_may_lose_records_say_so(*, is_synced: bool) -> None:
    """The automatic one is of a topic that is not synced, once all replicas are back and say where their logs end."""
    suspect_replicas = ((1, 3, 10), (2, 3, 20), (3, 3, 5))
    waiting = replace(LED, leader=NO_LEADER, suspect_replicas=suspect_replicas, incarnation=bytes(16))
    after = elections.unclean(waiting, Electorate(MEMBERS, 2))
    [elected], [], [isr] = step(waiting, after, is_synced=is_synced)
    expected = Election.UNCLEAN if is_synced else Election.RECONCILED
    assert (elected.state.leader, elected.reason, elected.reason.may_lose) == (2, expected, True)
    assert (isr.removed, isr.reason) == ((1, 3), Departure.UNCLEAN_ELECTION)
    assert not elected.is_from_elr


def test_an_order_is_not_taken_for_the_automatic_election() -> None:
    """A replica that has lost its whole log makes the controller wait."""
    waiting = replace(
        LED, leader=NO_LEADER, suspect_replicas=((1, *NO_LOG), (2, 3, 20), (3, 3, 5)), incarnation=bytes(16)
    )
    after = elections.unclean(waiting, Electorate(MEMBERS, 2))
    [elected], [], _ = step(waiting, after, is_synced=False)
    assert elected.reason is Election.UNCLEAN


def test_an_unclean_election_that_a_config_allows_is_no_automatic_one() -> None:
    waiting = replace(LED, leader=NO_LEADER, suspect_replicas=((1, 3, 1), (2, 3, 2), (3, 3, 3)), incarnation=bytes(16))
    old = image_of(waiting, unclean_leader_election_enable="true")
    after = elections.unclean(waiting, Electorate(MEMBERS, 2))
    new = with_topics(old, [with_partitions(old.topics["orders"], {0: after})])
    [elected] = transitions(old, new, lambda _: False).elected
    assert elected.reason is Election.UNCLEAN


def test_an_unclean_election_of_the_same_broker_is_one() -> None:
    """The broker may have led in images between the two that were read."""
    after = replace(LED, leader_epoch=7, unclean_since=7)
    [elected], [], [] = step(LED, after)
    assert elected.reason is Election.UNCLEAN


def test_members_that_change() -> None:
    old, fenced = image_of(LED), in_state(BrokerState.FENCED, 2)
    [one] = transitions(old, with_members(old, fenced, 1)).members
    assert (one.broker, one.before) == (fenced[2], MEMBERS[2])
    [one] = transitions(old, with_members(old, restarted(3), 1)).members
    assert (one.broker.state, one.broker.epoch) == (BrokerState.RECOVERING, 1)
    [one] = transitions(old, with_members(old, MEMBERS | {4: BrokerInfo(4, ())}, 1)).members
    assert (one.broker.broker_id, one.before) == (4, None)


def test_a_broker_that_is_unregistered_and_comes_back() -> None:
    old = image_of(LED)
    gone = replace(MEMBERS[3], state=BrokerState.UNREGISTERED)
    without = replace(with_members(old, {1: MEMBERS[1], 2: MEMBERS[2]}, 1), former={3: gone})
    [one] = transitions(old, without).members
    assert (one.broker, one.before) == (gone, MEMBERS[3])
    assert transitions(without, replace(without, former={3: replace(gone)})).members == []
    back = replace(with_members(without, restarted(3), 1), former={})
    [one] = transitions(without, back).members
    assert (one.broker.state, one.before) == (BrokerState.RECOVERING, gone)
