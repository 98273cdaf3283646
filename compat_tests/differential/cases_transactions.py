"""Requests of transactional producers: the permitted order, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_offsets import FETCH, all_of, offset, topic, wanted
from compat_tests.differential.cases_offsets import fetch as fetch_offsets
from compat_tests.differential.cases_produce import ends
from compat_tests.differential.catalogue import case
from compat_tests.differential.transactional import Producer

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

MAX_TIMEOUT_MS = 900_000


def described(side: Side, *names: str, label: str = "described") -> None:
    side.ask("describe_transactions", 0, {"transactional_ids": list(names)}, label=label)


def started(side: Side, name: str, *topics: str) -> Producer:
    """A producer that has initialised, and topics of two partitions."""
    for each in topics:
        side.create_topic(each, 2)
    producer = Producer(side, name)
    producer.initialise()
    return producer


# InitProducerId


@case("init_producer_id")
def of_a_transactional_id(side: Side, version: int) -> None:
    its = Producer(side, f"init-{version}")
    its.initialise(version, "first")
    described(side, its.name)
    its.initialise(version, "again")
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, MAX_TIMEOUT_MS):
        its.initialise(version, f"time-out {timeout_ms}", transaction_timeout=timeout_ms)
    described(side, its.name)


@case("init_producer_id")
def while_a_transaction_is_open(side: Side, version: int) -> None:
    name = f"init-open-{version}"
    first = started(side, name, name)
    first.add({name: [0]})
    first.send(name)
    second = Producer(side, name)
    second.initialise(version, "another")
    first.add({name: [1]}, label="the first adds")
    first.send(name, label="the first sends")
    first.end(label="the first commits")
    first.end(is_commit=False, label="the first aborts")
    second.transact(name, label="the second")
    described(side, name)
    ends(side, name)


@case("init_producer_id", since=3)
def of_who_says_what_it_had(side: Side, version: int) -> None:
    its = Producer(side, f"init-had-{version}")
    its.initialise(version, "an unknown id", producer_id=4_711, producer_epoch=3)
    its.initialise(version, "first")
    producer_id, epoch = its.identity
    had = {"producer_id": producer_id, "producer_epoch": epoch}
    its.initialise(version, "current", **had)
    its.initialise(version, "last", **had)
    its.initialise(version, "nothing")
    its.initialise(version, "older", **had)
    its.initialise(version, "newer", producer_id=producer_id, producer_epoch=epoch + 100)
    its.initialise(version, "another id", producer_id=producer_id + 1_000, producer_epoch=epoch)
    its.initialise(version, "id alone", producer_id=producer_id)
    its.initialise(version, "epoch alone", producer_epoch=epoch)


@case("init_producer_id", since=3)
def of_who_goes_on_after_an_error(side: Side, version: int) -> None:
    """InitProducerId after an error, as Java's client sends it (KIP-360): the open transaction is aborted, the epoch
    raised."""
    name = f"init-on-{version}"
    its = started(side, name, name)
    its.add({name: [0]})
    its.send(name)
    producer_id, epoch = its.identity
    its.initialise(version, "goes on", producer_id=producer_id, producer_epoch=epoch)
    its.transact(name)
    ends(side, name)


# AddPartitionsToTxn


@case("add_partitions_to_txn", until=3)
def partitions(side: Side, version: int) -> None:
    one, two = f"add-{version}-one", f"add-{version}-two"
    its = started(side, f"add-{version}", one, two)
    its.add({one: [0]}, version, "the first")
    its.add({one: [0]}, version, "again")
    its.add({one: [1], two: [0, 1]}, version, "more")
    its.add({}, version, "nothing")
    its.add({one: []}, version, "no partitions")
    described(side, its.name)
    its.end()
    its.add({one: [0]}, version, "after the end")
    described(side, its.name, label="afterwards")
    its.end(is_commit=False)


@case("add_partitions_to_txn", until=3)
def additions_that_are_refused(side: Side, version: int) -> None:
    name = f"add-refused-{version}"
    its = started(side, name, name)
    its.add({name: [0], "nowhere": [0]}, version, "an unknown topic")
    its.add({name: [0, 2, -1]}, version, "unknown partitions")
    its.add({"__consumer_offsets": [0], name: [0]}, version, "an internal topic")
    its.add({name: [0]}, version, "an older epoch", ahead=-1)
    its.add({name: [0]}, version, "a newer epoch", ahead=1)
    its.add({name: [0]}, version, "another producer", producer_id=9_999)
    its.add({name: [0]}, version, "an unknown id", transactional_id=f"{name}-unknown")
    its.add({name: [0]}, version, "no id", transactional_id="")
    described(side, its.name, f"{name}-unknown")


@case("add_partitions_to_txn", since=4)
def for_many_transactions(side: Side, version: int) -> None:
    name = f"add-many-{version}"
    one, two = started(side, f"{name}-1", name), started(side, f"{name}-2", name)

    def ask(label: str, *asked: tuple[Producer, dict[str, list[int]], bool], **more: Any) -> None:
        transactions = [
            {
                "transactional_id": its.name,
                "producer_id": its.identity[0],
                "producer_epoch": its.identity[1],
                "verify_only": verify_only,
                "topics": [{"name": topic, "partitions": numbers} for topic, numbers in partitions.items()],
                **more,
            }
            for its, partitions, verify_only in asked
        ]
        side.ask_until_over("add_partitions_to_txn", version, {"transactions": transactions}, label=label)

    ask("nothing")
    ask("two", (one, {name: [0]}, False), (two, {name: [0, 1]}, False))
    ask("verify", (one, {name: [0, 1]}, True), (two, {name: [1]}, True))
    ask("verify an unknown topic", (one, {name: [0], "nowhere": [0]}, True))
    ask("verify an older epoch", (one, {name: [0]}, True), producer_epoch=-1)
    ask("verify another producer", (one, {name: [0]}, True), producer_id=9_999)
    ask("verify an unknown id", (one, {name: [0]}, True), transactional_id=f"{name}-unknown")
    one.end()
    ask("verify after the end", (one, {name: [0]}, True))
    two.end(is_commit=False)


# AddOffsetsToTxn and TxnOffsetCommit


@case("add_offsets_to_txn")
def additions_of_offsets(side: Side, version: int) -> None:
    its = started(side, f"add-offsets-{version}")
    group = f"group-{its.name}"
    its.add_offsets(group, version, "the first")
    its.add_offsets(group, version, "again")
    described(side, its.name)
    its.add_offsets("", version, "no group")
    its.add_offsets(group, version, "an older epoch", ahead=-1)
    its.add_offsets(group, version, "a newer epoch", ahead=1)
    its.add_offsets(group, version, "another producer", producer_id=9_999)
    its.add_offsets(group, version, "an unknown id", transactional_id=f"{group}-unknown")
    its.add_offsets(group, version, "no id", transactional_id="")
    its.end()
    described(side, its.name, label="afterwards")


@case("txn_offset_commit")
def offsets_of_transactions(side: Side, version: int) -> None:
    its = started(side, f"offsets-{version}")
    group = f"group-{its.name}"
    for is_commit, committed in ((True, 5), (False, 7), (True, 3)):
        its.add_offsets(group)
        rows = [topic(side, offset(0, committed, "x", 0), offset(1, committed, None))]
        its.commit_offsets(group, rows, version, f"{committed}")
        fetch_offsets(side, FETCH, "while it is open", group, [wanted(side, 0, 2)])
        for require_stable in (False, True):
            request = {"group_id": group, "topics": [wanted(side, 0, 2)], "require_stable": require_stable}
            side.ask("offset_fetch", 7, request, label=f"while it is open, stable {require_stable}")
        its.end(is_commit=is_commit)
        all_of(side, group, f"after {committed}")


@case("txn_offset_commit")
def offsets_that_are_refused(side: Side, version: int) -> None:
    its = started(side, f"offsets-refused-{version}")
    group = f"group-{its.name}"
    its.add_offsets(group)
    row = topic(side, offset(0))
    nowhere = topic(side, offset(0), name="offsets-nowhere")
    its.commit_offsets(group, [nowhere], version, "an unknown topic")
    its.commit_offsets(group, [nowhere, topic(side, offset(0), offset(9), offset(-1))], version, "some unknown")
    its.commit_offsets(group, [topic(side, offset(0, metadata="x" * 4097), offset(1))], version, "too much text")
    its.commit_offsets(group, [], version, "nothing")
    its.commit_offsets("", [row], version, "no group")
    its.commit_offsets(group, [row], version, "an older epoch", ahead=-1)
    its.end()
    all_of(side, group)


@case("txn_offset_commit", since=3)
def offsets_of_members(side: Side, version: int) -> None:
    its = started(side, f"offsets-members-{version}")
    group = f"group-{its.name}"
    its.add_offsets(group)
    row = topic(side, offset(0))
    claims: dict[str, dict[str, Any]] = {
        "a generation": {"generation_id": 0},
        "a member": {"member_id": "nobody"},
        "a member and a generation": {"member_id": "nobody", "generation_id": 3},
        "an instance": {"group_instance_id": "mine"},
        "generation -2": {"generation_id": -2},
    }
    for label, claim in claims.items():
        its.commit_offsets(group, [row], version, label, **claim)
    its.end()
    all_of(side, group)


@case("txn_offset_commit")
def offsets_beside_others(side: Side, version: int) -> None:
    """Offsets committed without a transaction while one is open: the later commit counts."""
    its = started(side, f"offsets-beside-{version}")
    group = f"group-{its.name}"
    plain = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    its.add_offsets(group)
    its.commit_offsets(group, [topic(side, offset(0, 10), offset(1, 10))], version)
    side.ask("offset_commit", 9, {**plain, "topics": [topic(side, offset(0, 20))]}, label="plain, after")
    its.end()
    all_of(side, group)
    side.ask("offset_commit", 9, {**plain, "topics": [topic(side, offset(1, 30))]}, label="plain, before")
    its.add_offsets(group)
    its.commit_offsets(group, [topic(side, offset(1, 40))], version)
    deleted = {"name": "offsets", "partitions": [{"partition_index": 1}]}
    side.ask("offset_delete", 0, {"group_id": group, "topics": [deleted]}, label="deleted")
    its.end()
    all_of(side, group, "after a deletion")


@case("txn_offset_commit")
def offsets_of_a_group_that_is_deleted(side: Side, version: int) -> None:
    its = started(side, f"offsets-gone-{version}")
    group = f"group-{its.name}"
    its.add_offsets(group)
    its.commit_offsets(group, [topic(side, offset(0, 10))], version)
    side.ask("describe_groups", 4, {"groups": [group]}, label="described")
    side.ask("delete_groups", 2, {"groups_names": [group]}, label="deleted")
    its.end()
    all_of(side, group)


# EndTxn


@case("end_txn", until=4)
def ends_of_transactions(side: Side, version: int) -> None:
    name = f"end-{version}"
    its = started(side, name, name)
    for is_commit in (True, False):
        its.end(is_commit=is_commit, version=version, label=f"of none, commit {is_commit}")
    for is_commit in (True, False):
        its.add({name: [0]})
        its.send(name)
        its.end(is_commit=is_commit, version=version, label=f"commit {is_commit}")
        described(side, name, label=f"after commit {is_commit}")
        its.end(is_commit=is_commit, version=version, label=f"commit {is_commit} again")
        its.end(is_commit=not is_commit, version=version, label=f"commit {not is_commit} now")
    ends(side, name)


@case("end_txn", until=4)
def ends_without_partitions(side: Side, version: int) -> None:
    name = f"end-none-{version}"
    its = started(side, name, name)
    its.add({name: [0]})
    its.end(version=version)
    described(side, name)
    ends(side, name)


@case("end_txn", until=4)
def ends_that_are_refused(side: Side, version: int) -> None:
    name = f"end-refused-{version}"
    its = started(side, name, name)
    its.add({name: [0]})
    for is_commit in (True, False):
        asked: dict[str, Any] = {"is_commit": is_commit, "version": version}
        its.end(label=f"an older epoch, {is_commit}", ahead=-1, **asked)
        its.end(label=f"a newer epoch, {is_commit}", ahead=1, **asked)
        its.end(label=f"another producer, {is_commit}", producer_id=9_999, **asked)
        its.end(label=f"an unknown id, {is_commit}", transactional_id=f"{name}-unknown", **asked)
        its.end(label=f"no id, {is_commit}", transactional_id="", **asked)
    described(side, name)
    its.end(version=version)
