"""The plan that a seed makes for groups: the groups, their clients, and their time-outs. Pure.

It has a random source of its own, so that topics and faults of a seed stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kafkawire.tests.simulation.plan import Target, TopicPlan

SHARE_WITHOUT_GROUPS = 0.1
PACE = 5.0


@dataclass(frozen=True)
class MemberPlan:
    """A member process. Two may have the same instance: the later one fences the other (KIP-345)."""

    name: str
    instance_id: str | None = None


@dataclass(frozen=True)
class GroupPlan:
    """A group whose members share the targets, or a group without members, which simple committers use.

    `is_volatile`: the administrator deletes it, or offsets of it.
    """

    name: str
    targets: tuple[Target, ...]
    members: tuple[MemberPlan, ...] = ()
    committers: int = 0
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    is_volatile: bool = False
    retention_ms: int | None = None  # of some commits


@dataclass(frozen=True)
class GroupsPlan:
    """All groups of a run, and the broker's properties for them."""

    groups: tuple[GroupPlan, ...]
    properties: dict[str, str]
    loses_views: float  # the probability that a start finds no cache of coordinator state
    pace: float = 1.0  # how much slower producers and consumers are: members need time to come and go


def plan_groups(seed: int, topics: list[TopicPlan]) -> GroupsPlan:
    """The plan of groups; most seeds have groups."""
    rng = Random(f"{seed}/groups")
    if rng.random() < SHARE_WITHOUT_GROUPS:
        return GroupsPlan((), {}, 0.0)
    targets = tuple(
        Target(topic.name, one) for topic in topics if not topic.is_volatile for one in range(topic.partition_count)
    )
    expires = rng.random() < 0.3
    groups = [_with_members(rng, number, targets) for number in range(rng.choice((1, 1, 2)))]
    groups.append(GroupPlan("simple", targets[:3], committers=rng.randint(1, 3)))
    volatile = GroupPlan(
        "volatile",
        targets[:2],
        committers=rng.randint(1, 2),
        is_volatile=True,
        retention_ms=rng.choice((100, 1000, 3000)) if expires else None,
    )
    groups.append(volatile)
    properties = {
        "offsets.topic.num.partitions": str(rng.choice((1, 2, 3))),
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 100, 500))),
        "offsets.view.mode": rng.choice(("cached", "direct")),
        "offsets.view.flush.interval.ms": str(rng.choice((1, 100, 1000))),
    }
    if expires:
        properties["offsets.retention.check.interval.ms"] = str(rng.choice((200, 1000)))
    return GroupsPlan(tuple(groups), properties, rng.choice((0.0, 0.2, 0.5)), pace=PACE)


def _with_members(rng: Random, number: int, targets: tuple[Target, ...]) -> GroupPlan:
    name = f"group-{number}"
    members = [MemberPlan(f"{name}-member-{one}") for one in range(rng.randint(1, 3))]
    for one in range(rng.choice((0, 1, 1, 2))):
        instance_id = f"{name}-instance-{one}"
        members += [MemberPlan(f"{instance_id}-process-{process}", instance_id) for process in range(rng.randint(1, 2))]
    return GroupPlan(
        name,
        targets,
        tuple(members),
        session_timeout_ms=rng.choice((500, 1000, 2000)),
        rebalance_timeout_ms=rng.choice((500, 1500, 3000)),
    )
