"""DeleteRecords and the answers of other requests after it; OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.differential.cases_list_offsets import timed_batch
from compat_tests.differential.catalogue import case
from compat_tests.harness.batches import FIRST_MS

if TYPE_CHECKING:
    from compat_tests.differential.side import Side


def delete(side: Side, version: int, label: str, name: str, *offsets: int, partition: int = 0) -> None:
    partitions = [{"partition_index": partition, "offset": offset} for offset in offsets]
    fields = {"topics": [{"name": name, "partitions": partitions}], "timeout": 10_000}
    side.ask("delete_records", version, fields, label=label)


def filled(side: Side, name: str) -> str:
    """30 records in three batches."""
    side.create_topic(name)
    for number in range(3):
        side.produce(name, timed_batch(FIRST_MS + 1000 * number, 10))
    return name


def seen(side: Side, label: str, name: str) -> None:
    """Note the earliest offset, and fetches around the log start."""
    partition = {"partition_index": 0, "timestamp": -2}
    fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}
    side.ask("list_offsets", 7, fields | {"isolation_level": 0}, label=f"{label}: earliest")
    for offset in (0, 4, 5, 15, 30):
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": name, "partitions": [asked]}]
        request = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics}
        side.ask("fetch", 12, request, label=f"{label}: fetch from {offset}")


@case("delete_records")
def up_to_an_offset(side: Side, version: int) -> None:
    name = filled(side, f"delete-records-{version}")
    delete(side, version, "nothing", name, 0)
    delete(side, version, "in the middle of a batch", name, 5)
    seen(side, "after 5", name)
    delete(side, version, "back", name, 3)
    delete(side, version, "behind the end", name, 31)
    delete(side, version, "negative", name, -2)
    delete(side, version, "all", name, -1)
    seen(side, "after all", name)
    greatest = {"replica_id": -1, "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -3}]}]}
    side.ask("list_offsets", 7, greatest | {"isolation_level": 0}, label="after all: greatest timestamp")
    side.produce(name, timed_batch(FIRST_MS + 9000, 2))
    seen(side, "and more", name)


@case("delete_records")
def where_nothing_is(side: Side, version: int) -> None:
    side.create_topic(f"delete-nowhere-{version}")
    delete(side, version, "unknown topic", "no-such-topic", 0)
    delete(side, version, "unknown partition", f"delete-nowhere-{version}", 0, partition=3)
    delete(side, version, "empty", f"delete-nowhere-{version}", 0)
    delete(side, version, "high watermark of nothing", f"delete-nowhere-{version}", -1)


@case("delete_records")
def with_each_cleanup_policy(side: Side, version: int) -> None:
    for policy in ("delete", "compact", "compact,delete", ""):
        name = f"delete-under-{policy.replace(',', '-') or 'none'}-{version}"
        side.create_topic(name, 1, {"cleanup.policy": policy})
        for number in range(3):
            side.produce(name, timed_batch(FIRST_MS + 1000 * number, 10))
        for offset in (5, 31, -1):
            delete(side, version, f"cleanup.policy={policy}, {offset}", name, offset)
        seen(side, f"cleanup.policy={policy}", name)


@case("offset_for_leader_epoch")
def ends_of_epochs(side: Side, version: int) -> None:
    name = filled(side, f"epochs-{version}")
    for current, epoch, partition in (
        (-1, 0, 0),
        (0, 0, 0),
        (1, 0, 0),
        (-1, 1, 0),
        (-1, -1, 0),
        (-1, -2, 0),
        (-1, 0, 5),
    ):
        row = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        fields: dict[str, Any] = {"topics": [{"topic": name, "partitions": [row]}]}
        if version >= 3:
            fields["replica_id"] = -2
        label = f"epoch {epoch}, current {current}, partition {partition}"
        side.ask("offset_for_leader_epoch", version, fields, label=label)
    unknown = {"topics": [{"topic": "no-such-topic", "partitions": [row]}]} | (
        {"replica_id": -1} if version >= 3 else {}
    )
    side.ask("offset_for_leader_epoch", version, unknown, label="unknown topic")
