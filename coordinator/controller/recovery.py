"""Elections that wait for restarted replicas: pure, the memory of one controller (RULES K33).

If the processes of all members of an ISR have ended, the disk of the member that is back first may have lost
acknowledged records. So the controller asks the members that are back where their logs end, and elects when all are
back and have answered, or when the wait is over. An answer counts for the registration that gave it and for the leader
epoch that it was asked in: the epoch has no leader, so the end of the log stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.api import NO_LEADER
from coordinator.controller.elections import UP, awaited_members, is_decidable, short_members
from coordinator.ports import LogEndRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.api import BrokerInfo, ClusterImage, PartitionState, TopicInfo
    from coordinator.controller.elections import Electorate
    from coordinator.ports import ReplicaEnd

_Key = tuple[bytes, int]  # a topic id, and a partition

# A leader whose broker is up for so long after another member has restarted has outlived the session that it had then.
LIVED_ON_S: Final = 60.0


class ShortReplica(NamedTuple):
    """A member whose log is shorter than that of another one. `lacks`: it lacks acknowledged records."""

    topic: str
    partition: int
    broker_id: int
    end: ReplicaEnd
    longest: ReplicaEnd
    lacks: bool


class _Answer(NamedTuple):
    incarnation: bytes
    leader_epoch: int
    end: ReplicaEnd


@dataclass(slots=True)
class _Wait:
    over_at_s: float
    awaited: Sequence[int] = ()
    answers: dict[int, _Answer] = field(default_factory=dict)
    is_decided: bool = False


class _Restart(NamedTuple):
    over_at_s: float
    leader: bytes  # its incarnation


@dataclass(slots=True)
class WaitEvents:
    """Events since the last report. `timed_out`: the number of ended waits in which some members had not
    answered."""

    started: int = 0
    ended: int = 0
    timed_out: int = 0
    short: list[ShortReplica] = field(default_factory=list)


class Recovery:
    """The elections that wait. `wait_s`: controller.recovery.wait.ms, in seconds."""

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self._waits: dict[_Key, _Wait] = {}
        self._restarts: dict[_Key, _Restart] = {}
        self._events = WaitEvents()

    def __len__(self) -> int:
        """The number of elections that wait."""
        return sum(not wait.is_decided for wait in self._waits.values())

    @property
    def topic_ids(self) -> set[bytes]:
        """Topics with partitions that wait: they are looked at again although the image is the same."""
        return {topic_id for topic_id, _ in (*self._waits, *self._restarts)}

    def reset(self) -> None:
        """Forget all waits: another broker is the controller, or this one is again and begins from the image."""
        self._waits, self._restarts, self._events = {}, {}, WaitEvents()

    def prune(self, image: ClusterImage) -> None:
        """Forget waits of topics that are deleted."""
        known = image.topics_by_id
        self._waits = {key: wait for key, wait in self._waits.items() if key[0] in known}
        self._restarts = {key: restart for key, restart in self._restarts.items() if key[0] in known}

    def electorate(self, topic: TopicInfo, number: int, electorate: Electorate, now_s: float) -> Electorate:
        """The electorate of one partition, with the answers that count, and whether its wait is over."""
        key, state = (topic.topic_id, number), topic.partitions[number]
        awaited = awaited_members(state, electorate)
        if not awaited:
            self._waits.pop(key, None)
            return self._lived_on(key, state, electorate, now_s)
        self._restarts.pop(key, None)
        wait = self._waits.get(key)
        if wait is None:
            wait = self._waits[key] = _Wait(now_s + self.wait_s)
            self._events.started += self.wait_s > 0
        wait.awaited = awaited
        answers = {
            one: answer.end
            for one, answer in wait.answers.items()
            if answer.leader_epoch == state.leader_epoch and _is_registered(electorate.brokers, one, answer)
        }
        found = replace(electorate, answers=answers, is_over=now_s >= wait.over_at_s)
        was_decided, wait.is_decided = wait.is_decided, is_decidable(awaited, found)
        if wait.is_decided and not was_decided and self.wait_s > 0:
            self._note(topic, number, wait, found)
        return found

    def _lived_on(self, key: _Key, state: PartitionState, electorate: Electorate, now_s: float) -> Electorate:
        """The electorate with `lived_on`: a member that has restarted beside its leader leaves the ISR, and is admitted
        again, once it is certain that the leader has not ended as well."""
        if not (restarted := electorate.restarted(state)):
            self._restarts.pop(key, None)
            return electorate
        up = electorate.among(state.isr, UP)
        if {*up}.isdisjoint(restarted) or not electorate.leads_well(state):
            self._restarts.pop(key, None)
            return electorate
        restart = self._restarts.get(key)
        if restart is None or restart.leader != state.incarnation:
            restart = self._restarts[key] = _Restart(now_s + LIVED_ON_S, state.incarnation)
        return replace(electorate, lived_on=now_s >= restart.over_at_s)

    def _note(self, topic: TopicInfo, number: int, wait: _Wait, electorate: Electorate) -> None:
        answers = electorate.answers
        self._events.ended += 1
        self._events.timed_out += any(one not in answers for one in wait.awaited)
        longest = max(answers.values(), key=lambda one: one.log_end, default=None)
        for one, lacks in short_members(topic.partitions[number], electorate).items():
            assert longest is not None, "a replica is shorter than another one"
            self._events.short.append(ShortReplica(topic.name, number, one, answers[one], longest, lacks))

    def to_ask(self, image: ClusterImage) -> dict[int, list[LogEndRequest]]:
        """The logs whose ends are not known yet, by broker. Only in an epoch without a leader: the end of a log that
        follows no leader stays."""
        asked: dict[int, list[LogEndRequest]] = {}
        for (topic_id, number), wait in self._waits.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is None or number >= len(topic.partitions):
                continue
            state = topic.partitions[number]
            if wait.is_decided or state.leader != NO_LEADER:
                continue
            for one in wait.awaited:
                broker = image.brokers.get(one)
                answer = wait.answers.get(one)
                known = None if answer is None else (answer.incarnation, answer.leader_epoch)
                if broker is not None and known != (broker.incarnation, state.leader_epoch):
                    asked.setdefault(one, []).append(LogEndRequest(topic_id, topic.name, number, state.leader_epoch))
        return asked

    def answered(
        self, broker: BrokerInfo, asked: Sequence[LogEndRequest], ends: Mapping[LogEndRequest, ReplicaEnd]
    ) -> bool:
        """Take the answers of `broker`, as it was registered when it was asked; return whether an election waited for
        any of them."""
        was_awaited = False
        for one in asked:
            wait, end = self._waits.get((one.topic_id, one.partition)), ends.get(one)
            if wait is not None and end is not None:
                wait.answers[broker.broker_id] = _Answer(broker.incarnation, one.leader_epoch, end)
                was_awaited = True
        return was_awaited

    def awaited_brokers(self) -> set[int]:
        """The brokers whose answers elections wait for, back or not."""
        return {one for wait in self._waits.values() for one in wait.awaited if not wait.is_decided}

    def remaining_s(self, now_s: float) -> float | None:
        """Seconds until partitions are to be looked at again; None: no election waits."""
        times = [wait.over_at_s for wait in self._waits.values() if not wait.is_decided]
        times += [restart.over_at_s for restart in self._restarts.values() if restart.over_at_s > now_s]
        return max(0.0, min(times) - now_s) if times else None

    def take_events(self) -> WaitEvents:
        """The events since the last call."""
        events, self._events = self._events, WaitEvents()
        return events


def _is_registered(brokers: Mapping[int, BrokerInfo], broker_id: int, answer: _Answer) -> bool:
    broker = brokers.get(broker_id)
    return broker is not None and broker.incarnation == answer.incarnation
