"""Earlier errors of replication, as stories of the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.controller import elections
from coordinator.controller.elections import NO_LOG, Electorate
from kafkawire.tests.replication.model import walk
from kafkawire.tests.replication.scenes import QUIET
from kafkawire.tests.replication.world import Follows, Leads, World, incarnation

BUSY = QUIET._replace(elections=3, appends=3, crashes=3, lives=2, unknowns=1)
A, B = (0, 0), (0, 1)  # records of the first epoch


def logs(world: World) -> list[tuple[tuple[int, int], ...]]:
    return [broker.log for broker in world.brokers]


def test_expand_unknown() -> None:
    """Broker 3 is added, the outcome stays unknown, and a deposed server returns the earlier ISR; broker 3 stalls."""
    limits = BUSY._replace(brokers=3, isr=(1, 2))
    prefix = ["3 fetches", "1 proposes, to unknown outcome", "1 is answered by a deposed server"]
    world = walk(limits, [*prefix, "1 writes", "1 syncs", "2 fetches", "2 fetches"])
    assert world.acked == ()
    prefix += ["1's write is done", "1 is fenced", "2 is fenced", "3 learns"]
    world = walk(limits, prefix)
    assert isinstance(world.broker(3).role, Leads)


def test_empty_epoch() -> None:
    """Broker 1 leads an epoch in which it writes nothing; broker 2, which leads before and after, never hears of it."""
    prefix = ["2 writes", "2 syncs", "1 fetches", "the preferred leads", "1 learns", "1 is fenced", "2 learns"]
    world = walk(BUSY._replace(leader=2), prefix)
    assert (1, 1) in world.broker(1).starts
    world = walk(BUSY._replace(leader=2), [*prefix, "1 learns", "1 fetches", "2 writes", "2 syncs", "1 fetches"])
    assert logs(world) == [((0, 0), (2, 1))] * 2
    assert world.broker(1).starts == world.broker(2).starts
    assert world.wrong is None


def test_zombie() -> None:
    """Broker 1 stands still beyond its session: its writes from then on are never acknowledged, and are truncated."""
    prefix = ["1 writes", "1 syncs", "2 fetches", "2 fetches", "1 is fenced", "2 learns"]
    prefix += ["1 writes", "1 syncs", "2 writes", "2 syncs"]
    world = walk(BUSY, prefix)
    assert world.acked == (A, (1, 2))
    assert world.broker(1).high_watermark == 1
    prefix += ["1 learns", "1 registers", "2 learns", "1 fetches"]
    assert logs(walk(BUSY, prefix))[0] == (A,)
    assert logs(walk(BUSY, [*prefix, "1 fetches"])) == [(A, (1, 1))] * 2


def test_kip_101_follower_that_does_not_know_the_acknowledgement_keeps_the_record_and_leads() -> None:
    prefix = ["1 writes", "1 syncs", "2 fetches", "the response to 2 is lost"]
    world = walk(BUSY, prefix)
    assert (world.acked, world.broker(2).high_watermark) == ((A,), 0)
    world = walk(BUSY, [*prefix, "1 is fenced", "2 learns"])
    assert (world.broker(2).log, world.broker(2).high_watermark) == ((A,), 1)


def test_kip_101_logs_that_were_written_apart_after_everything_crashed_become_one() -> None:
    """The topic is not synced, and only broker 1 was in sync. An unclean election of broker 2 gives up the records that
    only broker 1 had."""
    limits = BUSY._replace(synced=False, isr=(1,), is_unclean=True)
    prefix = ["1 writes", "2 fetches", "1 writes", "1 is fenced", "an unclean election", "2 learns", "2 writes"]
    prefix += ["1 learns", "1 registers", "2 learns", "1 fetches", "1 fetches"]
    world = walk(limits, prefix)
    assert logs(world) == [(A, (2, 1))] * 2
    assert world.wrong is None


def test_kip_279_leaders_of_epochs_that_the_other_never_had_come_to_their_last_common_record() -> None:
    """Two leaders fail over so fast that each has an epoch that the other lacks (KIP-279). The leader knows only an
    earlier epoch than the follower's last one, and the follower only an earlier one than that."""
    limits = BUSY._replace(synced=False, isr=(1,), is_unclean=True, elections=6)
    prefix = ["1 writes", "2 fetches", "1 is fenced", "an unclean election", "2 learns", "2 writes"]
    prefix += ["1 learns", "1 registers", "2 is fenced", "an unclean election", "1 learns", "1 writes"]
    prefix += ["2 learns", "2 registers", "1 is fenced", "an unclean election", "1 learns", "1 registers", "2 learns"]
    assert logs(walk(limits, prefix)) == [(A, (4, 2)), (A, (2, 1))]
    assert logs(walk(limits, [*prefix, "1 fetches"])) == [(A,), (A, (2, 1))]
    world = walk(limits, [*prefix, "1 fetches", "1 fetches"])
    assert logs(world) == [(A, (2, 1))] * 2
    assert world.wrong is None


