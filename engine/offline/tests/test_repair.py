"""Repair: no acknowledged record is lost unless the loss was accepted, and removed bytes are kept aside."""

import random

import pytest

from engine.api import PartitionLog
from engine.compaction.tests.test_cleaner import COMPACT, fill, until_compacted
from engine.compaction_horizon import CompactionHorizon
from engine.errors import CorruptMessage, StorageError, StoreRefused
from engine.logs.recovery.checkpoints import key_of, read_checkpoint
from engine.logs.segments.footer import footer_name
from engine.logs.segments.segment import segment_name
from engine.offline.inspection import held, partitions, segment_files, verify
from engine.offline.repair import RepairReport, repair
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.upkeep.tests.test_sealing import DIRECTORY, ROLLING, bases, check_footers, filled
from testkit.logs import ORDERS, append, open_orders, read_all, running


async def damaged_log(*, is_clean: bool = True) -> tuple[SimulatedFileSystem, dict[int, bytes | None]]:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING)
        await filled(log)
        values = await read_all(log)
        if is_clean:
            await store.close()
    if not is_clean:
        filesystem.crash(random.Random(1))
    return filesystem, values


async def reopened(filesystem: SimulatedFileSystem) -> dict[int, bytes | None]:
    """Open the log in a broker and append to it; returns its records from before the append."""
    async with running(filesystem) as store:
        log: PartitionLog = await open_orders(store, ROLLING, 1)
        values = await read_all(log)
        await append(log, b"on it goes")
        await store.close()
        return values


def path_of(base: int) -> str:
    return f"{DIRECTORY}/{segment_name(base)}"


@pytest.mark.parametrize("is_clean", [True, False])
async def test_repair_keeps_all_records_of_a_sound_log(is_clean: bool) -> None:
    filesystem, values = await damaged_log(is_clean=is_clean)
    before = {path: content for path, content in filesystem.files().items() if path.startswith(DIRECTORY)}
    outcome = repair(filesystem, "/data")
    assert outcome.unrepaired == []
    after = {path: content for path, content in filesystem.files().items() if path.startswith(DIRECTORY)}
    assert (outcome.done, after) == ([], before) or not is_clean
    assert filesystem.exists("/data/clean-shutdown") is is_clean
    assert await reopened(filesystem) == values


async def test_footers_are_written_anew() -> None:
    filesystem, values = await damaged_log()
    missing, damaged = bases(filesystem, ".footer")[:2]
    filesystem.unlink(f"{DIRECTORY}/{footer_name(missing)}")
    filesystem.damage(f"{DIRECTORY}/{footer_name(damaged)}", 20, b"~")
    outcome = repair(filesystem, "/data")
    assert (len(outcome.done), outcome.unrepaired) == (2, [])
    check_footers(filesystem)
    assert repair(filesystem, "/data") == RepairReport([], [])
    assert await reopened(filesystem) == values


async def test_a_rotten_batch_is_named_and_left() -> None:
    filesystem, values = await damaged_log()
    base = bases(filesystem, ".log")[1]
    filesystem.damage(path_of(base), 70, b"~")
    for accept_loss in (False, True):
        outcome = repair(filesystem, "/data", accept_loss=accept_loss)
        assert [path_of(base) in line for line in outcome.unrepaired] == [True]
    async with running(filesystem) as store:
        log = await open_orders(store, ROLLING, 1)
        with pytest.raises(CorruptMessage):
            await read_all(log)
        await append(log, b"on it goes")
    assert set(values)


async def test_a_missing_segment_is_given_up_only_on_demand() -> None:
    filesystem, values = await damaged_log()
    third = bases(filesystem, ".log")[2]
    gone = filesystem.content(path_of(third))
    behind = {base: filesystem.content(path_of(base)) for base in bases(filesystem, ".log")[3:]}
    filesystem.unlink(path_of(third))
    outcome = repair(filesystem, "/data")
    assert outcome.unrepaired == [f"{DIRECTORY} is damaged from offset {third} on: it takes no appends"]
    assert {base: filesystem.content(path_of(base)) for base in behind} == behind
    outcome = repair(filesystem, "/data", accept_loss=True)
    assert outcome.unrepaired == []
    kept = {base: filesystem.content(path_of(base) + ".quarantined") for base in behind}
    assert kept == behind
    assert gone
    assert await reopened(filesystem) == {offset: value for offset, value in values.items() if offset < third}
    async with running(filesystem) as store:
        await filled(await open_orders(store, ROLLING, 2))
        check_footers(filesystem)


async def test_a_missing_beginning_moves_the_log_start() -> None:
    filesystem, values = await damaged_log()
    first, second = bases(filesystem, ".log")[:2]
    filesystem.unlink(path_of(first))
    assert len(repair(filesystem, "/data").unrepaired) == 1
    assert repair(filesystem, "/data", accept_loss=True).unrepaired == []
    assert await reopened(filesystem) == {offset: value for offset, value in values.items() if offset >= second}


