"""A partition against a model, a list of values: whatever is appended, killed, cut or restarted in whatever order."""

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Isolation, LogConfig, OffsetSpec, PartitionLog
from engine.batch import Record, build_batch
from engine.testing import MemoryFileSystem
from engine.tests.helpers import (
    MAX_BYTES,
    HeldPool,
    batches_in,
    bytes_of,
    open_orders,
    options,
    read,
    read_all,
    running,
)

CONFIG = LogConfig(segment_size_bytes=700)
EVERYTHING = Isolation.READ_UNCOMMITTED


class Step(NamedTuple):
    """One thing that happens; each kind uses the fields it needs."""

    kind: str
    batches: Sequence[list[int]] = ()  # the timestamps, which double as values, of the records of each batch
    seed: int | None = None
    offset: int = 0
    size_bytes: int = 100
    timestamp_ms: int = 0


batches = st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=4), min_size=1, max_size=5)
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("append"), batches),
        st.builds(Step, st.just("restart")),
        st.builds(Step, st.just("kill"), batches),
        st.builds(Step, st.just("power cut"), batches, seed=st.none() | st.integers(0, 99)),
        st.builds(
            Step,
            st.just("look"),
            offset=st.integers(0, 60),
            size_bytes=st.integers(1, 900),
            timestamp_ms=st.integers(0, 510),
        ),
    ),
    max_size=12,
)


@dataclass
class Model:
    """What the log must hold: timestamps double as values; plus what may follow without having been answered."""

    filesystem: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    records: list[int] = field(default_factory=list)
    unanswered: list[int] = field(default_factory=list)
    epoch: int = 0


def encoded(times: list[int]) -> memoryview:
    return memoryview(build_batch([Record(None, b"%d" % time, time) for time in times]))


async def live(model: Model, remaining: list[Step]) -> None:
    """One life of the broker: until a step ends it."""
    pool = HeldPool()
    scarce = dataclasses.replace(options(), open_files_max=1, loaded_indexes_max=1)
    async with running(model.filesystem, scarce, pool=pool) as store:
        log = await open_orders(store, CONFIG, model.epoch)
        model.epoch += 1
        stored = [int(value or b"-1") for value in (await read_all(log)).values()]
        possible = model.records + model.unanswered
        assert stored == possible[: len(stored)], "not what was appended, in order"
        assert len(stored) >= len(model.records), "an acknowledged record is lost"
        model.records, model.unanswered = stored, []
        while remaining:
            step = remaining.pop(0)
            if step.kind == "append":
                pending = [log.append(encoded(times), acks=-1) for times in step.batches]
                for one, times in zip(pending, step.batches, strict=True):
                    assert (await one.wait()).base_offset == len(model.records)
                    model.records += times
            elif step.kind == "look":
                await look(log, model, step)
            elif step.kind == "restart":
                await store.close()
                return
            else:
                pool.is_holding = True
                await die(log, model, step)
                return


async def look(log: PartitionLog, model: Model, step: Step) -> None:
    offset, timestamp_ms = step.offset, step.timestamp_ms
    if step.size_bytes % 2:
        model.filesystem.drop_cache()
    assert log.high_watermark == len(model.records)
    if offset < len(model.records):
        found = batches_in(bytes_of((await read(log, offset, step.size_bytes)).records))
        header, records = found[0]
        assert header.base_offset <= offset < header.next_offset
        assert [int(one.value or b"-1") for one in records] == model.records[header.base_offset : header.next_offset]
    answer = await log.offset_for_timestamp(timestamp_ms, EVERYTHING)
    expected = next((n for n, time in enumerate(model.records) if time >= timestamp_ms), -1)
    assert answer.offset == expected
    newest = await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING)
    assert newest.offset == (model.records.index(max(model.records)) if model.records else -1)
    assert log.read(len(model.records), MAX_BYTES, EVERYTHING, at_least_one=True).records == []


async def die(log: PartitionLog, model: Model, step: Step) -> None:
    """End in the middle of a round: written, but neither synced nor answered."""
    for times in step.batches:
        log.append(encoded(times), acks=-1)
        model.unanswered += times
    await trio.testing.wait_all_tasks_blocked()
    if step.kind == "power cut":
        model.filesystem.crash(None if step.seed is None else random.Random(step.seed))


async def run(script: list[Step]) -> None:
    model, remaining = Model(), [*script, Step("look"), Step("restart")]
    while remaining:
        with trio.CancelScope() as life:
            await live(model, remaining)
            life.cancel()


@settings(max_examples=150, deadline=None)
@given(steps)
def test_log_behaves_like_a_list_through_restarts_kills_and_power_cuts(script: list[Step]) -> None:
    clock: Callable[[], trio.abc.Clock] = partial(trio.testing.MockClock, autojump_threshold=0)
    trio.run(run, script, clock=clock())
