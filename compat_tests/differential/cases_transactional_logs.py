"""Logs with transactions: batches that producers may append, and batches that readers of each isolation level get."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_fetch import MIB, partition
from compat_tests.differential.cases_fetch import topic as fetched
from compat_tests.differential.cases_produce import SOME_VERSIONS, ends
from compat_tests.differential.cases_transactions import described, started
from compat_tests.differential.catalogue import case
from compat_tests.harness.batches import FIRST_MS, Batch

if TYPE_CHECKING:
    from compat_tests.differential.side import Side
    from compat_tests.differential.transactional import Producer

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def filled(side: Side, name: str) -> Producer:
    """Partition 0: committed, aborted, plain, committed of another, and an open one with a plain record behind it."""
    its, other = started(side, f"{name}-1", name), started(side, f"{name}-2", name)
    its.transact(name, b"committed")
    its.transact(name, b"aborted", is_commit=False)
    side.produce(name, Batch().encode())
    other.add({name: [0]})
    other.send(name)
    its.transact(name, b"aborted in between", is_commit=False)
    time.sleep(0.002)  # the markers have different times, so one of them is the newest record
    other.end()
    its.add({name: [0]})
    its.send(name)
    side.produce(name, Batch().encode())
    return its


def read(side: Side, version: int, label: str, name: str, isolation: int, offset: int = 0) -> None:
    request: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": MIB,
        "isolation_level": isolation,
        "session_epoch": -1,
        "topics": [fetched(side, name, partition(offset))],
    }
    side.ask("fetch", version, request, label=label)


@case("fetch")
def transactions(side: Side, version: int) -> None:
    name = f"fetch-transactions-{version}"
    its = filled(side, name)
    for label, isolation in ISOLATIONS.items():
        for offset in (0, 1, 3, 5, 8, 9, 10, 100):
            read(side, version, f"{label}, {offset}", name, isolation, offset)
    its.end(is_commit=False)
    for label, isolation in ISOLATIONS.items():
        read(side, version, f"{label}, when all is over", name, isolation)


@case("list_offsets", since=2)
def offsets_of_transactions(side: Side, version: int) -> None:
    name = f"list-transactions-{version}"
    its = filled(side, name)

    def ask(when: str) -> None:
        for label, isolation in ISOLATIONS.items():
            for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 0, FIRST_MS, FIRST_MS + 1):
                row = {"partition_index": 0, "timestamp": timestamp}
                request = {
                    "replica_id": -1,
                    "isolation_level": isolation,
                    "topics": [{"name": name, "partitions": [row]}],
                }
                side.ask("list_offsets", version, request, label=f"{when}, {label}, {timestamp}")

    ask("open")
    its.end(is_commit=False)
    ask("over")


@case("produce", SOME_VERSIONS)
def transactional_batches(side: Side, version: int) -> None:
    name = f"produce-transactions-{version}"
    its = started(side, name, name)
    its.add({name: [0]})
    its.send(name, version=version, label="the first")
    its.send(name, its.batch(name, values=(b"two", b"three")), version=version, label="two more")
    its.send(name, its.batch(name, base_sequence=1, values=(b"two", b"three")), version=version, label="a duplicate")
    its.send(name, its.batch(name, base_sequence=9), version=version, label="a gap")
    its.send(name, its.batch(name, base_sequence=3, ahead=-1), version=version, label="an older epoch")
    its.send(name, its.batch(name, attributes=0, base_sequence=3), version=version, label="not transactional")
    its.send(name, its.batch(name, base_sequence=3), version=version, label="without the id", name=None)
    its.send(name, its.batch(name, base_sequence=3), version=version, label="the fourth")
    its.end()
    its.add({name: [0]})
    its.send(name, its.batch(name, base_sequence=4), version=version, label="in the next transaction")
    its.end(is_commit=False)
    ends(side, name)


@case("produce", SOME_VERSIONS)
def batches_nobody_has_announced(side: Side, version: int) -> None:
    name = f"produce-unannounced-{version}"
    its = started(side, name, name)
    its.send(name, version=version, label="not added")
    its.add({name: [1]})
    its.send(name, version=version, label="another partition was added")
    its.end(is_commit=False)
    ends(side, name)


@case("describe_producers")
def producers_in_transactions(side: Side, version: int) -> None:
    name = f"producers-transactions-{version}"
    its = started(side, name, name)

    def ask(label: str) -> None:
        topics = [{"name": name, "partition_indexes": [0, 1]}]
        side.ask("describe_producers", version, {"topics": topics}, label=label)

    ask("nothing")
    its.add({name: [0, 1]})
    its.send(name)
    its.send(name)
    ask("open")
    its.end()
    ask("committed")
    its.transact(name, is_commit=False)
    ask("aborted")


@case("delete_records")
def records_of_an_open_transaction(side: Side, version: int) -> None:
    """DeleteRecords removes the first records of a transaction, which stays open."""
    name = f"delete-transactions-{version}"
    its = started(side, name, name)
    its.add({name: [0]})
    for _ in range(3):
        its.send(name)
    rows = [{"partition_index": 0, "offset": 2}]
    request = {"topics": [{"name": name, "partitions": rows}], "timeout": 10_000}
    side.ask("delete_records", version, request, label="two of three")
    for label, isolation in ISOLATIONS.items():
        row = {"partition_index": 0, "timestamp": LATEST}
        asked = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": name, "partitions": [row]}]}
        side.ask("list_offsets", 5, asked, label=f"end, {label}")
        read(side, 11, f"log, {label}", name, isolation, 2)
    its.end(is_commit=False)
    read(side, 11, "log, after the end", name, READ_COMMITTED, 2)


# Administrators


def markers(name: str, numbers: list[int], identity: tuple[int, int], **more: Any) -> dict[str, Any]:
    producer_id, epoch = identity
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": name, "partition_indexes": numbers}],
        **more,
    }


@case("write_txn_markers")
def markers_by_hand(side: Side, version: int) -> None:
    name = f"markers-{version}"
    its = started(side, name, name)
    its.initialise()
    its.add({name: [0, 1]})
    its.send(name)
    producer_id, epoch = its.identity

    def write(label: str, *asked: dict[str, Any]) -> None:
        side.ask("write_txn_markers", version, {"markers": list(asked)}, label=label)

    write("none")
    write("an older epoch", markers(name, [0], (producer_id, epoch - 1)))
    write("a negative epoch", markers(name, [0], (producer_id, -1)))
    write("unknown partitions", markers(name, [2, -1], its.identity), markers("nowhere", [0], (producer_id + 1, 0)))
    write("abort", markers(name, [0, 1], its.identity))
    write("abort again", markers(name, [0], its.identity))
    write("commit now", markers(name, [0], its.identity, transaction_result=True))
    write("an older coordinator", markers(name, [0], its.identity, coordinator_epoch=-1))
    ends(side, name)
    its.end(is_commit=False)
    ends(side, name, "the end")


@case("describe_transactions")
def descriptions(side: Side, version: int) -> None:
    name = f"describe-{version}"
    its = started(side, name, name)
    described(side, name, f"{name}-unknown", "", label="new, unknown, none")
    its.add({name: [1, 0]})
    described(side, name, label="open")
    its.end()
    described(side, name, label="over")
    described(side, label="nothing")


@case("list_transactions")
def lists(side: Side, version: int) -> None:
    prefix = f"listed-{version}"
    names = [f"{prefix}-{each}" for each in ("empty", "open", "committed", "aborted")]
    _, open_one, committed, aborted = [started(side, name, prefix) for name in names]
    open_one.add({prefix: [0]})
    committed.transact(prefix)
    aborted.transact(prefix, is_commit=False)

    def ask(label: str, **filters: Any) -> None:
        fields: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
        if version >= 1:
            fields |= {"duration_filter": -1}
        if version >= 2:
            fields |= {"transactional_id_pattern": f"{prefix}-.*"}
        side.ask("list_transactions", version, fields | filters, label=label)

    ask("all")
    ask("states", state_filters=["Ongoing", "Empty", "CompleteAbort"])
    ask("unknown states", state_filters=["ongoing", "Gone", ""])
    ask("one unknown state", state_filters=["Ongoing", "Gone"])
    ask("a producer", producer_id_filters=[open_one.identity[0]])
    ask("an unknown producer", producer_id_filters=[-1, 10**9])
    if version >= 1:
        ask("for an hour", duration_filter=3_600_000)
        ask("for no time", duration_filter=0)
    if version >= 2:
        for pattern in (f"{prefix}-(open|empty)", prefix, "(", "", None, f"(?i){prefix.upper()}-OPEN", r"\p{L}+"):
            ask(f"like {pattern}", transactional_id_pattern=pattern, state_filters=["Ongoing", "Empty"])
    open_one.end(is_commit=False)


@case("offset_for_leader_epoch")
def epochs_of_transactions(side: Side, version: int) -> None:
    """The end of an epoch does not depend on open transactions."""
    name = f"epochs-transactions-{version}"
    filled(side, name).end()
    rows = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    request = {"replica_id": -2, "topics": [{"topic": name, "partitions": rows}]}
    side.ask("offset_for_leader_epoch", version, request)


@case("find_coordinator", since=1)
def of_transactions(side: Side, version: int) -> None:
    for key in ("transactional", ""):
        request = {"key": key, "key_type": 1, "coordinator_keys": [key, f"{key}-other"]}
        side.ask("find_coordinator", version, request, label=f"of {key!r}")
