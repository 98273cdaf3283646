"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: answers to members of a group.

Each scenario has groups of its own. Its own API is played in every version, the others in their newest.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import VERSIONS, case
from compat_tests.differential.side import READY_TIMEOUT_S

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

SYNC = VERSIONS["sync_group"][-1]
HEARTBEAT = VERSIONS["heartbeat"][-1]
LEAVE = VERSIONS["leave_group"][-1]
DESCRIBE = VERSIONS["describe_groups"][-1]
JOIN = VERSIONS["join_group"][-1]
FIRST_JOIN_WITH_ID_REQUIRED = 4
REBALANCE_IN_PROGRESS = 27


def subscription(*topics: str, more: str = "") -> bytes:
    """The metadata of a consumer (ConsumerProtocolSubscription, version 0)."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(more)) + more.encode()


def protocols(*names: str, more: str = "") -> list[dict[str, Any]]:
    """The protocols of a JoinGroup of a consumer with one topic."""
    return [{"name": name, "metadata": subscription("some", more=more + name)} for name in names]


def join_fields(group: str, member: str = "", **more: Any) -> dict[str, Any]:
    """The fields of a JoinGroup, as a consumer sends it."""
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
        "reason": None,
        **more,
    }


def join(side: Side, version: int, label: str, group: str, member: str = "", **more: Any) -> dict[str, Any]:
    return side.ask("join_group", version, join_fields(group, member, **more), label=label)


def enter(side: Side, version: int, label: str, group: str, **more: Any) -> str:
    """Let a new member join, and join again with its id where it has to. Returns its id. The group must have no other
    member."""
    reply = join(side, version, label, group, **more)
    member: str = reply["member_id"]
    if version >= FIRST_JOIN_WITH_ID_REQUIRED and more.get("group_instance_id") is None:
        join(side, version, f"{label}, with its id", group, member, **more)
    return member


def sync_fields(group: str, member: str, generation: int, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        **more,
    }


def sync(
    side: Side, version: int, label: str, group: str, member: str, generation: int = 1, **more: Any
) -> dict[str, Any]:
    return side.ask("sync_group", version, sync_fields(group, member, generation, **more), label=label)


def assigned(*members: str) -> list[dict[str, Any]]:
    return [{"member_id": member, "assignment": f"part {number}".encode()} for number, member in enumerate(members)]


def heartbeat(
    side: Side, version: int, label: str, group: str, member: str, generation: int = 1, instance: str | None = None
) -> None:
    side.ask("heartbeat", version, beat(group, member, generation, instance), label=label)


def beat(group: str, member: str, generation: int, instance: str | None = None) -> dict[str, Any]:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}


def leave(side: Side, version: int, label: str, group: str, *members: tuple[str, str | None]) -> None:
    rows = [{"member_id": member, "group_instance_id": instance, "reason": "so"} for member, instance in members]
    fields = {"group_id": group, "members": rows, "member_id": members[0][0] if members else ""}
    side.ask("leave_group", version, fields, label=label)


def wait_for_rebalance(side: Side, group: str, member: str, generation: int) -> None:
    """Wait until the broker has seen another member join over another connection: the group rebalances."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    fields = beat(group, member, generation)
    while side.quiet("heartbeat", HEARTBEAT, fields)["error_code"] != REBALANCE_IN_PROGRESS:
        assert time.monotonic() < deadline, f"{side.broker.name}: group {group} does not rebalance"
        time.sleep(0.01)


def wait_for_state(side: Side, group: str, state: str) -> None:
    """Wait until the group reaches a state by the passing of time."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while side.quiet("describe_groups", DESCRIBE, {"groups": [group]})["groups"][0]["group_state"] != state:
        assert time.monotonic() < deadline, f"{side.broker.name}: group {group} does not become {state}"
        time.sleep(0.05)


def stable(side: Side, label: str, group: str, **more: Any) -> str:
    """Make a group of one member, in its first generation. Returns the member's id."""
    member = enter(side, JOIN, f"{label}: join", group, **more)
    sync(side, SYNC, f"{label}: sync", group, member, assignments=assigned(member), **instance_of(more))
    return member


