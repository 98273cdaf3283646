"""Transactions of the second protocol (KIP-890): implicitly added partitions, raised epochs, late requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_offsets import all_of, offset, topic
from compat_tests.differential.cases_produce import ends
from compat_tests.differential.cases_transactions import described, started
from compat_tests.differential.catalogue import case
from compat_tests.differential.transactional import NEW_COMMIT_OFFSETS, NEW_END, NEW_PRODUCE, Producer

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

SECOND_PROTOCOL = 2


def write(its: Producer, name: str, label: str = "write", *, version: int = NEW_PRODUCE, **more: Any) -> None:
    """Produce to partition 0 without adding it to the transaction first."""
    its.send(name, its.batch(name, **more), version=version, label=label)


def late(its: Producer, name: str, label: str, *, version: int = NEW_PRODUCE, **more: Any) -> None:
    """Send a batch that does not count in the producer's sequence."""
    records = Producer.batch(its, name, base_sequence=more.pop("base_sequence", 0), **more)
    its.send(name, records, version=version, label=label)
    its.forget(name)


# Produce


@case("produce", since=NEW_PRODUCE)
def partitions_that_are_written_to(side: Side, version: int) -> None:
    name = f"second-produce-{version}"
    its = started(side, name, name)
    write(its, name, "the first", version=version)
    described(side, name, label="one partition")
    write(its, name, "the next", version=version)
    its.send(name, partition=1, version=version, label="another partition")
    described(side, name, label="two partitions")
    its.end(version=NEW_END)
    described(side, name, label="committed")
    write(its, name, "in the next transaction", version=version)
    its.end(version=NEW_END, is_commit=False)
    described(side, name, label="aborted")
    ends(side, name)


@case("produce", since=NEW_PRODUCE)
def writes_that_are_refused(side: Side, version: int) -> None:
    name = f"second-refused-{version}"
    its = started(side, name, name)
    late(its, name, "an older epoch", version=version, ahead=-1)
    late(its, name, "a newer epoch", version=version, ahead=1)
    late(its, name, "another producer", version=version, producer_id=9_999)
    late(its, name, "sequence 3", version=version, base_sequence=3)
    records = its.batch(name)
    its.forget(name)
    its.send(name, records, version=version, label="an unknown id", name=f"{name}-unknown")
    its.send(name, records, version=version, label="an empty id", name="")
    its.send(name, records, version=version, label="no id", name=None)
    described(side, name)
    write(its, name, version=version)
    late(its, name, "not transactional", version=version, attributes=0, base_sequence=1)
    late(its, name, "a gap", version=version, base_sequence=9)
    its.end(version=NEW_END)
    ends(side, name)


@case("produce", since=NEW_PRODUCE)
def writes_that_are_late(side: Side, version: int) -> None:
    name = f"second-late-{version}"
    its = started(side, name, name)
    write(its, name, version=version)
    its.end(version=NEW_END)
    late(its, name, "after the end", version=version, ahead=-1, base_sequence=1)
    late(its, name, "a duplicate after the end", version=version, ahead=-1)
    its.send(name, its.batch(name, 1, ahead=-1), partition=1, version=version, label="to another partition")
    described(side, name)
    write(its, name, "the next", version=version)
    late(its, name, "after the next begin", version=version, ahead=-1, base_sequence=1)
    its.end(version=NEW_END)
    ends(side, name)


@case("produce", since=NEW_PRODUCE)
def writes_of_two_producers(side: Side, version: int) -> None:
    name = f"second-two-{version}"
    one, two = started(side, f"{name}-1", name), started(side, f"{name}-2")
    rows = [{"index": index, "records": its.batch(name, index)} for index, its in enumerate((one, two))]
    request = {
        "transactional_id": one.name,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": name, "topic_id": side.topic_id(name), "partition_data": rows}],
    }
    side.ask("produce", version, request, label="both")
    described(side, one.name, two.name)
    ends(side, name)


# EndTxn


