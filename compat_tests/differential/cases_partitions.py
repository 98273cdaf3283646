"""CreatePartitions, DescribeTopicPartitions, DescribeLogDirs, DescribeProducers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case
from compat_tests.harness.batches import Batch, Record

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

TIMEOUT_MS = 10_000
VISIBLE_TIMEOUT_S = 10.0


def grow(
    side: Side,
    version: int,
    label: str,
    *topics: tuple[str, int, list[list[int]] | None],
    validate_only: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    rows = [
        {"name": name, "count": count, "assignments": None if given is None else [{"broker_ids": one} for one in given]}
        for name, count, given in topics
    ]
    fields = {"topics": rows, "timeout": timeout_ms, "validate_only": validate_only}
    side.ask("create_partitions", version, fields, label=label)


def partition_count(side: Side, name: str) -> int:
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    return len(side.quiet("metadata", 12, fields)["topics"][0]["partitions"])


def wait_until_grown(side: Side, name: str, count: int) -> None:
    """Wait until the broker knows the partitions: Apache Kafka's controller answers earlier."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    while partition_count(side, name) != count:
        assert time.monotonic() < deadline, f"{side.broker.name}: {name} does not get {count} partitions"
        time.sleep(0.01)


def seen(side: Side, label: str, name: str) -> None:
    side.ask("metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, label=label)


@case("create_partitions")
def grown(side: Side, version: int) -> None:
    name = f"grown-{version}"
    side.create_topic(name)
    grow(side, version, "validate", (name, 3, None), validate_only=True)
    seen(side, "after validate", name)
    grow(side, version, "to 3", (name, 3, None))
    wait_until_grown(side, name, 3)
    seen(side, "after 3", name)
    grow(side, version, "to 5 by hand", (name, 5, [[1], [1]]))
    wait_until_grown(side, name, 5)
    seen(side, "after 5", name)


@case("create_partitions")
def not_grown(side: Side, version: int) -> None:
    name, other = f"not-grown-{version}", f"not-grown-{version}-other"
    side.create_topic(name, 2)
    side.create_topic(other)
    for count in (2, 1, 0, -1):
        grow(side, version, f"to {count}", (name, count, None))
    rows: list[tuple[str, int, list[list[int]]]] = [
        ("too few assignments", 4, [[1]]),
        ("too many assignments", 3, [[1], [1]]),
        ("no assignments", 3, []),
        ("empty assignment", 3, [[]]),
        ("unknown broker", 3, [[2]]),
        ("broker -1", 3, [[-1]]),
        ("broker twice", 3, [[1, 1]]),
        ("assignment of what is there", 2, [[1]]),
    ]
    for label, count, given in rows:
        grow(side, version, label, (name, count, given))
    grow(side, version, "unknown topic", ("no-such-topic", 3, None))
    grow(side, version, "bad name", ("bad name", 3, None))
    grow(side, version, "no name", ("", 3, None))
    grow(side, version, "twice", (name, 3, None), (name, 4, None))
    grow(side, version, "twice and another", (name, 3, None), (other, 2, None), (name, 4, None))
    wait_until_grown(side, other, 2)
    grow(side, version, "none")
    seen(side, "after all", name)


def page(
    side: Side, label: str, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    return side.ask("describe_topic_partitions", 0, fields, label=label)


@case("describe_topic_partitions")
def pages(side: Side, version: int) -> None:
    names = [f"zz-page-{number}" for number in range(3)]
    for number, name in enumerate(names):
        side.create_topic(name, number + 1)
    page(side, "named", *reversed(names))
    page(side, "all from the first", cursor=(names[0], 0))
    page(side, "all from before the first", cursor=("zz-", 0))
    page(side, "twice", names[0], names[0])
    page(side, "some are not", names[0], "no-such-topic", "bad name", "zzz-no-such-topic")
    page(side, "no name", names[0], "")
    for limit in (1, 2, 3, 4, 6, 0, -1):
        page(side, f"limit {limit}", *names, limit=limit)
        page(side, f"limit {limit} behind", *names, limit=limit, cursor=(names[1], 1))
    page(side, "limit before a topic that is not", names[0], "zz-page-00", limit=1)


@case("describe_topic_partitions")
def cursors(side: Side, version: int) -> None:
    names = [f"zz-page-{number}" for number in range(3)]
    for number, name in enumerate(names):
        side.create_topic(name, number + 1)
    page(side, "behind the last partition", names[1], names[2], cursor=(names[1], 7))
    page(side, "not among the topics", names[0], names[2], cursor=(names[1], 0))
    page(side, "a topic that is not", names[0], "zz-page-00", cursor=("zz-page-00", 0))
    page(side, "negative", *names, cursor=(names[0], -1))
    page(side, "negative, all", cursor=(names[0], -1))
    page(side, "behind all", cursor=("zzzz", 0))


@case("describe_log_dirs")
def sizes(side: Side, version: int) -> None:
    side.create_topic("log-dirs", 2)
    if version == 1:
        side.produce("log-dirs", Batch(records=(Record(), Record())).encode(), partition=1)

    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        rows = [{"topic": name, "partitions": partitions} for name, partitions in topics]
        side.ask("describe_log_dirs", version, {"topics": rows}, label=label)

    ask("both", ("log-dirs", [0, 1]))
    ask("one", ("log-dirs", [1]))
    ask("twice", ("log-dirs", [1]), ("log-dirs", [1]))
    ask("what is not", ("log-dirs", [7]), ("no-such-topic", [0]))
    ask("no partitions", ("log-dirs", []))
    ask("nothing")


@case("describe_producers")
def producers(side: Side, version: int) -> None:
    side.create_topic("producers", 2)
    side.produce("producers", Batch().encode())
    for sequence in range(3):
        batch = Batch(producer_id=4_000, producer_epoch=1, base_sequence=sequence)
        side.produce("producers", batch.encode())
    side.produce("producers", Batch(producer_id=4_001, producer_epoch=0, base_sequence=7).encode())

    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        rows = [{"name": name, "partition_indexes": partitions} for name, partitions in topics]
        side.ask("describe_producers", version, {"topics": rows}, label=label)

    ask("two partitions", ("producers", [0, 1]))
    ask("what is not", ("producers", [2, -1]), ("no-such-topic", [0]), ("bad name", [0]), ("", [0]))
    ask("twice", ("producers", [1, 1]), ("producers", [1]))
    ask("no partitions", ("producers", []))
    ask("nothing")
