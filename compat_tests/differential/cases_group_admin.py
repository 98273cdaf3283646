"""ListGroups, DescribeGroups and DeleteGroups: answers to administrators, and permitted operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.cases_groups import (
    JOIN,
    LEAVE,
    SYNC,
    assigned,
    enter,
    join,
    leave,
    protocols,
    sync,
    wait_for_state,
)
from compat_tests.differential.cases_offsets import COMMIT, commit, offset, topic
from compat_tests.differential.catalogue import VERSIONS, case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

DELETE = VERSIONS["delete_groups"][-1]


def list_groups(side: Side, version: int, label: str, *states: str, types: tuple[str, ...] = ()) -> None:
    side.ask("list_groups", version, {"states_filter": list(states), "types_filter": list(types)}, label=label)


@case("list_groups")
def listed(side: Side, version: int) -> None:
    """Listings of groups; each group is deleted afterwards."""
    list_groups(side, version, "none")
    commit(side, COMMIT, "an empty group", "listed-empty", topic(side, offset(0)))
    connect = {"protocol_type": "connect", "protocols": protocols("sessioned")}
    worker = enter(side, JOIN, "a worker", "listed-worker", **connect)
    member = enter(side, JOIN, "a consumer", "listed-consumer")
    sync(side, SYNC, "the consumer is assigned", "listed-consumer", member, assignments=assigned(member))
    list_groups(side, version, "all")
    if version >= 4:
        for states in (("Stable",), ("stable", "EMPTY"), ("CompletingRebalance",), (" Empty ",), ("Asleep",), ("",)):
            list_groups(side, version, f"in states {states}", *states)
    if version >= 5:
        for types in (("classic",), ("CLASSIC",), ("consumer",), ("share", "classic"), ("odd",), (" classic",)):
            list_groups(side, version, f"of types {types}", types=types)
        list_groups(side, version, "empty and classic", "Empty", types=("Classic",))
    leave(side, LEAVE, "the worker leaves", "listed-worker", (worker, None))
    leave(side, LEAVE, "the consumer leaves", "listed-consumer", (member, None))
    list_groups(side, version, "nobody is left")
    names = ["listed-empty", "listed-worker", "listed-consumer"]
    side.ask("delete_groups", DELETE, {"groups_names": names}, label="delete")
    list_groups(side, version, "nothing is left")


def describe(side: Side, version: int, label: str, *groups: str, operations: bool = False) -> None:
    fields = {"groups": list(groups), "include_authorized_operations": operations}
    side.ask("describe_groups", version, fields, label=label)


@case("describe_groups")
def described(side: Side, version: int) -> None:
    group = f"described-{version}"
    describe(side, version, "none")
    describe(side, version, "no such group", group)
    describe(side, version, "no such group, and what may be done with it", group, operations=True)
    describe(side, version, "no group id", "")
    commit(side, COMMIT, "commit", group, topic(side, offset(0)))
    describe(side, version, "empty", group, operations=True)
    member = enter(side, JOIN, "join", group, group_instance_id="mine")
    describe(side, version, "before the sync", group)
    sync(side, SYNC, "sync", group, member, group_instance_id="mine", assignments=assigned(member))
    describe(side, version, "stable", group)
    describe(side, version, "several, one twice", group, f"{group}-not", group, operations=True)
    join(side, JOIN, "somebody is told his id", group)
    describe(side, version, "who was told his id is no member", group)
    leave(side, LEAVE, "leave", group, (member, "mine"))
    wait_for_state(side, group, "Empty")  # Apache Kafka may be on its way there
    describe(side, version, "nobody is left", group)


@case("delete_groups")
def deleted_groups(side: Side, version: int) -> None:
    group = f"deleted-{version}"
    row = topic(side, offset(0))

    def delete(label: str, *groups: str) -> None:
        side.ask("delete_groups", version, {"groups_names": list(groups)}, label=label)

    delete("none")
    delete("no such group", group)
    delete("no group id", f"no-{group}", "")
    commit(side, COMMIT, "commit", group, row)
    delete("one twice, and one that there is not", group, f"{group}-not", group)
    side.ask("offset_fetch", 9, {"groups": [{"group_id": group, "topics": None}]}, label="its offsets")
    delete("again", group)
    member = enter(side, JOIN, "join", group)
    delete("it has a member", group)
    leave(side, LEAVE, "leave", group, (member, None))
    delete("it had a member", group)
    describe(side, 6, "gone", group)
    join(side, JOIN, "somebody is told his id", f"{group}-told")
    delete("somebody was told his id", f"{group}-told")