@case("end_txn", since=NEW_END)
def ends_with_another_epoch(side: Side, version: int) -> None:
    name = f"second-end-{version}"
    its = started(side, name, name)
    its.end(version=version, label="commit of nothing")
    its.end(version=version, is_commit=False, label="abort of nothing")
    described(side, name, label="aborted nothing")
    for is_commit in (True, False):
        write(its, name)
        its.end(version=version, is_commit=is_commit, label=f"commit {is_commit}")
        described(side, name, label=f"after commit {is_commit}")
        its.end_again(version=version, is_commit=is_commit, label=f"commit {is_commit} again", ahead=-1)
        its.end_again(version=version, is_commit=not is_commit, label=f"commit {not is_commit} now", ahead=-1)
        its.end(version=version, label=f"commit of nothing after {is_commit}")
    its.end(version=version, is_commit=False, label="abort of nothing again")
    ends(side, name)


@case("end_txn", since=NEW_END)
def ends_that_are_refused(side: Side, version: int) -> None:
    name = f"second-end-refused-{version}"
    its = started(side, name, name)

    def ask(when: str) -> None:
        for is_commit in (True, False):
            asked: dict[str, Any] = {"is_commit": is_commit, "version": version}
            its.end_again(label=f"{when}: an older epoch, {is_commit}", ahead=-1, **asked)
            its.end_again(label=f"{when}: a much older epoch, {is_commit}", ahead=-2, **asked)
            its.end_again(label=f"{when}: a newer epoch, {is_commit}", ahead=1, **asked)
            its.end_again(label=f"{when}: another producer, {is_commit}", producer_id=9_999, **asked)
            its.end_again(label=f"{when}: an unknown id, {is_commit}", transactional_id=f"{name}-unknown", **asked)
            its.end_again(label=f"{when}: no id, {is_commit}", transactional_id="", **asked)

    ask("empty")
    write(its, name)
    ask("open")
    its.end(version=version)
    described(side, name)


@case("end_txn", since=NEW_END)
def ends_after_an_end_of_the_first_protocol(side: Side, version: int) -> None:
    """EndTxn with an epoch that ended with InitProducerId, not with EndTxn."""
    name = f"second-after-first-{version}"
    its = started(side, name, name)
    its.initialise(label="anew")
    for is_commit in (True, False):
        its.add({name: [0]})
        its.send(name)
        its.end(version=NEW_END - 1, is_commit=is_commit, label=f"commit {is_commit}")
        for asked in (True, False):
            its.end_again(version=version, is_commit=asked, label=f"commit {asked} after {is_commit}", ahead=-1)
    described(side, name)
    ends(side, name)


@case("end_txn")
def ends_in_the_other_protocol(side: Side, version: int) -> None:
    """Transactions that begin in one protocol and end in the other."""
    name = f"second-mixed-{version}"
    its = started(side, name, name)
    for is_commit in (True, False):
        if version >= NEW_END:
            its.add({name: [0]})
            its.send(name)
        else:
            write(its, name)
        its.end(version=version, is_commit=is_commit, label=f"commit {is_commit}")
        described(side, name, label=f"after commit {is_commit}")
    ends(side, name)


@case("init_producer_id")
def a_producer_that_begins_anew(side: Side, version: int) -> None:
    """InitProducerId with a transaction of the second protocol open, and after one."""
    name = f"second-init-{version}"
    its = started(side, name, name)
    write(its, name)
    another = Producer(side, name)
    another.initialise(version, "with one open")
    described(side, name, label="after the fence")
    late(its, name, "of who is fenced")
    its.end_again(is_commit=False, version=NEW_END, label="of who is fenced")
    write(another, name)
    another.end(version=NEW_END)
    another.initialise(version, "after one")
    described(side, name)
    ends(side, name)


@case("init_producer_id", since=3)
def a_producer_that_says_what_it_had(side: Side, version: int) -> None:
    name = f"second-had-{version}"
    its = started(side, name, name)
    write(its, name)
    before = its.identity
    its.end(version=NEW_END)
    for label, (producer_id, epoch) in (("before the end", before), ("now", its.identity)):
        its.initialise(version, label, producer_id=producer_id, producer_epoch=epoch)
    described(side, name)


