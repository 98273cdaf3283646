"""Each key about compaction, set to another value than its default, changes the stored records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from engine.compaction.cleaner import Cleaner
from engine.partitions.partition import Partition
from kafkawire.config.tests.test_enforced import create, enforces, produce, segments
from kafkawire.testing import EPOCH_MS, MemoryDeps, OpenBroker, open_broker

QUICK = {"log_cleaner_backoff_ms": "1000"}
# Every batch begins a segment: the index of the one before is full.
ROLLING = {"log_index_size_max_bytes": "4"}
COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


def log_of(opened: OpenBroker) -> Partition:
    [found] = [one for one in opened.broker.store._partitions.values() if one.partition.topic == "t"]
    return found


async def fill(opened: OpenBroker, topic: dict[str, str] | None = None, *, count: int = 4, keys: int = 1) -> None:
    client = opened.connect()
    assert await create(client, **{**COMPACTED, **(topic or {})}) == 0
    for number in range(count):
        await put(opened, b"%d" % (number % keys), b"value")


async def put(opened: OpenBroker, key: bytes, value: bytes | None) -> None:
    now_ms = EPOCH_MS + round(trio.current_time() * 1000)
    row = await produce(opened.connect(), value, now_ms, key=key)  # type: ignore[arg-type]  # a tombstone
    assert row.error_code == 0


def records(opened: OpenBroker) -> int:
    """The number of inactive segments with records: a batch without records has 61 bytes."""
    return sum(one.size_bytes > 61 for one in log_of(opened).log.segments[:-1])


@enforces("log.cleanup.policy")
@enforces("cleanup.policy")
@pytest.mark.parametrize(
    ("broker", "topic", "left"),
    [
        ({}, {"cleanup_policy": "compact"}, 1),
        ({}, {"cleanup_policy": "compact,delete"}, 1),
        ({}, {"cleanup_policy": "delete"}, 3),
        ({}, {"cleanup_policy": ""}, 3),
        ({"log_cleanup_policy": "compact"}, {}, 1),
    ],
)
async def test_the_newest_record_of_a_key_stays(broker: dict[str, str], topic: dict[str, str], left: int) -> None:
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        client = opened.connect()
        assert await create(client, min_cleanable_dirty_ratio="0.01", **topic) == 0
        for _ in range(4):
            await put(opened, b"key", b"value")
        await trio.sleep(2)
        assert records(opened) == left


@enforces("cleanup.policy")
async def test_records_without_a_key_are_refused() -> None:
    async with open_broker(**QUICK) as opened:
        client = opened.connect()
        await create(client, cleanup_policy="compact")
        row = await produce(client, b"value")
        text = "Compacted topic cannot accept message without key in topic partition t-0"
        assert (row.error_code, row.base_offset) == (87, -1)
        assert [(one.batch_index, one.batch_index_error_message) for one in row.record_errors] == [(0, text)]
        assert row.error_message.endswith(f"[RecordError(batchIndex=0, message='{text}')]")


@enforces("log.cleaner.delete.retention.ms")
@enforces("delete.retention.ms")
@pytest.mark.parametrize(
    ("broker", "topic"), [({"log_cleaner_delete_retention_ms": "60000"}, {}), ({}, {"delete_retention_ms": "60000"})]
)
async def test_tombstones_go_after_a_while(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        await fill(opened, topic, count=1)
        await put(opened, b"0", None)
        for wait_s, left in ((50, 1 + 1), (20, 1)):  # with the newest record of the other key
            for _ in range(2):
                await put(opened, b"other", b"value")
            await trio.sleep(wait_s)
            await put(opened, b"other", b"value")
            await trio.sleep(2)
            assert records(opened) == left


@enforces("log.cleaner.min.compaction.lag.ms")
@enforces("min.compaction.lag.ms")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_cleaner_min_compaction_lag_ms": "60000"}, {}), ({}, {"min_compaction_lag_ms": "60000"})],
)
async def test_young_records_stay(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        await fill(opened, topic)
        await trio.sleep(50)
        assert records(opened) == 3
        await trio.sleep(20)
        assert records(opened) == 1


@enforces("log.cleaner.max.compaction.lag.ms")
@enforces("max.compaction.lag.ms")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_cleaner_max_compaction_lag_ms": "60000"}, {}), ({}, {"max_compaction_lag_ms": "60000"})],
)
async def test_old_records_are_compacted_however_few(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        await fill(opened, {"min_cleanable_dirty_ratio": "1", **topic})
        await trio.sleep(50)
        assert records(opened) == 3
        await trio.sleep(20)
        assert records(opened) == 1


@enforces("max.compaction.lag.ms")
async def test_a_segment_rolls_when_its_records_exceed_the_max_compaction_lag() -> None:
    deps = MemoryDeps()
    async with open_broker(deps, **QUICK) as opened:
        await fill(opened, {"max_compaction_lag_ms": "60000"}, count=1)
        await trio.sleep(61)
        await put(opened, b"0", b"value")
        assert segments(deps) == 2


@enforces("min.compaction.lag.ms")
async def test_a_min_compaction_lag_above_the_max_is_refused() -> None:
    async with open_broker() as opened:
        lags = {"min_compaction_lag_ms": "2000", "max_compaction_lag_ms": "1000"}
        assert await create(opened.connect(), **lags) == 40


@enforces("log.cleaner.min.cleanable.ratio")
@enforces("min.cleanable.dirty.ratio")
@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_cleaner_min_cleanable_ratio": "1"}, {}), ({}, {"min_cleanable_dirty_ratio": "1"})],
)
async def test_little_that_is_new_is_not_worth_it(broker: dict[str, str], topic: dict[str, str]) -> None:
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        client = opened.connect()
        await create(client, cleanup_policy="compact", **topic)
        for _ in range(4):
            await put(opened, b"key", b"value")
        await trio.sleep(60)
        assert records(opened) == 3


@enforces("log.cleaner.enable")
@enforces("log.cleaner.threads")
@enforces("log.cleaner.backoff.ms")
@pytest.mark.parametrize(
    ("broker", "left"),
    [
        ({"log_cleaner_enable": "false"}, 3),
        ({"log_cleaner_threads": "0"}, 3),
        ({"log_cleaner_threads": "2"}, 1),
        ({"log_cleaner_backoff_ms": "70000"}, 3),
    ],
)
async def test_the_cleaner_compacts_only_when_its_keys_allow_it(broker: dict[str, str], left: int) -> None:
    async with open_broker(**{**QUICK, **ROLLING, **broker}) as opened:
        await fill(opened)
        await trio.sleep(60)
        assert records(opened) == left


@enforces("log.cleaner.io.max.bytes.per.second")
async def test_the_cleaner_keeps_to_a_rate() -> None:
    async with open_broker(**QUICK, **ROLLING, log_cleaner_io_max_bytes_per_second="10") as opened:
        await fill(opened)
        await trio.sleep(30)
        assert records(opened) == 3
        await trio.sleep(90)
        assert records(opened) == 1


@enforces("log.cleaner.dedupe.buffer.size")
@enforces("log.cleaner.io.buffer.load.factor")
@pytest.mark.parametrize(
    "broker",
    [
        {"log_cleaner_dedupe_buffer_size": "1048577", "log_cleaner_io_buffer_load_factor": "0.0003"},
        {"log_cleaner_io_buffer_load_factor": "0.000003"},
    ],
)
async def test_keys_that_do_not_fit_take_another_pass(broker: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    passes = count(monkeypatch, "_clean")
    async with open_broker(**QUICK, **ROLLING, **broker) as opened:
        await fill(opened, count=9, keys=4)
        await trio.sleep(2)
        assert records(opened) == 4
        assert len(passes) > 2


@enforces("log.cleaner.io.buffer.size")
@pytest.mark.parametrize(("size", "slices"), [("524288", 3 + 3), ("1", 5 + 5)])
async def test_a_buffer_full_at_a_time(size: str, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count(monkeypatch, "_paced")
    async with open_broker(**QUICK, log_segment_bytes=str(1 << 20), log_cleaner_io_buffer_size=size) as opened:
        client = opened.connect()
        await create(client, **COMPACTED)
        for _ in range(4):
            await produce(client, bytes(250_000), key=b"key")
        for _ in range(2):
            await produce(client, bytes(800_000), key=b"key")
        await trio.sleep(2)
        assert len(taken) == slices


def count(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """Record the calls of a method of the cleaner."""
    calls: list[tuple[Any, ...]] = []
    method: Callable[..., Any] = getattr(Cleaner, name)

    async def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return await method(*arguments)

    monkeypatch.setattr(Cleaner, name, counted)
    return calls