def instance_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("group_instance_id", "protocol_type") if name in fields}


# JoinGroup


@case("join_group")
def alone(side: Side, version: int) -> None:
    """The whole life of a group with one member, and its return."""
    group = f"alone-{version}"
    member = enter(side, version, "join", group)
    sync(side, SYNC, "sync", group, member, assignments=assigned(member))
    heartbeat(side, HEARTBEAT, "heartbeat", group, member)
    join(side, version, "the leader joins again", group, member)
    heartbeat(side, HEARTBEAT, "of the generation before", group, member)
    sync(side, SYNC, "sync again", group, member, 2, assignments=[])
    leave(side, LEAVE, "leave", group, (member, None))
    heartbeat(side, HEARTBEAT, "gone", group, member, 2)
    join(side, version, "back with the old id", group, member)
    enter(side, version, "back", group)


@case("join_group")
def refused(side: Side, version: int) -> None:
    join(side, version, "no group id", "")
    for timeout_ms in (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001, 2**31 - 1):
        group = f"timeout-{version}-{timeout_ms}"
        join(side, version, f"session time-out {timeout_ms}", group, "nobody", session_timeout=timeout_ms)
    group = f"refused-{version}"
    join(side, version, "no such group", group, "nobody")
    join(side, version, "no protocols", group, protocols=[])
    join(side, version, "no protocol type", group, protocol_type="")
    join(side, version, "no protocols, no such group", group, "nobody", protocols=[])
    member = enter(side, version, "join", group)
    join(side, version, "another protocol type", group, protocol_type="connect")
    join(side, version, "another protocol", group, protocols=protocols("sticky"))
    join(side, version, "known, with another protocol type", group, member, protocol_type="connect")
    join(side, version, "known, with no protocols", group, member, protocols=[])
    join(side, version, "unknown member", group, "nobody")
    join(side, version, "unknown member with a bad time-out", group, "nobody", session_timeout=1)


@case("join_group")
def two_members(side: Side, version: int) -> None:
    group = f"two-{version}"
    one = enter(side, version, "one joins", group, protocols=protocols("range", "sticky"))
    two = ""
    with side.on("two"):
        if version >= FIRST_JOIN_WITH_ID_REQUIRED:
            two = join(side, version, "two is told its id", group, protocols=protocols("sticky"))["member_id"]
        side.send("join_group", version, join_fields(group, two, protocols=protocols("sticky")))
    wait_for_rebalance(side, group, one, 1)
    heartbeat(side, HEARTBEAT, "one is told", group, one)
    sync(side, SYNC, "one is late", group, one)
    reply = join(side, version, "one joins again", group, one, protocols=protocols("range", "sticky"))
    with side.on("two"):
        two = side.read("join_group", version, label="two has joined")["member_id"]
        side.send("sync_group", SYNC, sync_fields(group, two, 2, protocol_name="sticky"))
    generation = reply["generation_id"]
    sync(side, SYNC, "one assigns", group, one, generation, protocol_name="sticky", assignments=assigned(one, two))
    with side.on("two"):
        side.read("sync_group", SYNC, label="two is assigned")
        join(side, version, "two asks again", group, two, protocols=protocols("sticky"))
        leave(side, LEAVE, "two leaves", group, (two, None))
    heartbeat(side, HEARTBEAT, "one is told that two left", group, one, 2)
    join(side, version, "one is alone", group, one, protocols=protocols("range", "sticky"))