# TxnOffsetCommit


@case("txn_offset_commit", since=NEW_COMMIT_OFFSETS)
def offsets_that_are_added(side: Side, version: int) -> None:
    name = f"second-offsets-{version}"
    its, group = started(side, name), f"group-{name}"
    for is_commit, committed in ((True, 5), (False, 7), (True, 3)):
        its.commit_offsets(group, [topic(side, offset(0, committed))], version, f"{committed}")
        described(side, name, label=f"open, {committed}")
        its.end(is_commit=is_commit, version=NEW_END)
        its.commit_offsets(group, [topic(side, offset(0, 99))], version, f"late, {committed}", ahead=-1)
        all_of(side, group, f"after {committed}")
    ends(side, "offsets")


@case("txn_offset_commit", since=NEW_COMMIT_OFFSETS)
def offsets_that_are_refused(side: Side, version: int) -> None:
    name = f"second-offsets-refused-{version}"
    its, group = started(side, name), f"group-{name}"
    row = topic(side, offset(0))
    its.commit_offsets(group, [row], version, "an older epoch", ahead=-1)
    its.commit_offsets(group, [row], version, "a newer epoch", ahead=1)
    its.commit_offsets(group, [row], version, "another producer", producer_id=9_999)
    its.commit_offsets(group, [row], version, "no producer", producer_id=-1)
    its.commit_offsets(group, [row], version, "an unknown id", transactional_id=f"{name}-unknown")
    its.commit_offsets(group, [row], version, "no id", transactional_id="")
    its.commit_offsets("", [row], version, "no group")
    its.commit_offsets(group, [], version, "nothing")
    its.commit_offsets(group, [row], version, "a generation", generation_id=3)
    described(side, name)
    its.end(is_commit=False, version=NEW_END)
    all_of(side, group)


@case("txn_offset_commit", until=NEW_COMMIT_OFFSETS - 1)
def offsets_nobody_has_announced(side: Side, version: int) -> None:
    name = f"offsets-unannounced-{version}"
    its, group = started(side, name, name), f"group-{name}"
    row = topic(side, offset(0))
    its.commit_offsets(group, [row], version, "nothing is open")
    its.add({name: [0]})
    its.commit_offsets(group, [row], version, "a partition alone was added")
    its.commit_offsets(group, [row], version, "a newer epoch", ahead=1)
    its.commit_offsets(group, [row], version, "another producer", producer_id=9_999)
    its.commit_offsets(group, [row], version, "an unknown id", transactional_id=f"{name}-unknown")
    its.commit_offsets(group, [row], version, "no id", transactional_id="")
    its.add_offsets(group)
    its.commit_offsets(group, [row], version, "added")
    its.end()
    its.commit_offsets(group, [row], version, "after the end")
    all_of(side, group)


# WriteTxnMarkers


@case("write_txn_markers", since=2)
def markers_with_an_epoch_of_their_own(side: Side, version: int) -> None:
    name = f"second-markers-{version}"
    its = started(side, name, name)
    its.initialise(label="another epoch")

    def mark(label: str, ahead: int, protocol: int = SECOND_PROTOCOL, *, is_commit: bool = False) -> None:
        producer_id, epoch = its.identity
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch + ahead,
            "transaction_result": is_commit,
            "topics": [{"name": name, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
            "transaction_version": protocol,
        }
        side.ask("write_txn_markers", version, {"markers": [marker]}, label=label)

    mark("of nothing", 0)
    mark("of nothing, again", 0)
    write(its, name)
    mark("in the epoch of what is open", 0)
    mark("in an older epoch", -1)
    mark("of the first protocol in an older epoch", -1, 0)
    mark("in the next epoch", 1)
    mark("in the next epoch, again", 1)
    late(its, name, "of the transaction that was ended", base_sequence=1)
    ends(side, name)