async def test_a_missing_end_is_given_up() -> None:
    filesystem, values = await damaged_log()
    last = bases(filesystem, ".log")[-1]
    size_bytes = filesystem.size(path_of(last))
    filesystem.open(path_of(last)).truncate(size_bytes - 5)
    assert len(repair(filesystem, "/data").unrepaired) == 1
    assert filesystem.size(path_of(last)) == size_bytes - 5
    assert repair(filesystem, "/data", accept_loss=True).unrepaired == []
    assert filesystem.size(path_of(last) + ".quarantined") == size_bytes - 5 - filesystem.size(path_of(last))
    found = await reopened(filesystem)
    assert found == {offset: values[offset] for offset in found}
    assert len(found) == len(values) - 1


async def test_repair_does_not_overwrite_an_existing_quarantined_file() -> None:
    filesystem, _ = await damaged_log()
    last = bases(filesystem, ".log")[-1]
    filesystem.open(path_of(last)).truncate(filesystem.size(path_of(last)) - 5)
    filesystem.open(path_of(last) + ".quarantined", create=True)
    with pytest.raises(StorageError, match="move it away"):
        repair(filesystem, "/data", accept_loss=True)


async def test_the_index_is_dropped_on_demand() -> None:
    filesystem, values = await damaged_log()
    assert repair(filesystem, "/data", drops_index=True).done == ["/data/index was dropped"]
    assert filesystem.list_dir("/data/index") == []
    assert await reopened(filesystem) == values


async def test_not_while_a_broker_runs_and_only_on_a_log_dir() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await open_orders(store)
        with pytest.raises(StoreRefused, match="in use by another broker"):
            repair(filesystem, "/data")
        with pytest.raises(StoreRefused, match="in use by a broker"), held(filesystem, "/data"):
            pass
    for use in (lambda: repair(filesystem, "/elsewhere"), lambda: held(filesystem, "/elsewhere").__enter__()):
        with pytest.raises(StoreRefused, match="is no log dir"):
            use()


async def test_verify_distinguishes_a_torn_tail_from_rot() -> None:
    filesystem, _ = await damaged_log(is_clean=False)
    file = filesystem.open(path_of(bases(filesystem, ".log")[-1]))
    file.write_at([b"torn"], file.size())
    [partition] = partitions(filesystem, "/data")
    verdicts = [verify(filesystem, partition, one) for one in segment_files(filesystem, DIRECTORY)]
    assert [one.problem is None for one in verdicts[:-1]] == [True] * (len(verdicts) - 1)
    assert verdicts[-1].is_torn
    assert [line for line in repair(filesystem, "/data").done if "as a crash leaves" in line]
    filesystem.damage(path_of(bases(filesystem, ".log")[0]), 70, b"~")
    assert not verify(filesystem, partition, segment_files(filesystem, DIRECTORY)[0]).is_torn


@pytest.mark.parametrize("segment", [0, 1, 3])
async def test_a_loss_in_the_compacted_part_of_a_log_is_remembered(segment: int) -> None:
    """A lost record may have replaced others that compaction dropped: another replica may have those."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        compacted_to = (await until_compacted(log)).log.compacted_to
        await store.close()
    base = bases(filesystem, ".log")[segment]
    size_bytes = filesystem.size(path_of(base))
    filesystem.open(path_of(base)).truncate(size_bytes - 5)
    assert len(repair(filesystem, "/data").unrepaired) == 1
    assert repair(filesystem, "/data", accept_loss=True).unrepaired == []
    point = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
    assert (point.recovery_point, point.compacted_to, point.replaced_to) == (base, base, compacted_to)
    async with running(filesystem) as store:
        led = await open_orders(store, COMPACT, 3)
        assert isinstance(led, Partition)
        assert led.log.end.offset == base
        # A follower that ends there or before re-replicates the partition from scratch.
        assert led.log.dropped == CompactionHorizon(base + 1, 0, base + 1, 3)
        await append(led, b"on it goes")
        await store.close()
    assert repair(filesystem, "/data") == RepairReport([], [])


async def test_a_loss_behind_the_compacted_part_of_a_log_leaves_its_gaps_as_they_are() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, COMPACT)
        await fill(log)
        compacted_to = (await until_compacted(log)).log.compacted_to
        await store.close()
    before = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
    filesystem.open(path_of(compacted_to)).truncate(5)
    assert repair(filesystem, "/data", accept_loss=True).unrepaired == []
    point = read_checkpoint(filesystem, "/data").partitions[key_of(ORDERS)]
    assert (point.compacted_to, point.dropped) == (compacted_to, before.dropped)
    async with running(filesystem) as store:
        led = await open_orders(store, COMPACT, 3)
        assert isinstance(led, Partition)
        assert led.log.dropped == CompactionHorizon()
        assert len(await read_all(led)) >= 4
