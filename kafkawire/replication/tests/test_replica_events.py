"""Log lines and counters of a broker's followed logs: truncated, discarded, closed, waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
import trio.testing
from structlog.testing import capture_logs

from coordinator.event_log import LINES_PER_CHANGE_MAX
from engine.api import Following, TopicIdPartition
from engine.log_config import LogConfig
from kafkawire.messages.fetch import EpochEndOffset, PartitionData, WhatIsDropped
from kafkawire.replication.questions import FetchLimits
from kafkawire.replication.replica_events import LogBefore, ReplicaEvents, Truncated
from kafkawire.replication.tests.test_fetcher import following
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.metrics import ReplicationCounters
from testkit.logs import ORDERS
from testkit.replicas import stamped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RECORDS = b"".join(stamped(offset, 1, b"v") for offset in range(10))
PLACE = {"topic": ORDERS.topic, "partition": ORDERS.partition}


def as_dicts(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines as dictionaries."""
    return [dict(line) for line in lines]


async def test_a_log_that_is_truncated_says_from_where_to_where() -> None:
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(high_watermark=5, records=RECORDS))
        with capture_logs() as lines:
            await one.links.answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=6)))
        offsets = {"epoch": 1, "offset": 6, "end_offset": 10, "high_watermark": 5}
        assert as_dicts(lines) == [{"event": "replica truncated", "log_level": "info", **PLACE, **offsets}]
        assert (one.counters.truncations, one.counters.restarts, one.counters.failures) == (1, 0, 0)


async def test_truncation_below_the_high_watermark_is_logged_as_a_warning() -> None:
    """An unclean election has given up acknowledged records."""
    counters = ReplicationCounters()
    with capture_logs() as lines:
        ReplicaEvents(counters).truncated([Truncated(LogBefore(ORDERS, 0, 10, 5, is_sound=True), 3, 4)])
    [line] = as_dicts(lines)
    assert (line["event"], line["log_level"]) == ("replica truncated below high watermark", "warning")
    assert counters.truncations == 1


async def test_many_logs_that_are_truncated_together_write_few_lines() -> None:
    count = 2 * LINES_PER_CHANGE_MAX
    many = [TopicIdPartition(ORDERS.topic_id, ORDERS.topic, number) for number in range(count)]
    async with following() as one:
        await one.store.open_partitions([Following(partition, LogConfig(), 1) for partition in many])
        for partition in many:
            one.fetcher.follow(partition, 1, is_in_sync=True)
        await trio.testing.wait_all_tasks_blocked()
        await one.links.answer(
            *(PartitionData(partition_index=at, high_watermark=5, records=RECORDS) for at in range(count))
        )
        parted = EpochEndOffset(epoch=1, end_offset=6)
        with capture_logs() as lines:
            await one.links.answer(*(PartitionData(partition_index=at, diverging_epoch=parted) for at in range(count)))
    assert len(lines) == LINES_PER_CHANGE_MAX + 1
    assert (lines[-1]["event"], lines[-1]["count"]) == ("replicas truncated", count)
    assert one.counters.truncations == count


async def test_log_that_contradicts_its_leader_is_closed_and_not_truncated() -> None:
    """No log is truncated below the high watermark without an unclean election (RULES K18)."""
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(high_watermark=10, records=RECORDS))
        with capture_logs() as lines:
            await one.links.answer(PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=6)))
        [line] = as_dicts(lines)
        assert {"event": "replica failed", "log_level": "error", **PLACE}.items() <= line.items()
        assert "below 10" in line["reason"]
        assert (one.counters.failures, one.counters.truncations) == (1, 0)


async def test_discard_of_a_log_with_a_gap_logs_a_warning_with_its_offsets() -> None:
    dropped = WhatIsDropped(tombstones_to=20, swaps=6, gone_by=5)
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(high_watermark=10, records=RECORDS))
        one.marks.written.set()
        with capture_logs() as lines:
            await one.links.answer(PartitionData(high_watermark=10, log_start_offset=3, dropped=dropped))
        [line] = as_dicts(lines)
        offsets = {"epoch": 1, "offset": 3, "discarded_from": 0, "discarded_to": 10, "reason": "log_has_gap"}
        assert line == {"event": "re-replication from scratch begun", "log_level": "warning", **PLACE, **offsets}
        assert one.counters.restarts == 1


async def test_empty_log_that_starts_at_its_leaders_log_start_discards_nothing() -> None:
    async with following() as one:
        await one.follow(1)
        with capture_logs() as lines:
            await one.links.answer(PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
            for offset in (70, 80):
                await one.links.send_end(offset)
        [line] = as_dicts(lines)
        assert line == {"event": "empty replica started", "log_level": "info", **PLACE, "epoch": 1, "offset": 70}
        assert one.counters.restarts == 0


async def test_why_a_log_is_discarded() -> None:
    counters = ReplicationCounters()
    events = ReplicaEvents(counters)
    with capture_logs() as lines:
        events.restarted(LogBefore(ORDERS, 0, 0, 0, is_sound=False), 1, 0)
        events.restarted(LogBefore(ORDERS, 0, 10, 10, is_sound=True), 1, 70)
        events.restarted(LogBefore(ORDERS, 0, 10, 10, is_sound=True), 1, 3)
    assert [line["reason"] for line in lines] == ["log_damaged", "behind_log_start", "log_has_gap"]
    assert counters.restarts == 3


async def test_a_follower_that_waits_says_why() -> None:
    """The metadata refuse the suspect replica, so its log is not discarded yet."""
    dropped = WhatIsDropped(tombstones_to=20, swaps=6, gone_by=5)
    async with following() as one:
        await one.follow(1)
        await one.links.answer(PartitionData(high_watermark=10, records=RECORDS))
        one.marks.is_refused = True
        one.marks.written.set()
        with capture_logs() as lines:
            await one.links.answer(PartitionData(high_watermark=10, dropped=dropped))
            await trio.sleep(FetchLimits().backoff_ms / 2000)
        [line] = as_dicts(lines)
        assert {"event": "replica fetch paused", "log_level": "warning", **PLACE}.items() <= line.items()
        assert one.counters.restarts == 0
