"""Fetch: offsets, limits, sessions, topic ids and epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case
from compat_tests.differential.compression import gzip_body
from compat_tests.harness.batches import Batch, Record

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

UNKNOWN_ID = bytes(range(16))
TOPIC, OTHER = "fetch-one", "fetch-two"
THREE = tuple(Record(value=value) for value in (b"one", b"two", b"three"))
MIB = 1 << 20


def filled(side: Side) -> None:
    """TOPIC: three batches of three records in partition 0, one batch in partition 1; OTHER: one batch."""
    if TOPIC in side.topics:
        return
    side.create_topic(TOPIC, 3)
    side.create_topic(OTHER)
    side.produce(TOPIC, Batch(records=THREE).encode())
    side.produce(TOPIC, Batch(records=THREE, attributes=1, body=gzip_body(THREE)).encode())
    side.produce(TOPIC, Batch(records=THREE).encode())
    side.produce(TOPIC, Batch(records=THREE).encode(), partition=1)
    side.produce(OTHER, Batch(records=THREE).encode())


def partition(offset: int = 0, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"partition": index, "fetch_offset": offset, "partition_max_bytes": MIB, **more}


def topic(side: Side, name: str, *partitions: dict[str, Any], topic_id: bytes | None = None) -> dict[str, Any]:
    known = topic_id or side.topic_id(name)
    return {"topic": name, "topic_id": known, "partitions": list(partitions)}


def forget(side: Side, name: str, *partitions: int) -> dict[str, Any]:
    return {"topic": name, "topic_id": side.topic_id(name), "partitions": list(partitions)}


def fetch(side: Side, version: int, label: str, *topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A fetch that waits for nothing, unless `more` says otherwise."""
    request = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 50 * MIB, "session_epoch": -1}
    return side.ask("fetch", version, {**request, "topics": list(topics), **more}, label=label)


@case("fetch")
def offsets(side: Side, version: int) -> None:
    """A fetch in the middle of a batch gets the whole batch, as it is stored."""
    filled(side)
    for offset in (0, 1, 3, 5, 8, 9, 10, 1_000, -1, -2, 2**63 - 1):
        fetch(side, version, f"offset {offset}", topic(side, TOPIC, partition(offset)))
    fetch(side, version, "empty partition", topic(side, TOPIC, partition(0, 2)))


@case("fetch")
def unknown_topics_and_partitions(side: Side, version: int) -> None:
    filled(side)
    fetch(side, version, "unknown topic", topic(side, "nowhere", partition(), topic_id=UNKNOWN_ID))
    fetch(side, version, "unknown partition", topic(side, TOPIC, partition(0, 3)))
    fetch(side, version, "negative partition", topic(side, TOPIC, partition(0, -1)))
    fetch(side, version, "zero id or empty name", topic(side, "", partition(), topic_id=bytes(16)))
    mixed = [topic(side, "nowhere", partition(), topic_id=UNKNOWN_ID), topic(side, TOPIC, partition())]
    fetch(side, version, "one of two is unknown", *mixed)


@case("fetch")
def nothing_to_do(side: Side, version: int) -> None:
    filled(side)
    fetch(side, version, "no topics")
    fetch(side, version, "no topics, patient", max_wait=50, min_bytes=1)
    fetch(side, version, "no partitions", topic(side, TOPIC))


@case("fetch")
def size_limits(side: Side, version: int) -> None:
    """A reply has at least one batch, even if it is larger than every limit; then the limits count."""
    filled(side)
    batch_size_bytes = len(Batch(records=THREE).encode())
    for limit in (0, 1, batch_size_bytes - 1, batch_size_bytes, batch_size_bytes + 1, -1):
        row = partition(partition_max_bytes=limit)
        fetch(side, version, f"partition limit {limit}", topic(side, TOPIC, row))
        both = topic(side, TOPIC, partition(), partition(0, 1))
        fetch(side, version, f"limit {limit}", both, max_bytes=limit)
        rows = [topic(side, TOPIC, row, partition(0, 1, partition_max_bytes=limit))]
        fetch(side, version, f"both partitions {limit}", *rows)


@case("fetch")
def several_partitions(side: Side, version: int) -> None:
    filled(side)
    rows = [topic(side, TOPIC, partition(3, 1), partition(6), partition(0, 2)), topic(side, OTHER, partition())]
    fetch(side, version, "in the order asked for", *rows)
    fetch(side, version, "same partition twice", topic(side, TOPIC, partition(0), partition(3)))
    fetch(side, version, "same topic twice", topic(side, TOPIC, partition(0)), topic(side, TOPIC, partition(0, 1)))


@case("fetch")
def waiting(side: Side, version: int) -> None:
    """A reply comes when the maximum wait is over, or at once if there is no reason to wait."""
    filled(side)
    fetch(side, version, "at the end", topic(side, TOPIC, partition(9)), max_wait=50, min_bytes=1)
    fetch(side, version, "not enough", topic(side, TOPIC, partition(6)), max_wait=50, min_bytes=MIB)
    fetch(side, version, "enough", topic(side, TOPIC, partition(6)), max_wait=20_000, min_bytes=1)
    fetch(side, version, "an error", topic(side, TOPIC, partition(99)), max_wait=20_000, min_bytes=1)
    fetch(side, version, "negative wait", topic(side, TOPIC, partition(9)), max_wait=-1, min_bytes=1)


@case("fetch")
def isolation_levels(side: Side, version: int) -> None:
    filled(side)
    for level in (0, 1, 2, -1):
        fetch(side, version, f"level {level}", topic(side, TOPIC, partition(6)), isolation_level=level)


