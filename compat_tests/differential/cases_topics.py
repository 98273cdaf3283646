"""CreateTopics and DeleteTopics: requests that are refused, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

UNKNOWN_ID = bytes(range(16))
TIMEOUT_MS = 10_000


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def create(side: Side, version: int, label: str, *topics: dict[str, Any], validate_only: bool = False) -> None:
    fields = {"topics": list(topics), "timeout": TIMEOUT_MS, "validate_only": validate_only}
    side.ask("create_topics", version, fields, label=label)


def exists(side: Side, name: str) -> None:
    """Notes whether a topic is there now, as clients see it."""
    side.ask("metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}, label=f"after: {name}")


@case("create_topics")
def created(side: Side, version: int) -> None:
    """Create topics and note the reply. The ids are checked through Metadata, where they are shown by name."""
    name = f"created-{version}"
    create(side, version, "create", topic(name, 3))
    side.create_topic(name, 3)  # only waits
    exists(side, name)
    create(side, version, "exists", topic(name))


@case("create_topics")
def several_at_once(side: Side, version: int) -> None:
    names = [f"several-{version}-{number}" for number in range(3)]
    create(side, version, "one of three is bad", topic(names[0]), topic("bad name"), topic(names[2]))
    create(side, version, "none", *[])


@case("create_topics")
def twice_in_one_request(side: Side, version: int) -> None:
    name = f"twice-{version}"
    create(side, version, "twice", topic(name), topic(name, 2), topic(f"{name}-other"))
    exists(side, name)


@case("create_topics")
def only_validated(side: Side, version: int) -> None:
    name = f"validated-{version}"
    create(side, version, "good", topic(name, 2), validate_only=True)
    create(side, version, "bad", topic(name, 0), validate_only=True)
    exists(side, name)


@case("create_topics")
def bad_names(side: Side, version: int) -> None:
    for name in ("", ".", "..", "bad name", "x" * 250, "a/b", "ünï", "a\x00b"):
        create(side, version, f"name {name[:9]!r}", topic(name))
    create(side, version, "longest name", topic(f"{version:03}" + "x" * 246))


@case("create_topics")
def colliding_names(side: Side, version: int) -> None:
    """Names that only differ in dots and underscores: Kafka lets one of the two in, because metric names would be
    equal."""
    side.create_topic(f"collide.{version}")
    create(side, version, "collides", topic(f"collide_{version}"))


@case("create_topics")
def bad_counts(side: Side, version: int) -> None:
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (1, 32_767)):
        name = f"counts-{version}{partitions}{replicas}"
        create(side, version, f"{partitions} partitions, {replicas} replicas", topic(name, partitions, replicas))


@case("create_topics")
def default_counts(side: Side, version: int) -> None:
    """-1 means the broker's default, from version 4 on (KIP-464)."""
    create(side, version, "both", topic(f"defaults-{version}-a", -1, -1))
    create(side, version, "partitions", topic(f"defaults-{version}-b", -1, 1))
    create(side, version, "replicas", topic(f"defaults-{version}-c", 2, -1))


@case("create_topics")
def assigned_by_hand(side: Side, version: int) -> None:
    def assigned(number: int, *replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> None:
        rows = [{"partition_index": index, "broker_ids": brokers} for index, brokers in replicas]
        row = topic(f"assigned-{version}-{number}", partitions, factor, assignments=rows)
        create(side, version, f"{list(replicas)} {partitions} {factor}", row)

    assigned(0, (0, [1]), (1, [1]))
    assigned(1, (0, [1]), partitions=1, factor=1)
    assigned(2, (0, [1]), partitions=1)
    assigned(3, (0, [1]), factor=1)
    assigned(4, (0, [2]))
    assigned(5, (0, [1, 1]))
    assigned(6, (1, [1]))
    assigned(7, (0, [1]), (0, [1]))
    assigned(8, (0, []))
    assigned(9, (0, [-1]))
    assigned(10, (-1, [1]))


@case("create_topics")
def configured(side: Side, version: int) -> None:
    """Keys and values that Kafka knows, and those it does not."""
    for number, (key, value) in enumerate(
        (
            ("max.message.bytes", "2000000"),
            ("max.message.bytes", "many"),
            ("max.message.bytes", "-1"),
            ("max.message.bytes", ""),
            ("max.message.bytes", None),
            ("no.such.key", "1"),
            ("", "1"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.type", "logappendtime"),
            ("cleanup.policy", "delete"),
            ("cleanup.policy", "burn"),
            ("compression.type", "producer"),
            ("compression.type", "rar"),
            ("compression.type", "lz4"),
            ("compression.type", "LZ4"),
            ("compression.gzip.level", "0"),
            ("compression.gzip.level", "-1"),
            ("compression.lz4.level", "17"),
            ("compression.lz4.level", "18"),
            ("compression.zstd.level", "-131072"),
            ("compression.zstd.level", "23"),
            ("min.insync.replicas", "1"),
            ("min.insync.replicas", "0"),
            ("retention.ms", "-1"),
            ("retention.ms", "-2"),
            ("segment.bytes", "1048576"),
            ("segment.bytes", "1"),
        )
    ):
        row = topic(f"configured-{version}-{number}", configs=[{"name": key, "value": value}])
        create(side, version, f"{key}={value}", row)


@case("create_topics")
def configured_twice(side: Side, version: int) -> None:
    rows = [{"name": "max.message.bytes", "value": value} for value in ("1000", "2000")]
    create(side, version, "same key twice", topic(f"configured-twice-{version}", configs=rows))


@case("delete_topics")
def deleted(side: Side, version: int) -> None:
    name = f"deleted-{version}"
    topic_id = side.create_topic(name)
    delete(side, version, "delete", name)
    side.wait_until_gone(name)
    exists(side, name)
    delete(side, version, "again", name)
    side.ask("metadata", 12, {"topics": [{"name": None, "topic_id": topic_id}]}, label="by its old id")


@case("delete_topics")
def unknown_and_repeated(side: Side, version: int) -> None:
    name = f"delete-repeated-{version}"
    side.create_topic(name)
    delete(side, version, "unknown", "nowhere")
    delete(side, version, "bad name", "bad name")
    delete(side, version, "empty name", "")
    delete(side, version, "twice", name, name)
    delete(side, version, "none")


@case("delete_topics", since=6)
def deleted_by_id(side: Side, version: int) -> None:
    topic_id = side.create_topic("delete-by-id")
    other_id = side.create_topic("delete-by-id-other")

    def by_id(label: str, *rows: dict[str, Any]) -> None:
        side.ask("delete_topics", version, {"topics": list(rows), "timeout": TIMEOUT_MS}, label=label)

    by_id("unknown id", {"name": None, "topic_id": UNKNOWN_ID})
    by_id("neither", {"name": None, "topic_id": bytes(16)})
    by_id("both", {"name": "delete-by-id", "topic_id": topic_id})
    by_id("same topic by name and id", {"name": None, "topic_id": other_id}, {"name": "delete-by-id-other"})
    by_id("id", {"name": None, "topic_id": topic_id})
    by_id("id twice", {"name": None, "topic_id": other_id}, {"name": None, "topic_id": other_id})


def delete(side: Side, version: int, label: str, *names: str) -> None:
    fields = {"topic_names": list(names), "topics": [{"name": name} for name in names], "timeout": TIMEOUT_MS}
    side.ask("delete_topics", version, fields, label=label)
