"""Differences between an image of the cluster and the image before: fenced brokers, elections, ISR changes. Pure.

Log lines and counters are made of these events, and not of a broker's decisions: so they show the metadata, whichever
broker wrote them, the controller, a leader or a broker that carried out an admin request. Topics and members that
stayed as they were are the same objects in both images, and are compared by identity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerState
from coordinator.controller.elections import Electorate, reconciled, settled
from coordinator.controller.reassignments import enough_in_sync
from coordinator.controller.reconcile import UNCLEAN, min_isr, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo
    from coordinator.controller.reconcile import IsSynced


class Election(Enum):
    """Reasons why a partition has another leader, or its leader another epoch; the values are those of `reason`."""

    BROKER_FENCED = "broker_fenced"
    BROKER_UNREGISTERED = "broker_unregistered"
    BROKER_RESTARTED = "broker_restarted"  # its registration is another one than that which was elected
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    LEADER_LACKS_RECORDS = "leader_lacks_records"  # its replica is suspect (RULES K8)
    PREFERRED = "preferred"
    REASSIGNMENT = "reassignment"
    REPLICA_RETURNED = "replica_returned"  # the partition had no leader until then
    RECONCILED = "reconciled"  # automatic, of a topic that is not synced: the log with most leads
    UNCLEAN = "unclean"

    @property
    def may_lose(self) -> bool:
        """Whether the election may lose acknowledged records."""
        return self in (Election.RECONCILED, Election.UNCLEAN)


class Departure(Enum):
    """Reasons why a replica is no longer in an ISR; the values are those of `reason`."""

    BROKER_FENCED = "broker_fenced"
    BROKER_UNREGISTERED = "broker_unregistered"
    BROKER_RESTARTED = "broker_restarted"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    FOLLOWER_OUT_OF_SYNC = "follower_out_of_sync"  # its leader says so
    REASSIGNMENT = "reassignment"
    REPLICA_LACKS_RECORDS = "replica_lacks_records"  # the broker itself says so (RULES K8)
    UNCLEAN_ELECTION = "unclean_election"


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A broker whose state changed, or its registration."""

    broker: BrokerInfo
    before: BrokerInfo | None


@dataclass(slots=True)  # not frozen: thousands are made at once, and that takes three times as long
class PartitionChange:
    """The state of a partition, and the one before."""

    topic: str
    partition: int
    before: PartitionState
    state: PartitionState


@dataclass(slots=True)
class Elected(PartitionChange):
    """A new leader, or the same broker in another registration."""

    reason: Election

    @property
    def is_from_elr(self) -> bool:
        """Whether the leader was eligible, and not in the ISR (KIP-966)."""
        return not self.reason.may_lose and self.state.leader not in self.before.isr


@dataclass(slots=True)
class IsrChanged(PartitionChange):
    """`reason`: of the first replica that left; None: none did. `is_too_small`: acks=all is refused from now on."""

    added: tuple[int, ...]
    removed: tuple[int, ...]
    reason: Departure | None
    is_too_small: bool


@dataclass(slots=True)
class LeaderLost(PartitionChange):
    """The partition had a leader, and has none."""

    reason: Election


@dataclass(slots=True)
class Transitions:
    """All events of a step from one image to the next."""

    members: list[MemberChange] = field(default_factory=list)
    elected: list[Elected] = field(default_factory=list)
    lost: list[LeaderLost] = field(default_factory=list)
    isr: list[IsrChanged] = field(default_factory=list)


def transitions(old: ClusterImage, new: ClusterImage, is_synced: IsSynced = lambda _: True) -> Transitions:
    """The events of the step from `old` to `new`. New or deleted topics have none. `is_synced`: see `reconcile`."""
    found = Transitions()
    if new.members is not old.members or new.former is not old.former:
        found.members.extend(_member_changes(old, new))
    if new.topics_by_id is old.topics_by_id:
        return found
    known = old.topics_by_id
    changed = [topic for topic_id, topic in new.topics_by_id.items() if known.get(topic_id) is not topic]
    for topic in changed:
        earlier = known[topic.topic_id].partitions if topic.topic_id in known else ()
        asked = min_isr(new, topic)
        for number, (before, state) in enumerate(zip(earlier, topic.partitions, strict=False)):
            if before is not state and before != state:
                _compare(found, topic, number, before, state, new, is_synced, asked)
    return found