@case("fetch", since=9)
def leader_epochs(side: Side, version: int) -> None:
    filled(side)
    for epoch in (-1, 0, 1, 100, -2):
        fetch(side, version, f"epoch {epoch}", topic(side, TOPIC, partition(6, current_leader_epoch=epoch)))


@case("fetch", since=12)
def last_fetched_epoch(side: Side, version: int) -> None:
    filled(side)
    for epoch in (-1, 0, 1, 100):
        row = partition(6, current_leader_epoch=0, last_fetched_epoch=epoch)
        fetch(side, version, f"last epoch {epoch}", topic(side, TOPIC, row))


@case("fetch")
def replica_ids(side: Side, version: int) -> None:
    """Any client may claim to be a broker; its fetches must not move the high watermark."""
    filled(side)
    for replica in (-2, 1, 2):
        claim = {"replica_id": replica, "replica_state": {"replica_id": replica, "replica_epoch": -1}}
        fetch(side, version, f"replica {replica}", topic(side, TOPIC, partition(6)), **claim)


@case("fetch", since=11)
def rack(side: Side, version: int) -> None:
    filled(side)
    fetch(side, version, "a rack", topic(side, TOPIC, partition(6)), rack_id="here")


@case("fetch", since=7)
def session(side: Side, version: int) -> None:
    """KIP-227: a full fetch, then only changes, then without a partition, then closed."""
    name = f"fetch-session-{version}"
    side.create_topic(name, 2)
    side.produce(name, Batch(records=THREE).encode())
    reply = fetch(side, version, "full", topic(side, name, partition(), partition(0, 1)), session_epoch=0)
    known = {"session_id": reply.get("session_id", 0)}
    fetch(side, version, "moved on", topic(side, name, partition(3)), session_epoch=1, **known)
    fetch(side, version, "nothing new", session_epoch=2, **known)
    side.produce(name, Batch(records=THREE).encode(), partition=1)
    fetch(side, version, "news in the other", session_epoch=3, **known)
    forgotten = {"forgotten_topics_data": [forget(side, name, 1)]}
    fetch(side, version, "forget the other", session_epoch=4, **known, **forgotten)
    side.produce(name, Batch(records=THREE).encode(), partition=1)
    fetch(side, version, "no news of the forgotten", session_epoch=5, **known)
    fetch(side, version, "add it again", topic(side, name, partition(3, 1)), session_epoch=6, **known)
    fetch(side, version, "forget all", session_epoch=7, forgotten_topics_data=[forget(side, name, 0, 1)], **known)
    fetch(side, version, "of nothing", session_epoch=8, **known)
    fetch(side, version, "closed", topic(side, name, partition()), session_epoch=-1, **known)
    fetch(side, version, "after it was closed", session_epoch=9, **known)


@case("fetch", since=7)
def session_errors(side: Side, version: int) -> None:
    filled(side)
    reply = fetch(side, version, "full", topic(side, TOPIC, partition(6)), session_epoch=0)
    known = {"session_id": reply.get("session_id", 0)}
    fetch(side, version, "epoch ahead", session_epoch=5, **known)
    fetch(side, version, "epoch expected", session_epoch=1, **known)
    fetch(side, version, "epoch again", session_epoch=1, **known)
    fetch(side, version, "unknown session", session_id=123_456_789, session_epoch=1)
    fetch(side, version, "session zero", session_id=0, session_epoch=1)
    fetch(side, version, "new in place of old", topic(side, TOPIC, partition(6)), session_epoch=0, **known)
    fetch(side, version, "the old one", session_epoch=2, **known)
    fetch(side, version, "epoch -2", topic(side, TOPIC, partition(6)), session_epoch=-2)
    fetch(side, version, "no session, empty", session_epoch=-1)
    fetch(side, version, "new and empty", session_epoch=0)


@case("fetch", since=7)
def session_with_an_error_in_it(side: Side, version: int) -> None:
    """A partition with an error is in every reply of the session, not only in the first."""
    filled(side)
    rows = [
        topic(side, TOPIC, partition(9), partition(99, 1)),
        topic(side, "nowhere", partition(), topic_id=UNKNOWN_ID),
    ]
    reply = fetch(side, version, "full", *rows, session_epoch=0)
    known = {"session_id": reply.get("session_id", 0)}
    fetch(side, version, "again", session_epoch=1, **known)
    fetch(side, version, "mended", topic(side, TOPIC, partition(0, 1)), session_epoch=2, **known)


@case("fetch", since=7)
def session_over_a_deleted_topic(side: Side, version: int) -> None:
    name = f"fetch-deleted-{version}"
    side.create_topic(name)
    side.produce(name, Batch(records=THREE).encode())
    reply = fetch(side, version, "full", topic(side, name, partition(3)), session_epoch=0)
    known = {"session_id": reply.get("session_id", 0)}
    side.delete_topic(name)
    fetch(side, version, "after the deletion", session_epoch=1, **known)
    fetch(side, version, "and again", session_epoch=2, **known)


@case("fetch", (12, 13))
def session_changes_between_names_and_ids(side: Side, version: int) -> None:
    """KIP-516: a session speaks either of topics by name or by id."""
    filled(side)
    reply = fetch(side, version, "full", topic(side, TOPIC, partition(9)), session_epoch=0)
    known = {"session_id": reply.get("session_id", 0)}
    other = 25 - version
    fetch(side, other, "the other kind", topic(side, TOPIC, partition(6)), session_epoch=1, **known)


@case("fetch", since=15)
def cluster_id(side: Side, version: int) -> None:
    filled(side)
    fetch(side, version, "another cluster's", topic(side, TOPIC, partition(6)), cluster_id="elsewhere")