@case("join_group", since=5)
def static_members(side: Side, version: int) -> None:
    group = f"static-{version}"
    mine: dict[str, Any] = {"group_instance_id": "mine"}
    old = enter(side, version, "join", group, **mine)
    sync(side, SYNC, "sync", group, old, assignments=assigned(old), **mine)
    new = join(side, version, "the same again", group, **mine)["member_id"]
    heartbeat(side, HEARTBEAT, "fenced", group, old, 1, "mine")
    heartbeat(side, HEARTBEAT, "old id alone", group, old, 1)
    heartbeat(side, HEARTBEAT, "new", group, new, 1, "mine")
    heartbeat(side, HEARTBEAT, "not known by another name", group, new, 1, "other")
    sync(side, SYNC, "fenced sync", group, old, **mine)
    sync(side, SYNC, "new sync", group, new, **mine)
    join(side, version, "fenced join", group, old, **mine)
    join(side, version, "joins by another name", group, new, group_instance_id="other")
    join(side, version, "another protocol", group, protocols=protocols("sticky"), **mine)
    leave(side, LEAVE, "fenced leave", group, (old, "mine"))
    leave(side, LEAVE, "by name alone", group, ("", "mine"))
    leave(side, LEAVE, "once more", group, ("", "mine"))
    enter(side, version, "back", group, **mine)


@case("join_group", since=5)
def names_of_instances(side: Side, version: int) -> None:
    """Names of static members: clients check them; brokers do not."""
    for number, instance in enumerate(("", ".", "a b", "x" * 300, "ünï")):
        group = f"instances-{version}-{number}"
        join(side, version, f"instance {instance[:9]!r}", group, group_instance_id=instance)


@case("join_group")
def new_metadata(side: Side, version: int) -> None:
    """A leader may always join again; another member may do so with new metadata."""
    group = f"new-metadata-{version}"
    member = enter(side, version, "join", group)
    join(side, version, "the same before it synced", group, member)
    join(side, version, "something new before it synced", group, member, protocols=protocols("range", more="new"))
    sync(side, SYNC, "sync", group, member, 2, assignments=assigned(member))
    join(side, version, "other protocols", group, member, protocols=protocols("sticky", "range"))


@case("join_group")
def other_protocol_types(side: Side, version: int) -> None:
    group = f"connect-{version}"
    connect = {"protocol_type": "connect", "protocols": protocols("sessioned", "compatible")}
    member = enter(side, version, "join", group, **connect)
    fields: dict[str, Any] = {"protocol_type": "connect", "protocol_name": "sessioned"}
    sync(side, SYNC, "sync", group, member, assignments=assigned(member), **fields)


@case("join_group", (JOIN,))
def metadata_that_is_none(side: Side, version: int) -> None:
    """Metadata that are no subscriptions. They are for the consumers; the broker reads them only to know the topics."""
    for metadata in (b"", b"m", struct.pack(">hi", 9, 0), b"metadata"):
        shown = metadata.hex() or "none"
        enter(side, version, f"metadata {shown}", f"odd-{shown}", protocols=[{"name": "range", "metadata": metadata}])


@case("join_group", (JOIN,))
def who_does_not_join_again(side: Side, version: int) -> None:
    """A member that does not rejoin is removed when the rebalance timeout has passed; a static member stays until its
    session ends."""
    for group, instance in (("slow", None), ("slow-static", "mine")):
        timeouts: dict[str, Any] = {"rebalance_timeout": 3_000}
        one = stable(side, f"{group}: one", group, group_instance_id=instance, **timeouts)
        with side.on(group):
            two = join(side, version, f"{group}: two is told its id", group, **timeouts)["member_id"]
            join(side, version, f"{group}: two joins", group, two, **timeouts)
            heartbeat(side, HEARTBEAT, f"{group}: two", group, two, 2)
        heartbeat(side, HEARTBEAT, f"{group}: one", group, one, 2, instance)
        heartbeat(side, HEARTBEAT, f"{group}: one of the generation before", group, one, 1, instance)


@case("join_group", (JOIN,))
def who_does_not_sync(side: Side, version: int) -> None:
    member = enter(side, version, "join", "unsynced", rebalance_timeout=1_000)
    wait_for_state(side, "unsynced", "Empty")
    heartbeat(side, HEARTBEAT, "is out", "unsynced", member)


@case("join_group", (JOIN,))
def who_is_silent(side: Side, version: int) -> None:
    """A silent member is removed at the end of its session, and so is a member that was told its id and did not come
    back."""
    told = join(side, version, "told his id", "silent-told", session_timeout=6_000)["member_id"]
    member = stable(side, "a member", "silent", session_timeout=6_000)
    wait_for_state(side, "silent", "Empty")
    heartbeat(side, HEARTBEAT, "is out", "silent", member)
    join(side, version, "comes too late", "silent-told", told)