def _member_changes(old: ClusterImage, new: ClusterImage) -> Iterator[MemberChange]:
    for known, members in ((old.members, new.members), (old.former, new.former)):
        for broker_id, broker in members.items():
            before = old.members.get(broker_id) or old.former.get(broker_id)
            if known.get(broker_id) is not broker and not (before and _is_same(before, broker)):
                yield MemberChange(broker, before)


def _is_same(before: BrokerInfo, broker: BrokerInfo) -> bool:
    return (before.state, before.incarnation) == (broker.state, broker.incarnation)


def _compare(
    found: Transitions,
    topic: TopicInfo,
    partition: int,
    before: PartitionState,
    state: PartitionState,
    image: ClusterImage,
    is_synced: IsSynced,
    min_isr: int,
) -> None:
    if state.leader == NO_LEADER and before.leader != NO_LEADER:
        found.lost.append(LeaderLost(topic.name, partition, before, state, _lost_by(before, state, image)))
    elif state.leader != NO_LEADER and _is_elected(before, state):
        reason = _election(before, state, topic, image, is_synced)
        found.elected.append(Elected(topic.name, partition, before, state, reason))
    added = tuple([one for one in state.isr if one not in before.isr])
    removed = tuple([one for one in before.isr if one not in state.isr])
    if added or removed:
        departure = _departure(removed[0], before, state, image) if removed else None
        is_too_small = len(state.isr) < enough_in_sync(state, min_isr)
        found.isr.append(IsrChanged(topic.name, partition, before, state, added, removed, departure, is_too_small))


def _is_elected(before: PartitionState, state: PartitionState) -> bool:
    same_leader = (state.leader, state.incarnation) == (before.leader, before.incarnation)
    return not same_leader or state.unclean_since != before.unclean_since


def _election(
    before: PartitionState, state: PartitionState, topic: TopicInfo, image: ClusterImage, is_synced: IsSynced
) -> Election:
    if state.unclean_since != before.unclean_since:
        is_automatic = _is_reconciled(before, state, topic, image, is_synced)
        return Election.RECONCILED if is_automatic else Election.UNCLEAN
    if before.leader == NO_LEADER:
        return Election.REPLICA_RETURNED
    if before.leader == state.leader:
        return Election.BROKER_RESTARTED
    return _lost_by(before, state, image)


def _lost_by(before: PartitionState, state: PartitionState, image: ClusterImage) -> Election:
    """The reason why the leader before leads no more."""
    leader = image.members.get(before.leader)
    if leader is None:
        return Election.BROKER_UNREGISTERED
    if leader.state is BrokerState.FENCED:
        return Election.BROKER_FENCED
    if leader.incarnation != before.incarnation:
        return Election.BROKER_RESTARTED
    if leader.state is BrokerState.LEAVING:
        return Election.CONTROLLED_SHUTDOWN
    if any(suspect[0] == before.leader for suspect in (*before.suspect_replicas, *state.suspect_replicas)):
        return Election.LEADER_LACKS_RECORDS
    return Election.REASSIGNMENT if before.leader not in state.replicas else Election.PREFERRED


def _is_reconciled(
    before: PartitionState, state: PartitionState, topic: TopicInfo, image: ClusterImage, is_synced: IsSynced
) -> bool:
    """Whether the controller elects so by itself, without an order and without a config that allows it."""
    if is_synced(topic) or setting(image, topic, UNCLEAN) == "true":
        return False
    electorate = Electorate(image.members, min_isr(image, topic))
    automatic = reconciled(settled(before, electorate), electorate)
    return (automatic.leader, automatic.leader_epoch) == (state.leader, state.leader_epoch)


def _departure(broker_id: int, before: PartitionState, state: PartitionState, image: ClusterImage) -> Departure:
    if state.unclean_since != before.unclean_since:
        return Departure.UNCLEAN_ELECTION
    if broker_id not in state.replicas:
        return Departure.REASSIGNMENT
    if state.suspect_replicas and broker_id in [suspect[0] for suspect in state.suspect_replicas]:
        return Departure.REPLICA_LACKS_RECORDS
    broker = image.members.get(broker_id)
    if broker is None:
        return Departure.BROKER_UNREGISTERED
    if broker.is_up and broker_id in Electorate(image.members).restarted(before):
        return Departure.BROKER_RESTARTED
    return _DEPARTED.get(broker.state, Departure.FOLLOWER_OUT_OF_SYNC)


_DEPARTED = {
    BrokerState.FENCED: Departure.BROKER_FENCED,
    BrokerState.RECOVERING: Departure.BROKER_RESTARTED,
    BrokerState.LEAVING: Departure.CONTROLLED_SHUTDOWN,
}