def test_kip_320_follower_in_another_epoch_learns_nothing_and_does_not_count() -> None:
    """FENCED_LEADER_EPOCH for a follower with an older epoch than the leader, UNKNOWN_LEADER_EPOCH for one with a newer
    epoch (KIP-320)."""
    world = walk(BUSY, ["1 writes", "1 syncs", "2 fetches", "1 is fenced", "2 learns", "1 learns"])
    assert isinstance(world.broker(1).role, Follows)
    behind = walk(BUSY, ["1 writes", "1 syncs", "1 is fenced", "1 learns"])
    assert walk(BUSY, ["1 writes", "1 syncs", "1 is fenced", "1 learns", "2 fetches"]).brokers == behind.brokers


def test_kip_497_an_isr_in_place_of_a_version_that_is_no_more_is_refused_and_counts_until_that_is_known() -> None:
    """Broker 3 is to join, and before that is written broker 2 leaves (KIP-497). The late change is refused because of
    its version. Until the leader knows, it waits for all brokers of the maximal ISR, including broker 3."""
    prefix = ["3 fetches", "1 proposes, to unknown outcome", "1 writes", "1 syncs", "2 fetches", "2 fetches"]
    assert [write.in_sync for write in walk(BUSY._replace(brokers=3, isr=(1, 2)), prefix).writes] == [(1, 2, 3)]
    prefix += ["2 is fenced"]
    world = walk(BUSY._replace(brokers=3, isr=(1, 2)), prefix)
    assert (world.newest.image.partition.isr, world.writes, world.acked) == ((1,), (), ())
    assert walk(BUSY._replace(brokers=3, isr=(1, 2)), [*prefix, "1 learns", "3 fetches", "3 fetches"]).acked == (A,)


def test_kip_903_replica_that_lost_its_tail_does_not_rejoin_by_an_old_fetch() -> None:
    """A Fetch of the process before arrives, or leads to a proposal, when broker 2 is back without its log
    (KIP-903)."""
    limits = BUSY._replace(synced=False, late=1, unknowns=0)
    prefix = ["1 writes", "2 fetches", "2's fetch is late", "2 crashes and loses what came last", "2 registers"]
    for news in (
        [],
        ["the late fetch of 2 comes", "1 learns"],
        ["1 learns", "the late fetch of 2 comes", "1 proposes"],
    ):
        world = walk(limits, [*prefix, *news])
        assert (world.broker(2).log, world.newest.image.partition.isr) == ((), (1,))


def test_kip_966_last_isr_member_that_returns_with_less_is_not_elected() -> None:
    limits = BUSY._replace(synced=False, min_isr=2)
    prefix = ["1 writes", "2 fetches", "2 fetches", "2 is fenced", "1 learns", "1 writes"]
    world = walk(limits, prefix)
    assert (world.acked, world.newest.image.partition.elr) == ((A,), (2,))
    world = walk(limits, [*prefix, "1 crashes and loses what came last", "1 registers", "2 learns", "2 registers"])
    assert (world.newest.image.partition.leader, world.broker(2).log) == (2, (A,))


WIPED = PartitionState(1, 0, (1, 2, 3), (1, 2, 3), incarnation=incarnation(1, 0))


def brokers(*states: BrokerState) -> Electorate:
    infos = {
        one: BrokerInfo(one, (), incarnation=incarnation(one, 1), epoch=1, state=state)
        for one, state in enumerate(states, 1)
    }
    return Electorate(infos, 1)


@pytest.mark.parametrize("second", [2, 3])
def test_wiped_dir(second: int) -> None:
    """All brokers stop, the directory of broker 1 is emptied, and it starts first: no replica leads until another one
    is back."""
    gone, there = BrokerState.FENCED, BrokerState.SERVING
    state = elections.settled(WIPED, brokers(gone, gone, gone))
    state = elections.with_suspect(replace(state), 1, NO_LOG, 1)
    assert 1 not in state.isr
    state = elections.settled(state, brokers(there, gone, gone))
    assert state.leader == NO_LEADER
    back = [there, gone, gone]
    back[second - 1] = there
    assert elections.settled(state, brokers(*back)).leader == second
