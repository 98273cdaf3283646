"""Requests to move replicas, to elect leaders and to unregister brokers, to a broker that is alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.differential.catalogue import case

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

TIMEOUT_MS = 10_000
PREFERRED, UNCLEAN, UNKNOWN = 0, 1, 2


@case("alter_partition_reassignments")
def reassigned(side: Side, version: int) -> None:
    name = f"reassigned-{version}"
    side.create_topic(name, 2)
    orders: list[tuple[str, int, list[int] | None]] = [
        (name, 0, [1]),
        (name, 0, None),
        (name, 0, []),
        (name, 0, [1, 1]),
        (name, 0, [1, 77]),
        (name, 0, [77]),
        (name, 7, [1]),
        (name, -1, None),
        ("no-such-topic", 0, [1]),
        ("", 0, [1]),
    ]
    for topic, number, replicas in orders:
        rows = [{"name": topic, "partitions": [{"partition_index": number, "replicas": replicas}]}]
        fields = {"topics": rows, "timeout": TIMEOUT_MS, "allow_replication_factor_change": True}
        side.ask("alter_partition_reassignments", version, fields, label=f"{topic} {number} {replicas}")


@case("list_partition_reassignments")
def nothing_is_under_way(side: Side, version: int) -> None:
    name = f"stays-{version}"
    side.create_topic(name)
    for topics in (None, [], [{"name": name, "partition_indexes": [0, 7]}], [{"name": "no", "partition_indexes": [0]}]):
        fields = {"topics": topics, "timeout": TIMEOUT_MS}
        side.ask("list_partition_reassignments", version, fields, label=f"{topics}")


@case("elect_leaders")
def elected(side: Side, version: int) -> None:
    name = f"elected-{version}"
    side.create_topic(name, 2)
    for kind in (PREFERRED, UNCLEAN, UNKNOWN) if version else (PREFERRED,):
        for label, topics in (
            ("named", [{"topic": name, "partitions": [0, 1, 7]}, {"topic": "no-such-topic", "partitions": [0]}]),
            ("none", []),
        ):
            fields = {"election_type": kind, "topic_partitions": topics, "timeout": TIMEOUT_MS}
            side.ask("elect_leaders", version, fields, label=f"{label} {kind}")


@case("unregister_broker")
def of_nobody(side: Side, version: int) -> None:
    side.ask("unregister_broker", version, {"broker_id": 77}, label="an id that nobody has")
