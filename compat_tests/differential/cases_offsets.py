"""OffsetCommit, OffsetFetch and OffsetDelete, by members of groups and by clients that are in none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_groups import (
    JOIN,
    SYNC,
    assigned,
    enter,
    join,
    protocols,
    stable,
    subscription,
    sync,
)
from compat_tests.differential.catalogue import VERSIONS, case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

COMMIT = 9  # the newest that names topics
FETCH = 9
TOPIC = "offsets"
PARTITIONS = 3
UNKNOWN_ID = bytes(range(16))
Rows = list[dict[str, Any]]


def offset(partition: int, committed: int = 7, metadata: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": committed,
        "committed_metadata": metadata,
        "committed_leader_epoch": epoch,
    }


def topic(side: Side, *rows: dict[str, Any], name: str = TOPIC) -> dict[str, Any]:
    """A topic of a request, by its name and its id; the id of a topic that does not exist is unknown."""
    topic_id = side.create_topic(TOPIC, PARTITIONS) if name == TOPIC else UNKNOWN_ID
    return {"name": name, "topic_id": topic_id, "partitions": list(rows)}


def commit(side: Side, version: int, label: str, group: str, *topics: dict[str, Any], **more: Any) -> None:
    fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": list(topics),
    }
    side.ask("offset_commit", version, fields | more, label=label)


def as_member(member: str, generation: int, instance: str | None = None) -> dict[str, Any]:
    return {"member_id": member, "generation_id_or_member_epoch": generation, "group_instance_id": instance}


def wanted(side: Side, *partitions: int, name: str = TOPIC) -> dict[str, Any]:
    topic_id = side.create_topic(TOPIC, PARTITIONS) if name == TOPIC else UNKNOWN_ID
    return {"name": name, "topic_id": topic_id, "partition_indexes": list(partitions)}


def fetch(
    side: Side, version: int, label: str, group: str, topics: Rows | None, *more: tuple[str, Rows | None], **fields: Any
) -> None:
    """Fetch committed offsets. `more`: other groups, from version 8 on."""
    groups = [
        {"group_id": name, "member_id": None, "member_epoch": -1, "topics": rows, **fields}
        for name, rows in ((group, topics), *more)
    ]
    side.ask("offset_fetch", version, {"group_id": group, "topics": topics, "groups": groups, **fields}, label=label)


def all_of(side: Side, group: str, label: str = "what is committed") -> None:
    fetch(side, FETCH, label, group, None)


# OffsetCommit


@case("offset_commit")
def in_no_group(side: Side, version: int) -> None:
    """Commits by a client that assigns its partitions itself, or by an administrator."""
    group = f"simple-{version}"
    commit(side, version, "first", group, topic(side, offset(0), offset(1, 8, "text", 0), offset(2, 9, None, 5)))
    all_of(side, group)
    commit(side, version, "back", group, topic(side, offset(1, 3, "other")))
    commit(side, version, "odd offsets", group, topic(side, offset(0, -1), offset(2, 2**63 - 1, "", -2)))
    commit(side, version, "no partitions that there are", group, topic(side, offset(3), offset(-1)))
    commit(side, version, "no topics", group)
    all_of(side, group, "afterwards")


@case("offset_commit")
def partly_refused(side: Side, version: int) -> None:
    group = f"partly-{version}"
    nowhere = topic(side, offset(0), offset(1), name="offsets-nowhere")
    commit(side, version, "unknown topic", group, nowhere)
    commit(side, version, "unknown and known", group, nowhere, topic(side, offset(2), offset(0), offset(5)))
    commit(side, version, "named twice", group, topic(side, offset(1, 1)), topic(side, offset(1, 2)))
    for size in (4096, 4097):
        commit(side, version, f"{size} characters", group, topic(side, offset(0, 70), offset(1, 71, "x" * size)))
    all_of(side, group)


@case("offset_commit", since=10)
def commits_by_id(side: Side, version: int) -> None:
    group = f"commit-by-id-{version}"
    commit(side, version, "no id", group, {"topic_id": bytes(16), "partitions": [offset(0)]})
    commit(side, version, "unknown id", group, {"topic_id": UNKNOWN_ID, "partitions": [offset(0)]})
    commit(side, version, "known id", group, topic(side, offset(0)))


@case("offset_commit")
def claims_of_no_group(side: Side, version: int) -> None:
    row = topic(side, offset(0))
    commit(side, version, "no group id", "", row)
    fetch(side, FETCH, "of no group id", "", [wanted(side, 0)])
    commit(side, version, "a generation", f"claims-{version}-a", row, **as_member("", 0))
    commit(side, version, "a member and a generation", f"claims-{version}-b", row, **as_member("nobody", 3))
    commit(side, version, "a member", f"claims-{version}-c", row, **as_member("nobody", -1))
    commit(side, version, "generation -2", f"claims-{version}-d", row, **as_member("", -2))
    commit(side, version, "an instance", f"claims-{version}-e", row, **as_member("", -1, "mine"))
    for letter in "abcde":
        all_of(side, f"claims-{version}-{letter}", f"of {letter}")


@case("offset_commit")
def claims_of_a_group(side: Side, version: int) -> None:
    group = f"claims-{version}"
    row = topic(side, offset(0))
    member = enter(side, JOIN, "join", group)
    commit(side, version, "before the sync", group, row, **as_member(member, 1))
    commit(side, version, "before the sync, of no member", group, row)
    sync(side, SYNC, "sync", group, member, assignments=assigned(member))
    commit(side, version, "a member", group, row, **as_member(member, 1))
    for generation in (0, 2, -1):
        commit(side, version, f"generation {generation}", group, row, **as_member(member, generation))
    commit(side, version, "unknown member", group, row, **as_member("nobody", 1))
    commit(side, version, "no member, a generation", group, row, **as_member("", 1))
    commit(side, version, "nobody in particular", group, row)
    commit(side, version, "an instance", group, row, **as_member(member, 1, "mine"))
    told = join(side, JOIN, "somebody is told his id", group)["member_id"]
    commit(side, version, "who was told his id", group, row, **as_member(told, 1))
    all_of(side, group)


@case("offset_commit", since=7)
def static_claims(side: Side, version: int) -> None:
    group = f"static-claims-{version}"
    row = topic(side, offset(0))
    old = stable(side, "mine", group, group_instance_id="mine")
    commit(side, version, "mine", group, row, **as_member(old, 1, "mine"))
    new = join(side, JOIN, "the same again", group, group_instance_id="mine")["member_id"]
    commit(side, version, "fenced", group, row, **as_member(old, 1, "mine"))
    commit(side, version, "old id alone", group, row, **as_member(old, 1))
    commit(side, version, "new", group, row, **as_member(new, 1, "mine"))


@case("offset_commit", until=4)
def with_a_retention_time(side: Side, version: int) -> None:
    for retention_ms in (0, 1, 3_600_000, -2):
        group = f"retention-{version}-{retention_ms}"
        commit(side, version, f"for {retention_ms} ms", group, topic(side, offset(0)), retention_time=retention_ms)
        all_of(side, group, f"after {retention_ms} ms")


# OffsetFetch


@case("offset_fetch")
def fetched(side: Side, version: int) -> None:
    group = f"fetched-{version}"
    fetch(side, version, "no such group", group, [wanted(side, 0, 1)])
    commit(side, COMMIT, "commit", group, topic(side, offset(0, 5, "text", 3), offset(2, 6, None)))
    fetch(side, version, "some", group, [wanted(side, 2, 0)])
    fetch(side, version, "none of them", group, [wanted(side, 1, 9, -1), wanted(side, 0, name="offsets-nowhere")])
    fetch(side, version, "twice", group, [wanted(side, 0, 0)])
    fetch(side, version, "no partitions", group, [wanted(side)])
    fetch(side, version, "no topics", group, [])
    fetch(side, version, "no group id", "", [wanted(side, 1)])


@case("offset_fetch", since=2)
def all_fetched(side: Side, version: int) -> None:
    group = f"all-fetched-{version}"
    fetch(side, version, "no such group", group, None)
    commit(side, COMMIT, "commit", group, topic(side, offset(0), offset(2, 8, "text", 1)))
    fetch(side, version, "all", group, None)


@case("offset_fetch", since=2)
def all_of_a_member(side: Side, version: int) -> None:
    group = f"all-members-{version}"
    member = stable(side, "a member", group)
    commit(side, COMMIT, "commit", group, topic(side, offset(0)), **as_member(member, 1))
    fetch(side, version, "all", group, None)


@case("offset_fetch", since=7)
def only_stable_ones(side: Side, version: int) -> None:
    group = f"stable-{version}"
    commit(side, COMMIT, "commit", group, topic(side, offset(0)))
    fetch(side, version, "some", group, [wanted(side, 0, 1)], require_stable=True)
    fetch(side, version, "all", group, None, require_stable=True)


@case("offset_fetch", since=8)
def several_groups(side: Side, version: int) -> None:
    groups = [f"several-{version}-{letter}" for letter in "abc"]
    commit(side, COMMIT, "commit", groups[0], topic(side, offset(0)))
    commit(side, COMMIT, "commit other", groups[1], topic(side, offset(1, 8)))
    both = [wanted(side, 0, 1)]
    fetch(side, version, "three", groups[0], both, (groups[1], None), (groups[2], both))
    fetch(side, version, "one twice", groups[0], both, (groups[0], None))
    side.ask("offset_fetch", version, {"groups": []}, label="none")


@case("offset_fetch", since=9)
def of_members(side: Side, version: int) -> None:
    """A classic group does not check the member that asks for offsets."""
    group = f"fetch-members-{version}"
    commit(side, COMMIT, "commit", group, topic(side, offset(0)))
    for member, epoch in (("nobody", -1), ("nobody", 5), ("", 0), (None, 7)):
        who = {"member_id": member, "member_epoch": epoch}
        fetch(side, version, f"{member!r} at {epoch}", group, [wanted(side, 0)], **who)
        fetch(side, version, f"{member!r} at {epoch}, no such group", f"{group}-not", [wanted(side, 0)], **who)


@case("offset_fetch", since=10)
def fetched_by_id(side: Side, version: int) -> None:
    group = f"fetch-by-id-{version}"
    commit(side, COMMIT, "commit", group, topic(side, offset(0)))
    fetch(side, version, "no id", group, [{"topic_id": bytes(16), "partition_indexes": [0]}])
    fetch(side, version, "unknown and known", group, [wanted(side, 0, name="offsets-nowhere"), wanted(side, 0, 1)])


# OffsetDelete


def delete(side: Side, label: str, group: str, *partitions: int, name: str = TOPIC) -> None:
    rows = [{"partition_index": partition} for partition in partitions]
    (version,) = VERSIONS["offset_delete"]
    side.ask("offset_delete", version, {"group_id": group, "topics": [{"name": name, "partitions": rows}]}, label=label)


@case("offset_delete")
def deleted(side: Side, version: int) -> None:
    group = "delete-offsets"
    delete(side, "no group id", "", 0)
    delete(side, "no such group", group, 0)
    delete(side, "no such group, no such topic", group, 0, name="offsets-nowhere")
    commit(side, COMMIT, "commit", group, topic(side, offset(0), offset(1)))
    delete(side, "one, one that was not committed, one that there is not", group, 0, 2, 7)
    delete(side, "unknown topic", group, 0, name="offsets-nowhere")
    all_of(side, group)
    delete(side, "the last", group, 1)
    all_of(side, group, "nothing is left")
    side.ask("offset_delete", version, {"group_id": group, "topics": []}, label="no topics")
    side.ask("describe_groups", 6, {"groups": [group]}, label="the group")


@case("offset_delete")
def in_use(side: Side, version: int) -> None:
    side.create_topic("offsets-read")
    group = f"offsets-in-use-{version}"
    metadata = [{"name": "range", "metadata": subscription("offsets-read")}]
    member = stable(side, "a consumer", group, protocols=metadata)
    both = (topic(side, offset(0)), topic(side, offset(0), name="offsets-read"))
    commit(side, COMMIT, "commit", group, *both, **as_member(member, 1))
    delete(side, "of a topic it reads", group, 0, name="offsets-read")
    delete(side, "of another", group, 0)
    all_of(side, group)
    other = f"offsets-in-use-{version}-connect"
    connect = {"protocol_type": "connect", "protocols": protocols("range")}
    stable(side, "a worker", other, **connect)
    delete(side, "of a group that is no consumers'", other, 0)
    delete(side, "no such topic, of a group that is no consumers'", other, 0, name="offsets-nowhere")
