"""The classic group's life in scenario files: commands, and below each its effects.

A scenario is a text in `scenarios/`, after etcd raft's: a line is a command, the lines indented below it are all of its
effects. `KAFKAWIRE_REWRITE=1` writes the present effects into the files, to be read before they are committed.

    join a                      member `a` joins (c1, c2 … are clients; options as key=value)
    sync a b=1 c=2              the member syncs; a leader with assignments
    heartbeat a, leave a,b      by the names under which the members joined
    wait 3000                   so many milliseconds pass; all that is due happens in order
    state                       prints the group
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coordinator.errors import CoordinatorError, MemberIdRequired
from coordinator.groups.api import Claim, Join, Joined, MemberProtocol, Synced
from coordinator.groups.classic import ClassicGroup
from coordinator.groups.step import GroupSettings, Step
from coordinator.shards.table import NEVER_MS

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
DEFAULTS = {"type": "consumer", "protocols": "range", "session": "10000", "rebalance": "60000", "version": "3"}


@dataclass
class Script:
    """Runs the commands of one scenario against one group."""

    group: ClassicGroup[str] = field(default_factory=lambda: ClassicGroup("g", GroupSettings()))
    now_ms: int = 0
    ids: dict[str, str] = field(default_factory=dict)  # of the members, by their names in the scenario
    generations: dict[str, int] = field(default_factory=dict)  # each has seen last
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        if command == "wait":
            return self._wait(int(names[0]))
        if command == "state":
            return [self._state()]
        if command == "settings":
            self.group = ClassicGroup("g", GroupSettings(**{key: int(value) for key, value in options.items()}))
            return []
        step = self._new_step()
        try:
            getattr(self, f"_{command}")(step, names[0], options)
        except MemberIdRequired as error:
            self.ids[names[0]] = error.member_id
            return [*self._answers(step), f"{names[0]}: MemberIdRequired {error.member_id}"]
        except CoordinatorError as error:
            return [*self._answers(step), f"{names[0]}: {type(error).__name__}"]
        return self._answers(step)

    def _new_step(self) -> Step[str]:
        return Step(self.now_ms, self.now_ms, lambda: str(next(self.numbers)))

    def _join(self, step: Step[str], name: str, options: dict[str, str]) -> None:
        asked = DEFAULTS | options
        protocols = tuple(
            MemberProtocol(one, f"{name}/{one}{asked.get('meta', '')}".encode())
            for one in asked["protocols"].split(",")
            if one
        )
        member_id = asked.get("id", self.ids.get(name, ""))
        join = Join(
            "" if member_id == "-" else member_id,
            asked.get("instance"),
            f"c{name}",
            "/host",
            asked["type"],
            protocols,
            int(asked["session"]),
            int(asked["rebalance"]),
            must_know_its_id=int(asked["version"]) >= 4,
            may_skip_assignment=int(asked["version"]) >= 9,
        )
        self.group.join(step, join, name)

    def _sync(self, step: Step[str], name: str, options: dict[str, str]) -> None:
        protocol = options.pop("type", None), options.pop("protocol", None)
        claim = self._claim(name, options)
        assignments = {self.ids.get(one, one): value.encode() for one, value in options.items()}
        self.group.sync(step, claim, protocol, assignments, name)

    def _heartbeat(self, step: Step[str], name: str, options: dict[str, str]) -> None:
        self.group.heartbeat(step.now_ms, self._claim(name, options))
        step.answers.append((name, Synced("", "", b"ok")))

    def _leave(self, step: Step[str], name: str, options: dict[str, str]) -> None:
        claims = [self._claim(one, dict(options)) for one in name.split(",")]
        for one, outcome in zip(name.split(","), self.group.leave(step, claims), strict=True):
            if outcome is not None:
                step.answers.append((one, outcome))

    def _claim(self, name: str, options: dict[str, str]) -> Claim:
        member_id = options.pop("id", self.ids.get(name, name))
        generation = int(options.pop("generation", self.generations.get(name, -1)))
        return Claim("" if member_id == "-" else member_id, options.pop("instance", None), generation)

    def _wait(self, time_ms: int) -> list[str]:
        until_ms = self.now_ms + time_ms
        answers: list[str] = []
        while (due_ms := self.group.next_deadline_ms()) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            step = self._new_step()
            self.group.expire(step)
            answers += [f"at {self.now_ms}", *self._answers(step)]
        self.now_ms = until_ms
        return answers

    def _answers(self, step: Step[str]) -> list[str]:
        lines = [f"{name}: {self._answer(name, answer)}" for name, answer in step.answers]
        return lines + ["record"] * step.must_record

    def _answer(self, name: str, answer: object) -> str:
        if isinstance(answer, Joined):
            self.ids[name], self.generations[name] = answer.member_id, answer.generation_id
            members = ", ".join(f"{one[0]} {one[2].decode()}" for one in answer.members)
            skips = " skips" if answer.skips_assignment else ""
            identity = f"{answer.member_id} of {answer.leader_id}{skips}"
            return f"joined {answer.generation_id} {answer.protocol_name} as {identity} [{members}]"
        if isinstance(answer, Synced):
            return (
                answer.assignment.decode()
                if answer.assignment == b"ok"
                else f"synced {answer.protocol_name} '{answer.assignment.decode()}'"
            )
        return type(answer).__name__

    def _state(self) -> str:
        group = self.group
        due_ms = group.next_deadline_ms()
        due = "never" if due_ms == NEVER_MS else str(due_ms)
        members = " ".join(group.members.ids()) or "-"
        return f"{group.state.value} {group.generation_id} leader {group.leader_id} members {members} due {due}"


def play(text: str) -> str:
    """The scenario with the present effects."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {answer}" for answer in script.run(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    played = play(text)
    if os.environ.get("KAFKAWIRE_REWRITE") == "1":
        path.write_text(played)
    assert played == text
