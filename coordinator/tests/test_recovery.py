"""Elections of partitions whose members have all restarted: which replicas are waited for, how long, and who leads
(K33)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.api import (
    NO_EPOCH,
    NO_LEADER,
    BrokerInfo,
    BrokerState,
    ClusterImage,
    ElectionType,
    Extent,
    PartitionState,
    TopicInfo,
)
from coordinator.controller import elections
from coordinator.controller.elections import Electorate, awaited_members, preferred, settled, short_members
from coordinator.controller.isr_proposals import IsrChange, changed_by
from coordinator.controller.reconcile import to_reconcile
from coordinator.controller.recovery import LIVED_ON_S, Recovery
from coordinator.metadata.nodes import decode_member, decode_partition, encode_member, encode_partition
from coordinator.metadata_store import paths
from coordinator.ports import LogEndRequest, ReplicaEnd
from coordinator.requests import admin_requests
from coordinator.testing.images import with_members, with_topics

SERVING, LEAVING, FENCED, RECOVERING = (
    BrokerState.SERVING,
    BrokerState.LEAVING,
    BrokerState.FENCED,
    BrokerState.RECOVERING,
)
ID = bytes(range(16))
WAIT_S = 10.0
STATE = PartitionState(
    1,
    5,
    (1, 2, 3),
    (1, 2, 3),
    extents=(Extent(0, (1, 2, 3)),),
    incarnation=bytes([1, 0]) * 8,
    processes=((1, 0), (2, 0), (3, 0)),
    version=7,
)
LEADERLESS = replace(STATE, leader=NO_LEADER, leader_epoch=6, incarnation=bytes(16), last_known_leader=1)


def broker(number: int, state: BrokerState = SERVING, life: int = 0, process: int | None = None) -> BrokerInfo:
    """A broker in its registration `life`, made by another process unless `process` says so."""
    epoch = life if process is None else process
    return BrokerInfo(
        number, (), incarnation=bytes([number, life]) * 8, epoch=life, state=state, process_epoch=epoch, version=number
    )


def brokers(*states: BrokerState, lives: tuple[int, ...] = (1, 1, 1)) -> dict[int, BrokerInfo]:
    return {number: broker(number, one, life) for number, (one, life) in enumerate(zip(states, lives, strict=True), 1)}


def image_of(members: dict[int, BrokerInfo], *states: PartitionState, **configs: str) -> ClusterImage:
    topic = TopicInfo("a", ID, states, {key.replace("_", "."): value for key, value in configs.items()})
    return with_topics(with_members(ClusterImage(0, "cluster"), members, 1), [topic])


class Controller:
    """A controller of one partition: the image, with its own writes."""

    def __init__(
        self, members: dict[int, BrokerInfo], state: PartitionState, wait_s: float = WAIT_S, **configs: str
    ) -> None:
        self.recovery = Recovery(wait_s)
        self.configs = configs
        self.image = image_of(members, state, **configs)
        self.now_s = 0.0

    @property
    def state(self) -> PartitionState:
        return self.image.topics["a"].partitions[0]

    def become(self, **changed: BrokerInfo) -> None:
        """Brokers, by b1, b2, b3."""
        members = {**self.image.members, **{int(name[1:]): one for name, one in changed.items()}}
        self.image = image_of(members, self.state, **self.configs)

    def reconcile(self) -> PartitionState:
        """Write until nothing is left to do; return the state."""
        for _ in range(5):
            puts = to_reconcile(self.image, None, lambda _: True, self.recovery, self.now_s)
            if not puts:
                return self.state
            [put] = puts
            state = decode_partition(paths.partition(ID, 0), put.version + 1, put.value)  # type: ignore[union-attr]
            self.image = image_of(dict(self.image.members), state, **self.configs)
        raise AssertionError("written for ever")

    def asked(self) -> dict[int, list[LogEndRequest]]:
        return self.recovery.to_ask(self.image)

    def answer(
        self, number: int, epoch: int, end: int, high_watermark: int = 0, asked: LogEndRequest | None = None
    ) -> None:
        asked = asked or self.asked()[number][0]
        end_of = {asked: ReplicaEnd(epoch, end, high_watermark)}
        self.recovery.answered(self.image.members[number], [asked], end_of)


def short(state: PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr


# Elections that wait, and others that do not


@pytest.mark.parametrize(
    ("members", "awaited"),
    [
        (brokers(SERVING, SERVING, SERVING, lives=(0, 0, 0)), []),  # nothing has failed
        (brokers(FENCED, SERVING, SERVING, lives=(0, 0, 0)), []),  # one is killed
        (brokers(RECOVERING, SERVING, SERVING, lives=(1, 0, 0)), []),
        (brokers(SERVING, SERVING, SERVING, lives=(1, 0, 0)), []),  # and is back before it was fenced
        (brokers(FENCED, FENCED, SERVING, lives=(0, 0, 0)), []),  # two are killed
        (brokers(SERVING, SERVING, LEAVING, lives=(1, 1, 0)), []),
        (brokers(FENCED, FENCED, FENCED), []),  # no broker is back
        (brokers(RECOVERING, FENCED, FENCED), []),
        (brokers(SERVING, FENCED, FENCED), [1, 2, 3]),  # the first is
        (brokers(FENCED, FENCED, LEAVING), [1, 2, 3]),
        (brokers(SERVING, SERVING, SERVING), [1, 2, 3]),
    ],
)
def test_an_election_waits_only_if_no_member_is_up_whose_process_lived_on(
    members: dict[int, BrokerInfo], awaited: list[int]
) -> None:
    assert awaited_members(STATE, Electorate(members)) == awaited


def test_a_single_member_waits_for_no_other() -> None:
    alone = replace(STATE, isr=(2,), elr=(1,), processes=((2, 0), (1, 0)))
    members = brokers(SERVING, SERVING, SERVING)
    assert awaited_members(alone, Electorate(members)) == []
    assert settled(alone, Electorate(members, 2)).leader == 2
    first = replace(STATE, replicas=(1,), isr=(1,), processes=((1, 0),))
    assert short(settled(first, Electorate(members))) == (1, 6, (1,))


def test_eligible_replicas_are_not_waited_for_and_wait_for_members() -> None:
    state = replace(LEADERLESS, isr=(1, 2), elr=(3,))
    assert awaited_members(state, Electorate(brokers(SERVING, FENCED, FENCED))) == [1, 2]
    assert awaited_members(state, Electorate(brokers(FENCED, FENCED, SERVING))) == [1, 2]
    lived_on = Electorate(brokers(FENCED, FENCED, SERVING, lives=(1, 1, 0)), 3)
    assert settled(state, lived_on).leader == 3


def test_members_that_no_election_takes_are_not_waited_for() -> None:
    with_offline = replace(LEADERLESS, isr=(1, 2, 3), offline=(3,))
    assert awaited_members(with_offline, Electorate(brokers(SERVING, FENCED, SERVING))) == [1, 2]


def test_a_process_that_registers_again_has_not_restarted() -> None:
    """All brokers do so after an outage of the metadata store."""
    again = {number: broker(number, life=4, process=0) for number in (1, 2, 3)}
    assert awaited_members(STATE, Electorate(again)) == []
    assert short(settled(STATE, Electorate(again))) == (1, 6, (1, 2, 3))


def test_of_brokers_of_the_version_before_nothing_is_known() -> None:
    untold = {number: replace(one, process_epoch=NO_EPOCH) for number, one in brokers(*3 * [SERVING]).items()}
    assert awaited_members(STATE, Electorate(untold)) == []
    assert awaited_members(replace(STATE, processes=()), Electorate(brokers(SERVING, SERVING, SERVING))) == []


def test_a_present_leader_has_not_restarted_even_if_its_recorded_process_epoch_is_stale() -> None:
    stale = replace(STATE, incarnation=broker(1, life=1).incarnation)
    assert awaited_members(stale, Electorate(brokers(SERVING, SERVING, SERVING))) == []


# Elected leaders


def test_the_longest_log_leads_at_once_when_all_are_back() -> None:
    controller = Controller(brokers(SERVING, FENCED, FENCED), STATE)
    assert short(controller.reconcile()) == (NO_LEADER, 6, (1, 2, 3))
    controller.answer(1, 5, 4)
    assert controller.reconcile().leader == NO_LEADER
    controller.become(b2=broker(2, life=1), b3=broker(3, life=1))
    assert controller.reconcile().leader == NO_LEADER
    controller.answer(2, 5, 9)
    assert controller.reconcile().leader == NO_LEADER
    controller.answer(3, 5, 9)
    assert short(controller.reconcile()) == (2, 7, (2, 3))
    assert controller.state.processes == ((2, 1), (3, 1))
    assert len(controller.recovery) == 0


def test_the_greater_epoch_is_the_longer_log() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE)
    controller.reconcile()
    for number, epoch, end in ((1, 4, 100), (2, 5, 9), (3, 4, 100)):
        controller.answer(number, epoch, end)
    assert short(controller.reconcile()) == (2, 7, (2,))


def test_equal_logs_all_stay_in_the_isr_and_the_first_replica_leads() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE)
    controller.reconcile()
    for number in (3, 2, 1):
        controller.answer(number, 5, 9)
    assert short(controller.reconcile()) == (1, 7, (1, 2, 3))
    assert controller.state.processes == ((1, 1), (2, 1), (3, 1))


def test_the_wait_ends_and_the_best_that_is_there_leads() -> None:
    controller = Controller(brokers(SERVING, SERVING, FENCED), STATE)
    controller.reconcile()
    controller.answer(1, 5, 4)
    controller.answer(2, 5, 6)
    controller.now_s = WAIT_S - 0.01
    assert controller.reconcile().leader == NO_LEADER
    assert controller.recovery.remaining_s(controller.now_s) == pytest.approx(0.01)
    controller.now_s = WAIT_S
    assert short(controller.reconcile()) == (2, 7, (2,))
    assert controller.recovery.remaining_s(controller.now_s) is None
    controller.become(b3=broker(3, life=1))
    assert short(controller.reconcile()) == (2, 7, (2,)), "a broker that comes later follows"


def test_an_election_without_answers_takes_the_first_replica_after_the_wait() -> None:
    """A broker of the version before does not answer, nor does a broker that cannot be reached."""
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE)
    controller.reconcile()
    controller.now_s = WAIT_S
    assert short(controller.reconcile()) == (1, 7, (1, 2, 3))
    assert controller.state.processes == ((1, 1), (2, 1), (3, 1))


def test_the_answer_of_an_earlier_registration_does_not_count() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE)
    controller.reconcile()
    controller.answer(1, 5, 9)
    controller.answer(2, 5, 8)
    controller.become(b1=broker(1, FENCED, life=1))
    controller.answer(3, 5, 8)
    assert controller.reconcile().leader == NO_LEADER, "1 has answered, and does not serve"
    controller.become(b1=broker(1, life=2))
    assert controller.reconcile().leader == NO_LEADER, "1 serves, and has not answered"
    assert list(controller.asked()) == [1]
    controller.answer(1, 5, 4)
    assert short(controller.reconcile()) == (2, 7, (2, 3))


def test_a_decision_that_was_overtaken_is_made_again() -> None:
    """The member that was to lead is gone before it is written."""
    controller = Controller(brokers(SERVING, SERVING, SERVING), LEADERLESS)
    to_reconcile(controller.image, None, lambda _: True, controller.recovery, 0.0)
    for number, end in ((1, 9), (2, 8), (3, 8)):
        controller.answer(number, 5, end)
    assert len(to_reconcile(controller.image, None, lambda _: True, controller.recovery, 0.0)) == 1
    assert len(controller.recovery) == 0
    controller.become(b1=broker(1, FENCED, life=1))
    assert controller.reconcile().leader == NO_LEADER
    assert len(controller.recovery) == 1
    assert controller.recovery.remaining_s(0.0) == WAIT_S
    controller.become(b1=broker(1, life=2))
    controller.answer(1, 5, 9)
    assert controller.reconcile().leader == 1


def test_the_answer_of_another_leader_epoch_does_not_count() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE)
    controller.reconcile()
    [asked] = controller.asked()[1]
    assert asked == LogEndRequest(ID, "a", 0, 6)
    controller.answer(1, 5, 9, asked=asked._replace(leader_epoch=5))
    controller.answer(2, 5, 8)
    controller.answer(3, 5, 8)
    assert controller.reconcile().leader == NO_LEADER
    assert list(controller.asked()) == [1]


def test_nothing_is_asked_before_the_epoch_without_a_leader() -> None:
    recovery, image = Recovery(WAIT_S), image_of(brokers(SERVING, FENCED, FENCED), STATE)
    assert len(to_reconcile(image, None, lambda _: True, recovery, 0.0)) == 1
    assert recovery.to_ask(image) == {}


def test_another_controller_waits_anew_and_asks_anew() -> None:
    controller = Controller(brokers(SERVING, SERVING, FENCED), STATE)
    controller.reconcile()
    controller.answer(1, 5, 4)
    controller.now_s = 6.0
    controller.recovery = Recovery(WAIT_S)
    controller.reconcile()
    assert {*controller.asked()} == {1, 2}
    controller.now_s = 6.0 + WAIT_S
    assert controller.reconcile().leader == 1


def test_without_a_wait_the_first_leads() -> None:
    controller = Controller(brokers(FENCED, SERVING, FENCED), STATE, wait_s=0.0)
    assert short(controller.reconcile()) == (2, 6, (2,))
    assert controller.recovery.take_events().started == 0


def test_a_topic_that_is_deleted_is_waited_for_no_longer() -> None:
    controller = Controller(brokers(SERVING, FENCED, FENCED), STATE)
    controller.reconcile()
    assert len(controller.recovery) == 1
    empty = with_members(ClusterImage(9, "cluster"), controller.image.members, 1)
    assert to_reconcile(empty, None, lambda _: True, controller.recovery, 0.0) == []
    assert len(controller.recovery) == 0


# Others that decide


def test_no_other_decision_ends_the_wait() -> None:
    restarted = Electorate(brokers(SERVING, FENCED, FENCED))
    assert preferred(STATE, restarted) is STATE
    assert settled(STATE, restarted).leader == NO_LEADER
    assert elections.unclean(STATE, restarted).leader == NO_LEADER


def test_unclean_elections_are_held_as_before() -> None:
    """An election does not wait if no member is up; if one is, it is elected cleanly, after the wait."""
    others = replace(LEADERLESS, isr=(1, 2), processes=((1, 0), (2, 0)))
    controller = Controller(brokers(FENCED, FENCED, SERVING), others, unclean_leader_election_enable="true")
    assert short(controller.reconcile()) == (3, 7, (3,))
    controller = Controller(brokers(SERVING, FENCED, FENCED), STATE, unclean_leader_election_enable="true")
    assert controller.reconcile().leader == NO_LEADER
    controller.now_s = WAIT_S
    controller.answer(1, 5, 4)
    assert short(controller.reconcile()) == (1, 7, (1,))
    assert controller.state.unclean_since == NO_EPOCH


def test_an_ordered_election_waits_for_no_replica() -> None:
    image = image_of(brokers(FENCED, SERVING, FENCED), LEADERLESS)
    put = admin_requests.election(image, ("a", 0), kind=ElectionType.UNCLEAN)
    state = decode_partition("/partitions/x/0", 8, put.value)  # type: ignore[union-attr]
    assert (short(state), state.unclean_since) == ((2, 7, (2,)), NO_EPOCH)


def test_a_leader_that_enters_members_notes_their_processes() -> None:
    members = brokers(SERVING, SERVING, SERVING, lives=(0, 1, 1))
    alone = replace(STATE, isr=(1,), processes=((1, 0),))
    wanted = IsrChange(ID, 0, 5, frozenset({1, 2}), {2: 1})
    entered = changed_by(alone, members, wanted, members[1], 1)
    assert (entered.isr, entered.processes) == ((1, 2), ((1, 0), (2, 1)))


def test_a_member_that_left_is_not_known_any_more() -> None:
    left = elections.with_isr(STATE, [1, 3], 1)
    assert left.processes == ((1, 0), (3, 0))
    assert elections.with_isr(STATE, [1], 2).processes == STATE.processes, "the others are eligible"


def test_a_member_that_restarts_beside_its_leader_leaves_the_isr_once_the_leader_has_lived_on() -> None:
    """The leader may have lost its power, too, while its session lasts: then the member that is back must not be left
    out."""
    controller = Controller(brokers(SERVING, SERVING, SERVING, lives=(0, 1, 0)), STATE)
    assert controller.reconcile() is STATE
    assert controller.recovery.remaining_s(0.0) == LIVED_ON_S
    controller.now_s = LIVED_ON_S
    assert short(controller.reconcile()) == (1, 5, (1, 3))
    assert controller.recovery.remaining_s(controller.now_s) is None


def test_dead_brokers_with_lasting_sessions_remove_no_member_from_the_isr() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING, lives=(0, 1, 0)), STATE)
    controller.reconcile()
    controller.become(b1=broker(1, FENCED), b3=broker(3, FENCED))
    controller.now_s = 18.0
    assert short(controller.reconcile()) == (NO_LEADER, 6, (1, 2, 3))
    controller.now_s += WAIT_S
    controller.answer(2, 5, 4)
    assert short(controller.reconcile()) == (2, 7, (2,))


def test_a_member_whose_process_lived_on_leads_before_a_restarted_member() -> None:
    found = settled(STATE, Electorate(brokers(FENCED, SERVING, SERVING, lives=(0, 1, 0))))
    assert short(found) == (3, 6, (2, 3))


# Members that are short


def test_a_member_that_ends_below_a_known_high_watermark_is_marked() -> None:
    controller = Controller(brokers(SERVING, SERVING, SERVING), STATE, min_insync_replicas="3")
    controller.reconcile()
    for number, end in ((1, 4), (2, 9), (3, 8)):
        controller.answer(number, 5, end, high_watermark=min(end, 8))
    state = controller.reconcile()
    assert (short(state), state.elr, state.suspect_replicas) == ((2, 7, (2,)), (), ((1, 5, 4),))
    events = controller.recovery.take_events()
    assert (events.started, events.ended, events.timed_out) == (1, 1, 0)
    assert [(one.broker_id, one.end.end_offset, one.longest.end_offset, one.lacks) for one in events.short] == [
        (1, 4, 9, True),
        (3, 8, 9, False),
    ]
    assert controller.recovery.take_events().short == []


def test_the_leader_is_never_short() -> None:
    answers = {1: ReplicaEnd(6, 3, 0), 2: ReplicaEnd(5, 9, 9)}
    assert short_members(STATE, Electorate({}, answers=answers)) == {}
    answers = {1: ReplicaEnd(5, 9, 3), 2: ReplicaEnd(4, 20, 3)}
    assert short_members(STATE, Electorate({}, answers=answers)) == {}, "a log of an earlier epoch is not shorter"


HISTORY = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted)  # the epoch of each record


@given(HISTORY, st.data())
def test_acknowledged_records_survive_if_one_disk_kept_its_whole_log(epochs: list[int], data: st.DataObject) -> None:
    """The logs of members are prefixes of one history, with all acknowledged records and a tail of their own; all but
    one lose any part of their end."""
    acked = data.draw(st.integers(0, len(epochs)))
    logs: dict[int, list[tuple[int, int]]] = {}
    for number in (1, 2, 3):
        length = data.draw(st.integers(acked, len(epochs)))
        logs[number] = [(epoch, 0) for epoch in epochs[:length]]
    kept = data.draw(st.sampled_from((1, 2, 3)))
    for number in {1, 2, 3} - {kept}:
        del logs[number][data.draw(st.integers(0, len(logs[number]))) :]
    controller = Controller(brokers(SERVING, SERVING, SERVING), replace(STATE, leader_epoch=4))
    controller.reconcile()
    for number, log in logs.items():
        controller.answer(number, log[-1][0] if log else -1, len(log), high_watermark=min(acked, len(log)))
    state = controller.reconcile()
    assert len(logs[state.leader]) >= acked
    assert all(len(logs[one]) >= acked for one in (*state.isr, *state.elr))


@pytest.mark.parametrize("gone", [set(one) for count in range(3) for one in combinations((1, 2, 3), count)])
def test_the_wait_ends_though_replicas_stay_away(gone: set[int]) -> None:
    members = brokers(*(FENCED if one in gone else SERVING for one in (1, 2, 3)))
    controller = Controller(members, STATE)
    controller.reconcile()
    controller.now_s = WAIT_S
    assert controller.reconcile().leader not in {NO_LEADER, *gone}


# The metadata


def test_processes_are_in_the_nodes() -> None:
    member = broker(1, life=7, process=5)
    assert decode_member("/members/1", 1, encode_member(member)) == member
    assert decode_partition("/partitions/x/0", 7, encode_partition(STATE)) == STATE
    older = encode_partition(replace(STATE, processes=()))
    assert b"processes" not in older
