"""Answers about a log whose segments go to the tier and leave it: offsets, times, epochs, sizes, records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from compat_tests.differential.cases_log_start import delete
from compat_tests.differential.catalogue import case
from compat_tests.differential.transactional import Producer
from compat_tests.features.tiering import scene
from compat_tests.features.tiering.scene import (
    BATCH_BYTES,
    BATCHES_A_SEGMENT,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    OFFSETS_A_SEGMENT,
)
from compat_tests.harness.batches import FIRST_MS

if TYPE_CHECKING:
    from compat_tests.differential.side import Side

FIRST, MORE = range(10), range(10, 16)  # batches: three segments and one batch, then five and one
ALL = range(16)
END = 32
SEGMENTS = [0, 6, 12, 18, 24]
SOME_ROUNDS_S = 3.0
NOW_MS = int(time.time()) * 1000 - 3_600_000  # the same for both brokers, and young enough for every retention


def in_the_tier(side: Side, name: str, local_bytes: int = 1) -> None:
    """A topic with five segments in the tier, and only the active one in the log dir, or as many bytes as given."""
    scene.create(side, name)
    scene.fill(side, name, ALL)
    scene.wait_until(side, name, LATEST_TIERED, SEGMENTS[-1] + OFFSETS_A_SEGMENT - 1)
    scene.configure(side, name, "local.retention.bytes", str(local_bytes))


def only_the_active_here(side: Side, name: str) -> None:
    in_the_tier(side, name)
    scene.wait_until(side, name, EARLIEST_LOCAL, 30)


@case("list_offsets", (11,))
def stages_of_copying(side: Side, _: int) -> None:
    name = "stages"
    scene.create(side, name, remote_log_copy_disable="true")
    scene.ask_all(side, "empty", name)
    scene.fill(side, name, FIRST)
    scene.ask_all(side, "nothing copied", name)
    scene.configure(side, name, "remote.log.copy.disable", "false")
    scene.wait_until(side, name, LATEST_TIERED, 17)
    scene.ask_all(side, "all copied but the active", name)
    scene.configure(side, name, "remote.log.copy.disable", "true")
    time.sleep(SOME_ROUNDS_S)
    scene.fill(side, name, MORE)
    scene.ask_all(side, "something copied", name)
    scene.configure(side, name, "remote.log.copy.disable", "false")
    scene.wait_until(side, name, LATEST_TIERED, 29)
    scene.ask_all(side, "all copied", name)
    scene.configure(side, name, "local.retention.bytes", str(BATCH_BYTES * (2 * BATCHES_A_SEGMENT + 1)))
    scene.wait_until(side, name, EARLIEST_LOCAL, 18)
    scene.ask_all(side, "some are no longer here", name)
    scene.configure(side, name, "local.retention.bytes", "1")
    scene.wait_until(side, name, EARLIEST_LOCAL, 30)
    scene.ask_all(side, "the active alone is here", name)


@case("list_offsets", (11,))
def enabled_later(side: Side, _: int) -> None:
    """Older records are copied too, from the segment with the log start on."""
    name = "later"
    scene.create(side, name, remote_storage_enable="false")
    scene.fill(side, name, ALL)
    delete(side, 2, "before", name, 9)
    time.sleep(SOME_ROUNDS_S)  # until the segment below it is gone
    scene.ask_all(side, "not in the tier", name)
    scene.configure(side, name, "remote.storage.enable", "true")
    scene.wait_until(side, name, LATEST_TIERED, 29)
    scene.ask_all(side, "in the tier", name)
    scene.configure(side, name, "local.retention.bytes", "1")
    scene.wait_until(side, name, EARLIEST_LOCAL, 30)
    scene.ask_all(side, "the active alone is here", name)


@case("fetch", (12,))
def several_partitions(side: Side, _: int) -> None:
    """Fetch of partitions to be read from the tier, of one in the log dir, and of one at its end."""
    names = ("several-0", "several-1", "several-2")
    for name in names[:2]:
        only_the_active_here(side, name)
    scene.create(side, names[2])
    scene.fill(side, names[2], range(1))
    for label, places in (
        ("two in the tier", {names[0]: 0, names[1]: 6}),
        ("the tier, then here", {names[0]: 0, names[2]: 0}),
        ("here, then the tier", {names[2]: 0, names[0]: 0}),
        ("an end, then the tier", {names[2]: 2, names[0]: 0}),
        ("the tier, then below the start", {names[0]: 0, names[1]: 33}),
        ("all", {names[2]: 0, names[0]: 0, names[1]: 30}),
    ):
        for max_bytes in (scene.BATCH_BYTES, 50 * scene.MIB):
            for name, at in places.items():
                scene.fetch(side, name, at)  # which rows have come when there is enough to answer is a matter of time
            scene.note_fetches(side, f"{label}, at most {max_bytes}", places, max_bytes=max_bytes)


@case("fetch", (12,))
def limits(side: Side, _: int) -> None:
    name = "fetched"
    in_the_tier(side, name, BATCH_BYTES * (BATCHES_A_SEGMENT + 1))
    scene.wait_until(side, name, EARLIEST_LOCAL, 24)
    for at in (0, 1, 4, 6, 23, 24, 29, 30, 31, 32, 33):
        for wait_ms in (0, 500):
            scene.note_fetch(side, f"from {at}, waits {wait_ms} ms", name, at, max_wait=wait_ms)
    for limit in (0, 1, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES, 3 * BATCH_BYTES):
        for at in (0, 5, 24):
            scene.note_fetch(side, f"from {at}, at most {limit}", name, at, partition_max_bytes=limit)
            scene.note_fetch(side, f"from {at}, at most {limit} in all", name, at, max_bytes=limit)
    for version in range(4, 19):
        scene.note_fetch(side, f"in v{version}", name, 3, version=version)


@case("delete_records", (2,))
def deleted_across_tiers(side: Side, version: int) -> None:
    name = "deleted"
    only_the_active_here(side, name)
    delete(side, version, "in the tier", name, 7)
    scene.wait_for_store(side, name, SEGMENTS[1:])
    scene.ask_all(side, "in the tier", name)
    delete(side, version, "back", name, 3)
    delete(side, version, "behind the end", name, END + 1)
    delete(side, version, "up to a segment's start", name, 12)
    scene.wait_for_store(side, name, SEGMENTS[2:])
    scene.ask_all(side, "up to a segment's start", name)
    delete(side, version, "where the local part starts", name, 30)
    scene.wait_for_store(side, name, [])
    scene.ask_all(side, "where the local part starts", name)
    delete(side, version, "in the local part", name, 31)
    scene.ask_all(side, "in the local part", name)
    delete(side, version, "all", name, -1)
    scene.ask_all(side, "all", name)
    scene.fill(side, name, range(16, 17))
    scene.ask_all(side, "and more", name)


@case("list_offsets", (11,))
def retention_by_size(side: Side, _: int) -> None:
    """Retention by the size of both tiers together: only whole segments are deleted, none for a part of one."""
    name = "by-size"
    only_the_active_here(side, name)
    total, segment = BATCH_BYTES * len(ALL), BATCH_BYTES * BATCHES_A_SEGMENT
    for label, too_many, start in (
        ("a byte less than a segment too much", segment - 1, 0),
        ("a segment too much", segment, 6),
        ("two and a byte less", 3 * segment - 1, 12),
    ):
        scene.configure(side, name, "retention.bytes", str(total - too_many))
        scene.wait_until(side, name, EARLIEST, start)
        scene.wait_for_store(side, name, [each for each in SEGMENTS if each >= start])
        time.sleep(SOME_ROUNDS_S)
        scene.ask_all(side, label, name)
    scene.configure(side, name, "retention.bytes", "1")
    scene.wait_until(side, name, EARLIEST, 30)
    scene.wait_for_store(side, name, [])
    time.sleep(SOME_ROUNDS_S)
    scene.ask_all(side, "one byte", name)


@case("list_offsets", (11,))
def retention_by_time(side: Side, _: int) -> None:
    """Retention by time: nine batches of 2023, the others of now."""
    name = "by-time"
    scene.create(side, name)
    scene.fill(side, name, range(9))
    scene.fill(side, name, range(9, 16), NOW_MS)
    scene.wait_until(side, name, LATEST_TIERED, 29)
    scene.configure(side, name, "local.retention.bytes", str(BATCH_BYTES * (3 * BATCHES_A_SEGMENT + 1)))
    scene.wait_until(side, name, EARLIEST_LOCAL, 12)
    scene.configure(side, name, "retention.ms", "86400000")
    scene.wait_until(side, name, EARLIEST, 18)
    scene.wait_for_store(side, name, SEGMENTS[3:])
    time.sleep(SOME_ROUNDS_S)
    scene.ask_all(side, "the old ones expired", name)


@case("list_offsets", (11,))
def everything_expires(side: Side, _: int) -> None:
    """The active segment expires too: it is sealed, and a new one begins at the log end."""
    name = "expired"
    only_the_active_here(side, name)
    scene.configure(side, name, "retention.ms", "86400000")
    scene.wait_until(side, name, EARLIEST, END)
    scene.wait_for_store(side, name, [])
    time.sleep(SOME_ROUNDS_S)
    scene.ask_all(side, "all", name)
    scene.fill(side, name, range(1), NOW_MS)
    scene.ask_all(side, "and more", name)


@case("list_offsets", (11,))
def greatest_timestamps(side: Side, _: int) -> None:
    """The greatest timestamp is in the middle of the log, in the tier."""
    name = "greatest"
    scene.create(side, name)
    scene.fill(side, name, range(6, 10), FIRST_MS)
    scene.fill(side, name, range(6))
    scene.wait_until(side, name, LATEST_TIERED, 17)
    scene.ask_offsets(side, "still here", name)
    scene.configure(side, name, "local.retention.bytes", "1")
    scene.wait_until(side, name, EARLIEST_LOCAL, 18)
    scene.ask_offsets(side, "in the tier", name)
    scene.ask_times(side, "in the tier", name)


@case("fetch", (12,))
def transactions(side: Side, _: int) -> None:
    """A transaction stays open over two segments, which are not copied before its end; then it is aborted, as is every
    second of the others."""
    name = "transactional"
    scene.create(side, name)
    long, short = Producer(side, "tier-long"), Producer(side, "tier-short")
    for producer in (long, short):
        producer.initialise(label=f"{producer.name}: init")
    long.add({name: [0]}, label="long: add")
    long.send(name, long.batch(name, base_timestamp_ms=NOW_MS), label="long: send")
    for number in range(7):
        short.add({name: [0]}, label=f"{number}: add")
        records = short.batch(name, values=scene.values(number), base_timestamp_ms=NOW_MS)
        short.send(name, records, label=f"{number}: send")
        short.end(is_commit=number % 2 == 0, label=f"{number}: end")
    time.sleep(SOME_ROUNDS_S)
    scene.ask_offsets(side, "while one is open", name)
    side.note("while one is open: the store", scene.copied(side, name))
    long.end(is_commit=False, label="long: end")
    scene.wait_until(side, name, LATEST_TIERED, 18)
    _fetch_committed(side, "still here", name)
    scene.configure(side, name, "local.retention.bytes", "1")
    scene.wait_until(side, name, EARLIEST_LOCAL, 19)
    _fetch_committed(side, "in the tier", name)
    scene.ask_offsets(side, "in the tier", name)


def _fetch_committed(side: Side, stage: str, name: str) -> None:
    for at in (0, 1, 4, 9, 10, 13, 18, 19, 22):
        for level in (0, 1):
            scene.note_fetch(side, f"{stage}: from {at}, level {level}", name, at, isolation_level=level)


@case("delete_topics", (5,))
def deleted_and_made_again(side: Side, _: int) -> None:
    """A deleted topic leaves nothing in the store, and nothing of it comes back under the same name."""
    name = "made-again"
    only_the_active_here(side, name)
    before = side.topic_id(name)
    side.delete_topic(name)
    scene.wait_for_store(side, name, [])
    side.forget(name)
    only_the_active_here(side, name)
    side.note("another id", side.topic_id(name) != before)
    scene.ask_all(side, "again", name)
