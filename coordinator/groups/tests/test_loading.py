"""A load in pieces, with the newest record of each key alone, has the result of all records in order (RULES C4)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.groups.api import NO_EXPIRY_MS, CommittedOffset
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.records import GroupKey, GroupRecord, OffsetKey, encode_key, encode_value
from coordinator.groups.step import GroupSettings
from coordinator.groups.table import GroupTable
from coordinator.shards.loading import APPLIED_PER_TURN, Loading
from coordinator.shards.shard import ReplyFuture
from coordinator.shards.table import Moment
from coordinator.state.log import StateBatch, StateMarker, StateProducer, StateRecord, StateSlice
from coordinator.testing.fakes import FakeStateLog, SimulatedStateCaches

if TYPE_CHECKING:
    from collections.abc import Collection

    from coordinator.state.cache import Checkpoint

Table = GroupTable[ReplyFuture]
Changes = dict[bytes, bytes | None]

PRODUCERS: Final = [StateProducer(1, 0), StateProducer(2, 0)]


def offset_record(group: str, partition: int, offset: int | None) -> StateRecord:
    key = encode_key(OffsetKey(group, "t", partition))
    if offset is None:
        return StateRecord(key, None)
    return StateRecord(key, encode_value(CommittedOffset(offset, -1, "", 0, NO_EXPIRY_MS)))


def group_record(group: str, generation_id: int | None) -> StateRecord:
    value = None if generation_id is None else GroupRecord("consumer", generation_id, None, None, 0, ())
    return StateRecord(encode_key(GroupKey(group)), None if value is None else encode_value(value))


NAMES = st.sampled_from("gh")
COMMITS = st.builds(offset_record, NAMES, st.integers(0, 1), st.integers(0, 99))
PLAIN = st.lists(
    COMMITS
    | st.builds(offset_record, NAMES, st.integers(0, 1), st.none())
    | st.builds(group_record, NAMES, st.none() | st.integers(1, 9)),
    min_size=1,
    max_size=4,
)
BATCHES = st.lists(
    st.builds(StateBatch, PLAIN)
    | st.builds(StateBatch, st.lists(COMMITS, min_size=1, max_size=3), st.sampled_from(PRODUCERS))
    | st.builds(StateMarker, st.sampled_from([1, 2]), st.just(0), st.just(0), st.booleans()),
    max_size=20,
)


class SlicedLog(FakeStateLog):
    """A log that is read so many batches at a time."""

    def __init__(self, batches: list[StateBatch | StateMarker], per_slice: int) -> None:
        super().__init__()
        self._per_slice = per_slice
        for one in batches:
            self._append(one)

    async def read(self, offset: int) -> StateSlice:
        await trio.lowlevel.checkpoint()
        found = [one for one in self.batches if one.end_offset > offset][: self._per_slice]
        return StateSlice([one.content for one in found], found[-1].end_offset, 0)


def new_table() -> Table:
    return GroupTable(GroupSettings(), OffsetSettings())


def one_by_one(batches: list[StateBatch | StateMarker]) -> tuple[Table, Changes]:
    table, changes = new_table(), Changes()
    for batch in batches:
        if isinstance(batch, StateMarker):
            changes.update(table.apply_marker(batch))
            continue
        if batch.producer is None:
            changes.update(batch.records)
        apply = table.apply if batch.producer is None else partial(table.apply_in_transaction, batch.producer)
        for record in batch.records:
            apply(record)
    return table, changes


async def read(log: FakeStateLog) -> tuple[Table, Changes]:
    table, changes = new_table(), Changes()

    def advance(checkpoint: Checkpoint, since: Collection[tuple[bytes, bytes | None]]) -> None:
        changes.update(since)

    loading = Loading(
        topic_id=log.topic_id,
        name="of a test",
        partition=0,
        cache=await SimulatedStateCaches().open(Path("view")),
        table=table,
        advance=advance,
    )
    await loading.read(log)
    return table, changes


def state_of(table: Table) -> list[object]:
    """The state of each group, without regard to their order; then the same with each pending transaction committed."""
    list(table.wake(Moment(0, 0, str)))
    found: list[object] = []
    for producer in [None, *PRODUCERS]:
        if producer is not None:
            found.append(sorted(table.apply_marker(StateMarker(*producer, 0, is_commit=True))))
        found += [(group, sorted(table.offsets.pending.of_group(group))) for group in "gh"]
        figures = sorted(table.figures())
        found += [(one.group_id, one.state, sorted(one.offsets)) for one in figures]
        found += sorted((group_id, entry.group.generation_id) for group_id, entry in table._entries.items())
    return found


PENDED: Final = StateBatch([offset_record("g", 0, 1)], PRODUCERS[0])
SET: Final = StateBatch([offset_record("g", 0, 2)])
DELETED: Final = StateBatch([offset_record("g", 0, None)])
ENDED: Final = StateMarker(*PRODUCERS[0], 0, is_commit=True)


@example([PENDED, DELETED, SET], 20)
@example([PENDED, SET, ENDED], 20)
@example([SET, PENDED, ENDED], 20)
@example([PENDED, ENDED, SET], 20)
@given(BATCHES, st.integers(1, 20))
def test_a_sliced_load_equals_a_load_record_by_record(batches: list[StateBatch | StateMarker], per_slice: int) -> None:
    expected_table, expected_changes = one_by_one(batches)
    table, changes = trio.run(read, SlicedLog(batches, per_slice))
    assert changes == expected_changes
    assert state_of(table) == state_of(expected_table)


async def test_others_get_their_turn_while_much_is_applied() -> None:
    many = [offset_record("g", partition, 1) for partition in range(APPLIED_PER_TURN * 10)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.lowlevel.checkpoint()
        before = turns
        await read(SlicedLog([StateBatch(many)], 1))
        assert turns - before >= len(many) // APPLIED_PER_TURN
        nursery.cancel_scope.cancel()