# SyncGroup


@case("sync_group")
def synced(side: Side, version: int) -> None:
    group = f"synced-{version}"
    member = enter(side, JOIN, "join", group)
    sync(side, version, "assigns nobody", group, member, assignments=assigned("nobody"))
    sync(side, version, "again", group, member, assignments=assigned(member))
    join(side, JOIN, "join again", group, member)
    sync(side, version, "assigns twice", group, member, 2, assignments=[*assigned("x", member), *assigned(member)])


@case("sync_group")
def sync_refused(side: Side, version: int) -> None:
    sync(side, version, "no group id", "", "nobody")
    sync(side, version, "no such group", f"no-sync-{version}", "nobody")
    group = f"sync-refused-{version}"
    member = enter(side, JOIN, "join", group)
    for label, more in (
        ("another protocol type", {"protocol_type": "connect"}),
        ("another protocol", {"protocol_name": "sticky"}),
        ("no protocol type", {"protocol_type": None}),
        ("no protocol", {"protocol_name": None}),
        ("another instance", {"group_instance_id": "other"}),
    ):
        sync(side, version, label, group, member, **more)
    sync(side, version, "unknown member", group, "nobody")
    sync(side, version, "no member", group, "")
    for generation in (0, 2, -1):
        sync(side, version, f"generation {generation}", group, member, generation)
    leave(side, LEAVE, "leave", group, (member, None))
    sync(side, version, "nobody is left", group, member)


# Heartbeat


@case("heartbeat")
def heartbeats(side: Side, version: int) -> None:
    heartbeat(side, version, "no group id", "", "nobody")
    heartbeat(side, version, "no such group", f"no-heartbeat-{version}", "nobody")
    group = f"heartbeats-{version}"
    member = enter(side, JOIN, "join", group)
    heartbeat(side, version, "before the sync", group, member)
    sync(side, SYNC, "sync", group, member, assignments=assigned(member))
    heartbeat(side, version, "after the sync", group, member)
    for generation in (0, 2, -1):
        heartbeat(side, version, f"generation {generation}", group, member, generation)
    heartbeat(side, version, "unknown member", group, "nobody")
    heartbeat(side, version, "unknown member of another generation", group, "nobody", 7)
    heartbeat(side, version, "no member", group, "")
    heartbeat(side, version, "an instance that there is not", group, member, 1, "other")
    told = join(side, JOIN, "somebody is told his id", group)["member_id"]
    heartbeat(side, version, "who was told his id", group, told)
    leave(side, LEAVE, "leave", group, (member, None), (told, None))
    heartbeat(side, version, "nobody is left", group, member)


# LeaveGroup


@case("leave_group")
def leaving(side: Side, version: int) -> None:
    leave(side, version, "no group id", "", ("nobody", None))
    leave(side, version, "no such group", f"no-leave-{version}", ("nobody", None))
    group = f"leaving-{version}"
    member = stable(side, "a member", group)
    leave(side, version, "unknown member", group, ("nobody", None))
    leave(side, version, "no member id", group, ("", None))
    leave(side, version, "leave", group, (member, None))
    leave(side, version, "again", group, (member, None))
    told = join(side, JOIN, "somebody is told his id", group)["member_id"]
    leave(side, version, "before he joined", group, (told, None))
    join(side, JOIN, "he comes all the same", group, told)


@case("leave_group", since=3)
def several_leave(side: Side, version: int) -> None:
    group = f"several-leave-{version}"
    leave(side, version, "none, and no such group", group)
    leave(side, version, "two, and no such group", group, ("nobody", None), ("", "mine"))
    member = stable(side, "a member", group, group_instance_id="mine")
    leave(side, version, "none", group)
    leave(side, version, "wrong ones", group, ("nobody", None), ("", "other"), ("nobody", "mine"), (member, "other"))
    leave(side, version, "one right, twice", group, (member, "mine"), (member, "mine"), ("", "mine"))
    heartbeat(side, HEARTBEAT, "gone", group, member)
