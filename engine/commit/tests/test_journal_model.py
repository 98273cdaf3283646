"""Many partitions and one journal against lists of values: commit batches, barriers, checkpoints, kills, power cuts.

A sync topic keeps all acknowledged records. An async one keeps a prefix of the appended records, and is never found
damaged. Deleted or truncated records stay away.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.api import PartitionLog, TopicIdPartition
from engine.log_config import FlushPolicy, LogConfig
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import HeldPool, batch, options, read_all, running

PARTITIONS = 4  # the last is of an async topic, and made durable every third batch
SYNC = LogConfig(segment_size_bytes=500)
ASYNC = LogConfig(segment_size_bytes=500, flush_policy=FlushPolicy.ASYNC, flush_messages=3)


class Step(NamedTuple):
    """A step of the script; each kind uses the fields that it needs."""

    kind: str
    numbers: Sequence[int] = ()  # partitions, one batch each time it is named
    seed: int | None = None
    offset: int = 0


numbers = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("append"), numbers),
        st.builds(Step, st.just("append"), numbers),
        st.builds(Step, st.just("wait")),
        st.builds(Step, st.just("delete"), numbers.map(lambda found: found[:1])),
        st.builds(Step, st.just("truncate"), numbers.map(lambda found: found[:1]), offset=st.integers(0, 12)),
        st.builds(Step, st.just("delete records"), numbers.map(lambda found: found[:1]), offset=st.integers(0, 12)),
        st.builds(Step, st.just("restart")),
        st.builds(Step, st.just("kill"), numbers),
        st.builds(Step, st.just("power cut"), numbers, seed=st.none() | st.integers(0, 999)),
    ),
    min_size=3,
    max_size=20,
)


@dataclass
class Expected:
    """The records that a partition must hold, and those that may follow without an acknowledgement."""

    number: int
    generation: int = 0
    values: list[bytes] = field(default_factory=list)
    unanswered: list[bytes] = field(default_factory=list)
    start: int = 0

    @property
    def is_async(self) -> bool:
        return self.number == PARTITIONS - 1

    @property
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(bytes([self.number, self.generation] * 8), f"topic{self.number}", self.number)

    def check(self, start: int, end: int, found: list[bytes | None], *, after_power_cut: bool) -> None:
        possible = self.values + self.unanswered
        assert start == self.start, "the log start is not where it was"
        assert found == possible[start:end], "not what was appended, in order"
        if not (self.is_async and after_power_cut):
            assert end >= len(self.values), "an acknowledged record is lost"
        self.values, self.unanswered = possible[:end], []


@dataclass
class World:
    """The state that outlives a broker."""

    filesystem: SimulatedFileSystem = field(default_factory=SimulatedFileSystem)
    partitions: list[Expected] = field(default_factory=lambda: [Expected(number) for number in range(PARTITIONS)])
    epoch: int = 0
    appended: int = 0
    after_power_cut: bool = False

    def next_value(self) -> bytes:
        self.appended += 1
        return b"%d" % self.appended


async def live(world: World, remaining: list[Step]) -> None:
    """Run a broker until a step ends it."""
    pool = HeldPool()
    async with running(world.filesystem, options(journal_slot_size_bytes=10_000), pool=pool) as store:
        world.epoch += 1
        logs = [await opened(store, world, one) for one in world.partitions]
        while remaining:
            step = remaining.pop(0)
            if step.kind == "append":
                await commit_batches(world, logs, step.numbers)
            elif step.kind == "wait":
                await trio.sleep(3)
            elif step.kind == "delete":
                expected = world.partitions[step.numbers[0]]
                await store.delete_partition(expected.partition)
                world.partitions[expected.number] = renewed = Expected(expected.number, expected.generation + 1)
                logs[expected.number] = await opened(store, world, renewed)
            elif step.kind == "truncate":
                expected = world.partitions[step.numbers[0]]
                offset = max(step.offset, expected.start)
                await store.truncate_partition(expected.partition, offset, below_sealed=True)
                del expected.values[offset:]
            elif step.kind == "delete records":
                expected = world.partitions[step.numbers[0]]
                offset = min(step.offset, len(expected.values))
                expected.start = max(expected.start, offset)
                assert await logs[expected.number].delete_records(offset) == expected.start
            elif step.kind == "restart":
                await store.close()
                world.after_power_cut = False
                return
            else:
                pool.is_holding = True
                await die(world, logs, step)
                return


async def opened(store: SegmentStore, world: World, expected: Expected) -> PartitionLog:
    log = await store.open_partition(expected.partition, ASYNC if expected.is_async else SYNC, world.epoch)
    found = await read_all(log)
    expected.check(log.log_start_offset, log.log_end_offset, [*found.values()], after_power_cut=world.after_power_cut)
    return log


async def commit_batches(world: World, logs: list[PartitionLog], numbers: Sequence[int]) -> None:
    pending = []
    for number in numbers:
        value = world.next_value()
        pending.append((world.partitions[number], value, logs[number].append(memoryview(batch(value)), acks=-1)))
    for expected, value, one in pending:
        assert (await one.wait()).base_offset == len(expected.values)
        expected.values.append(value)


async def die(world: World, logs: list[PartitionLog], step: Step) -> None:
    """End in the middle of a commit batch: it is written, to files or journal, but not answered."""
    for number in step.numbers:
        value = world.next_value()
        logs[number].append(memoryview(batch(value)), acks=-1)
        world.partitions[number].unanswered.append(value)
    await trio.testing.wait_all_tasks_blocked()
    world.after_power_cut = step.kind == "power cut"
    if world.after_power_cut:
        world.filesystem.crash(None if step.seed is None else random.Random(step.seed))


async def run(script: list[Step]) -> None:
    world, remaining = World(), [*script, Step("restart"), Step("restart")]
    while remaining:
        with trio.CancelScope() as life:
            await live(world, remaining)
            life.cancel()


@settings(max_examples=150, deadline=None)
@given(steps)
@example([Step("append", [3]), Step("delete records", [3], offset=12), Step("power cut", [0])])
def test_partitions_behave_like_lists_under_any_script_of_journal_events(script: list[Step]) -> None:
    clock: Callable[[], trio.abc.Clock] = partial(trio.testing.MockClock, autojump_threshold=0)
    trio.run(run, script, clock=clock())
