"""Observation of the brokers while they run: the leader of each epoch, and whether the ISR has all committed records.

All observations are made between two steps of the event loop, so at one moment for all brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from engine.partitions.partition import Partition
from kafkawire.tests.cluster_simulation.machines import Machine, Machines
from kafkawire.tests.simulation.history import Place
from kafkawire.tests.simulation.plan import Target
from testkit.logs import log_bytes

OBSERVE_INTERVAL_S = 0.05
COMPARES_EVERY = 20  # observations


@dataclass
class Observations:
    """The collected observations. Lives are numbers, see `Machine.life`."""

    leaders: dict[tuple[Place, int], set[int]] = field(default_factory=dict)  # lives, by epoch
    lacking: list[str] = field(default_factory=list)  # replicas in sync that lack committed records
    retreats: list[str] = field(default_factory=list)  # high watermarks that went back within an epoch
    replicas: dict[Place, dict[int, bytes]] = field(default_factory=dict)  # in the end


def contents(machine: Machine, log: Partition) -> bytes:
    """The bytes of the whole log, one segment after the other.

    The bounds of segments may differ between replicas: a segment that a leader began with records of its own stays when
    these are truncated.
    """
    return log_bytes(machine.world.disk, log.log)


def size_below_high_watermark(log: Partition) -> int:
    """The size in bytes of the log below the high watermark."""
    mark = log.progress.high_watermark
    return mark.position + sum(one.size_bytes for one in log.log.segments if one.base_offset < mark.segment_base_offset)


@dataclass
class Observer:
    """The task that collects the observations; the caller runs `run` in a task."""

    machines: Machines
    targets: list[Target]
    observations: Observations = field(default_factory=Observations)
    _marks: dict[tuple[Place, int], int] = field(default_factory=dict)  # by epoch

    async def run(self) -> None:
        rounds = 0
        while True:
            rounds += 1
            for target in self.targets:
                self._observe(target, compares=rounds % COMPARES_EVERY == 0)
            await trio.sleep(OBSERVE_INTERVAL_S)

    def place_of(self, target: Target) -> Place | None:
        image = self.machines.image
        topic = None if image is None else image.topics.get(target.topic)
        return None if topic is None else Place(topic.topic_id, target.partition)

    def _observe(self, target: Target, *, compares: bool) -> None:
        place = self.place_of(target)
        if place is None:
            return
        for machine in self.machines:
            log = machine.replica(target.topic, place)
            if log is not None and log.is_led:
                self.observations.leaders.setdefault((place, log.leader_epoch), set()).add(machine.life)
                self._note_mark(place, log)
        self._note_lacking(target, place, compares=compares)

    def _note_mark(self, place: Place, log: Partition) -> None:
        known = self._marks.get((place, log.leader_epoch), 0)
        if log.high_watermark < known:
            self.observations.retreats.append(
                f"{place}: {log.high_watermark} after {known} in epoch {log.leader_epoch}"
            )
        self._marks[place, log.leader_epoch] = max(known, log.high_watermark)

    def _note_lacking(self, target: Target, place: Place, *, compares: bool) -> None:
        """Note the members of the ISR that lack committed records, or have not synced them (RULES K17)."""
        state = self.machines.state(target)
        if state is None or state.leader not in self.machines.all:
            return
        leading = self.machines.all[state.leader].replica(target.topic, place)
        if leading is None or not leading.is_led or leading.leader_epoch != state.leader_epoch:
            return
        mark = leading.progress.high_watermark
        size_bytes = size_below_high_watermark(leading)
        counts = contents(self.machines.all[state.leader], leading)[:size_bytes] if compares else b""
        for member in state.isr:
            machine = self.machines.all[member]
            log = machine.replica(target.topic, place)
            if log is None:
                continue
            where = f"{place} on broker {member}, led by {state.leader} in epoch {state.leader_epoch}"
            if log.progress.durable.offset < mark.offset:
                self.observations.lacking.append(f"{where}: {log.progress.durable.offset} of {mark.offset}")
            elif compares and contents(machine, log)[:size_bytes] != counts:
                self.observations.lacking.append(f"{where}: other bytes below {mark.offset}")

    # The end

    def unsettled_reason(self, target: Target) -> str:
        """The reason why a partition has no leader, or why its replicas are not all in sync and equal; empty if they
        are."""
        place, state = self.place_of(target), self.machines.state(target)
        if place is None or state is None:
            return "there is no such topic"
        if not self.machines.are_up:
            return "not all brokers are up"
        if sorted(state.isr) != sorted(self.machines.all) or state.leader not in state.isr:
            return f"leader {state.leader}, in sync {sorted(state.isr)}"
        logs = [one.replica(target.topic, place) for one in self.machines]
        if None in logs or not all(log.is_sound for log in logs if log is not None):
            return "not all replicas are open"
        leading = self.machines.all[state.leader].replica(target.topic, place)
        if leading is None or not leading.is_led or leading.leader_epoch != state.leader_epoch:
            return f"broker {state.leader} does not lead in epoch {state.leader_epoch}"
        ends = {(log.log_end_offset, log.high_watermark) for log in logs if log is not None}
        if len(ends) > 1 or any(mark != end for end, mark in ends):
            return f"(end, high watermark): {sorted(ends)}"
        return ""

    def note_replicas(self) -> None:
        """Note the present contents of all replicas."""
        for target in self.targets:
            if (place := self.place_of(target)) is not None:
                logs = [(one, one.replica(target.topic, place)) for one in self.machines]
                found = {one.broker_id: contents(one, log) for one, log in logs if log is not None}
                self.observations.replicas[place] = found
