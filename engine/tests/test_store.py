"""Log dirs at start and stop, placement and deletion of partitions."""

import dataclasses
import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio
import trio.testing

from engine.api import Isolation, TopicIdPartition
from engine.errors import (
    EngineError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    StorageError,
    StoreRefused,
    UnknownPartition,
)
from engine.files.filesystem import PosixFileSystem
from engine.files.io_workers import LoopPool
from engine.log_config import LogConfig
from engine.logs.segments.segment import segment_name
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFile, SimulatedFileSystem
from engine.upkeep.retention_task import SPACE_CHECK_INTERVAL_S, RetentionOptions
from testkit.logs import (
    NO_JOURNAL,
    ORDERS,
    HeldPool,
    append,
    batch,
    bytes_of,
    fates,
    open_orders,
    options,
    read_all,
    running,
)

T = TypeVar("T")


def partition(number: int, topic: str = "orders", topic_id: bytes = bytes(range(16))) -> TopicIdPartition:
    return TopicIdPartition(topic_id, topic, number)


async def refused(filesystem: SimulatedFileSystem, cluster_id: str = "cluster", broker_id: int = 1) -> str:
    with pytest.RaisesGroup(StoreRefused) as caught:
        async with running(filesystem, options(cluster_id=cluster_id, broker_id=broker_id)):
            pass
    [error] = caught.value.exceptions
    assert "\n" not in str(error)
    return str(error)


async def test_two_brokers_on_one_log_dir() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        assert await refused(filesystem) == "/data is in use by another broker"
        await store.close()
    async with running(filesystem):
        pass


async def test_foreign_log_dirs_are_refused_and_stay_as_they_are() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await store.close()
    before = filesystem.content("/data/clean-shutdown")
    assert "cluster.id cluster" in await refused(filesystem, cluster_id="other")
    assert "broker.id 1" in await refused(filesystem, broker_id=2)
    assert filesystem.content("/data/clean-shutdown") == before


@pytest.mark.parametrize("name", ["meta.properties", "clean-shutdown", "checkpoint"])
async def test_l7_unknown_format_version_is_refused(name: str) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await open_orders(store)
        await store.close()
    filesystem.damage(f"/data/{name}", 8, b"7")
    assert name in await refused(filesystem)


async def test_partitions_without_meta_are_refused() -> None:
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/data")
    filesystem.make_dir("/data/orders-0")
    assert "meta.properties" in await refused(filesystem)


async def test_l7_clean_marker_is_written_last_and_removed_durably_before_the_first_append() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await store.close()
    assert filesystem.operations[-2].target == "/data/clean-shutdown"
    filesystem.operations.clear()
    async with running(filesystem) as store:
        await append(await open_orders(store, leader_epoch=1), b"b")
    kinds = [(operation.kind, operation.path) for operation in filesystem.operations]
    removed = kinds.index(("unlink", "/data/clean-shutdown"))
    assert kinds[removed + 1] == ("sync_dir", "/data")
    assert removed < next(at for at, (kind, path) in enumerate(kinds) if kind == "write" and path.endswith(".log"))


async def test_a_partition_not_opened_since_a_crash_prevents_the_clean_shutdown_marker() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
    filesystem.crash()
    async with running(filesystem) as store:
        await store.close()
    assert not filesystem.exists("/data/clean-shutdown")
    async with running(filesystem) as store:
        await open_orders(store, leader_epoch=1)
        await store.close()
    assert filesystem.exists("/data/clean-shutdown")


async def test_files_are_named_and_laid_out_as_kafka_does() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
    assert filesystem.list_dir("/data/orders-0") == ["00000000000000000000.log", "partition.metadata"]
    lines = filesystem.content("/data/orders-0/partition.metadata").splitlines()
    assert lines == [b"version: 0", b"topic_id: AAECAwQFBgcICQoLDA0ODw", b"crc32: 94016506"]


async def test_new_partitions_go_to_the_log_dir_with_the_fewest() -> None:
    filesystem = SimulatedFileSystem()
    dirs = ("/disk/a", "/disk/b", "/disk/c")
    async with running(filesystem, options(*dirs)) as store:
        for number in range(7):
            await append(await store.open_partition(partition(number), LogConfig(), 0), b"%d" % number)
        held = [[name for name in filesystem.list_dir(path) if name.startswith("orders-")] for path in dirs]
        assert sorted(map(len, held)) == [2, 2, 3]
        await store.close()
    async with running(filesystem, options(*dirs)) as store:
        for number in range(7):
            log = await store.open_partition(partition(number), LogConfig(), 1)
            assert await read_all(log) == {0: b"%d" % number}


async def test_a_failing_log_dir_goes_offline_alone() -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, options("/a", "/b"), fatal=fatal) as store:
        first = await store.open_partition(partition(0), LogConfig(), 0)
        second = await store.open_partition(partition(1), LogConfig(), 0)
        filesystem.faults.append(Fault("fdatasync", errno.EIO, "orders-0/00000000000000000000.log"))
        with pytest.raises(StorageError):
            await append(first, b"lost")
        assert (await append(second, b"kept")).base_offset == 0
        with pytest.raises(StorageError):
            store.get(partition(0))
        assert store.get(partition(1)) is second
        assert fatal == []
        await store.close()
    assert filesystem.exists("/b/clean-shutdown")
    assert not filesystem.exists("/a/clean-shutdown")


async def test_log_dir_that_fails_at_start_is_offline_and_hides_no_partition() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a", "/b")) as store:
        for number in range(2):
            await append(await store.open_partition(partition(number), LogConfig(), 0), b"x")
        await store.close()
    filesystem.faults.append(Fault("read", errno.EIO, "/a/meta.properties"))
    async with running(filesystem, options("/a", "/b")) as store:
        assert await read_all(await store.open_partition(partition(1), LogConfig(), 1)) == {0: b"x"}
        with pytest.raises(StorageError, match="may be on a log dir that is offline"):
            await store.open_partition(partition(0), LogConfig(), 1)
        await store.open_partition(partition(2), LogConfig(), 0)


async def test_no_usable_log_dir_refuses_to_start() -> None:
    filesystem = SimulatedFileSystem()
    filesystem.faults.append(Fault("make_dir", errno.EROFS))
    assert "no usable log dir" in await refused(filesystem)


async def test_partition_with_records_in_two_log_dirs_is_refused() -> None:
    filesystem = SimulatedFileSystem()
    for path in ("/a", "/b"):
        async with running(filesystem, options(path)) as store:
            await append(await open_orders(store), b"x")
            await store.close()
    async with running(filesystem, options("/a", "/b")) as store:
        with pytest.raises(StorageError, match="in two log dirs"):
            await open_orders(store, leader_epoch=1)
        with pytest.raises(StoreRefused, match="orders-0 is in two log dirs: /a and /b"):
            await store.strays.apply_fates(fates(lambda *_: True))


async def test_a_log_dir_that_missed_the_recreation_of_a_topic_does_not_block_the_new_topic() -> None:
    filesystem = SimulatedFileSystem()
    other_topic = partition(0, topic_id=bytes([7] * 16))
    for path, one in (("/a", ORDERS), ("/b", other_topic)):
        async with running(filesystem, options(path)) as store:
            await append(await store.open_partition(one, LogConfig(), 0), path.encode())
            await store.close()
    async with running(filesystem, options("/a", "/b")) as store:
        await store.strays.apply_fates(fates(lambda topic_id, _: topic_id == other_topic.topic_id))
        assert list((await read_all(await store.open_partition(other_topic, LogConfig(), 1))).values()) == [b"/b"]


@pytest.mark.parametrize("with_metadata", [True, False])
async def test_left_overs_of_an_opening_that_failed_are_no_log(*, with_metadata: bool) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a")) as store:
        await open_orders(store)
        await store.close()
    if not with_metadata:
        filesystem.unlink("/a/orders-0/partition.metadata")
    async with running(filesystem, options("/b")) as store:
        await append(await open_orders(store), b"x")
        await store.close()
    async with running(filesystem, options("/a", "/b")) as store:
        await store.strays.apply_fates(fates(lambda *_: True))
        assert (await open_orders(store, leader_epoch=1)).log_end_offset == 1
        await store.close()
    assert filesystem.exists("/a/clean-shutdown")


async def test_partition_whose_opening_failed_may_go_to_another_log_dir() -> None:
    filesystem = SimulatedFileSystem()
    filesystem.faults.append(Fault("make_dir", errno.EIO, "/a/orders-0"))
    async with running(filesystem, options("/a", "/b")) as store:
        with pytest.raises(StorageError):
            await open_orders(store)
        await open_orders(store)
        assert filesystem.exists("/b/orders-0")


async def test_a_recreated_topic_does_not_wait_for_the_failed_log_dir() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a", "/b")) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault("write", errno.EIO, directory="/a/"))
        with pytest.raises(StorageError):
            await append(log, b"x")
        with pytest.raises(StorageError):
            await store.delete_partition(ORDERS)
        await store.open_partition(partition(0, topic_id=bytes([7] * 16)), LogConfig(), 0)
        assert filesystem.exists("/b/orders-0")


async def test_parent_directories_of_a_log_dir_are_synced_after_a_kill_before_its_first_use() -> None:
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/some")
    filesystem.make_dir("/some/data")  # by a process that was killed before it synced the names
    async with running(filesystem, options("/some/data")):
        pass
    first_use = [(one.kind, one.path) for one in filesystem.operations[2:]]
    assert first_use[:2] == [("sync_dir", "/"), ("sync_dir", "/some")]
    filesystem.operations.clear()
    async with running(filesystem, options("/some/data")):
        assert ("sync_dir", "/some") not in [(one.kind, one.path) for one in filesystem.operations]


async def test_deleted_partition_is_gone_at_once_and_for_good_while_reads_go_on() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await append(log, b"a")
        held = log.read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
        await store.delete_partition(ORDERS)
        with pytest.raises(UnknownPartition):
            store.get(ORDERS)
        with pytest.raises(UnknownPartition):
            log.append(memoryview(batch(b"b")), acks=-1)
        with pytest.raises(UnknownPartition):
            await store.delete_partition(ORDERS)
        assert len(bytes_of(held.records)) == held.size_bytes
        assert not filesystem.exists("/data/orders-0")
        again = await open_orders(store)
        assert (await append(again, b"new")).base_offset == 0
        await store.close()
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, leader_epoch=1)) == {0: b"new"}


async def test_every_crash_during_deletion_leaves_the_whole_partition_or_none() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"a")
        await trio.sleep(100)  # its recovery point is on disk
        start = len(filesystem.operations)
        await store.delete_partition(ORDERS)
    for count in range(start, len(filesystem.operations) + 1):
        for seed in (None, *range(10)):
            image = SimulatedFileSystem.replayed(filesystem.operations[:count])
            image.crash(None if seed is None else random.Random(seed))
            if not image.exists("/data/orders-0"):
                continue
            async with running(image) as store:
                assert await read_all(await open_orders(store, leader_epoch=1)) == {0: b"a"}


async def test_leftovers_of_a_deletion_are_removed_at_the_next_start() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await open_orders(store)
        filesystem.faults.append(Fault("unlink", errno.EIO))
        with pytest.raises(StorageError):
            await store.delete_partition(ORDERS)
    remaining = [name for name in filesystem.list_dir("/data") if name.endswith("-delete")]
    assert len(remaining) == 1
    async with running(filesystem):
        assert remaining[0] not in filesystem.list_dir("/data")


class WatchedPool(LoopPool):
    """A loop pool that knows whether a job runs."""

    is_working = False

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        def watched() -> T:
            self.is_working = True
            try:
                return job()
            finally:
                self.is_working = False

        return await super().run(worker, watched)


async def delete(store: SegmentStore) -> None:
    await store.delete_partition(ORDERS)


async def truncate(store: SegmentStore) -> None:
    await store.truncate_partition(ORDERS, 0, below_sealed=True)


@pytest.mark.parametrize(("remove", "bases"), [(delete, [0, 1]), (truncate, [1])])
async def test_a_worker_closes_the_files_of_removed_segments(
    monkeypatch: pytest.MonkeyPatch, remove: Callable[[SegmentStore], Awaitable[None]], bases: list[int]
) -> None:
    """The loop would stand still while the kernel frees the page cache of the files."""
    pool = WatchedPool()
    closed: list[tuple[str, bool]] = []
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, LogConfig(segment_size_bytes=100))
        await append(log, b"a")
        await append(log, b"b")
        assert await read_all(log) == {0: b"a", 1: b"b"}

        def note(file: SimulatedFile) -> None:
            if file.path.endswith(".log"):
                closed.append((file.path, pool.is_working))

        monkeypatch.setattr(SimulatedFile, "__del__", note, raising=False)
        await remove(store)
        assert sorted(closed) == [(f"/data/orders-0/{segment_name(base)}", True) for base in bases]


async def test_directory_of_another_topic_of_that_name_is_set_aside() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store), b"old")
        await store.close()
    async with running(filesystem) as store:
        log = await store.open_partition(partition(0, topic_id=b"\xff" * 16), LogConfig(), 0)
        assert await read_all(log) == {}
        assert f"orders-0.{bytes(range(16)).hex()}-stray" in filesystem.list_dir("/data")


async def test_directories_set_aside_never_have_the_same_name() -> None:
    filesystem = SimulatedFileSystem()
    topic = "x" * 240
    for topic_id in (bytes(16), bytes([7] * 16)):
        async with running(filesystem) as store:
            for number in (0, 1):
                await store.open_partition(partition(number, topic, topic_id), LogConfig(), 0)
            await store.close()
    aside = [name for name in filesystem.list_dir("/data") if name.endswith("-stray")]
    assert sorted(aside) == [f"{topic[:150]}-{number}.{bytes(16).hex()}-stray" for number in (0, 1)]


async def test_close_answers_queued_appends_and_refuses_later_appends() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        pending = log.append(memoryview(batch(b"a")), acks=-1)
        await store.close()
        assert (await pending.wait()).base_offset == 0
        with pytest.raises(NotLeaderOrFollower):
            log.append(memoryview(batch(b"b")), acks=-1)
        with pytest.raises(EngineError):
            store.get(ORDERS)
        await store.close()


async def test_logs_of_topics_that_a_change_has_deleted_are_removed() -> None:
    filesystem = SimulatedFileSystem()
    kept, deleted = partition(0), partition(0, "gone", bytes(16))
    async with running(filesystem) as store:
        for one in (kept, deleted):
            await store.open_partition(one, LogConfig(), 0)
        await store.close()
    async with running(filesystem) as store:
        await store.strays.apply_fates(fates(lambda topic_id, _: topic_id == kept.topic_id))
        assert [name for name in filesystem.list_dir("/data") if name.endswith("-0")] == ["orders-0"]
        reopened = await store.open_partition(partition(0, "gone", bytes([7] * 16)), LogConfig(), 0)
        assert reopened.log_end_offset == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0\ntopic_id: ?\n",
        b"version: 0\ntopic_id: AAAA\n",
        b"version: 9\n",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODg\ncrc32: 94016506\n",
    ],
)
async def test_damaged_metadata_of_one_partition_keeps_no_log_of_another(content: bytes) -> None:
    filesystem = SimulatedFileSystem()
    damaged, deleted = partition(0, "damaged"), partition(0, "gone", bytes(16))
    async with running(filesystem) as store:
        for one in (damaged, deleted):
            await append(await store.open_partition(one, LogConfig(), 0), b"x")
        await store.close()
    file = filesystem.open("/data/damaged-0/partition.metadata")
    file.truncate(0)
    file.write_at([content], 0)
    async with running(filesystem) as store:
        await store.strays.apply_fates(fates(lambda topic_id, _: topic_id != deleted.topic_id))
        assert "gone-0" not in filesystem.list_dir("/data")
        with pytest.raises(StorageError):
            await store.open_partition(damaged, LogConfig(), 1)


async def test_l4_partition_opened_while_its_log_dir_failed_is_not_served() -> None:
    filesystem, pool = SimulatedFileSystem(), HeldPool()
    async with running(filesystem, pool=pool) as store:
        log = await open_orders(store)
        await append(log, b"a")

        async def open_second() -> None:
            with pytest.raises(StorageError):
                await store.open_partition(partition(1), LogConfig(), 0)

        async with trio.open_nursery() as nursery:
            pool.is_holding = True
            nursery.start_soon(open_second)
            await trio.testing.wait_all_tasks_blocked()
            store._dirs[0].disk.fail(OSError(errno.EIO, "of something else"))
            with pytest.raises(StorageError):
                log.read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
            pool.release.set()
        with pytest.raises(EngineError):
            store.get(partition(1))


@pytest.mark.parametrize("leader_epoch", [4, 5])
async def test_l3_opening_a_log_in_a_leader_epoch_it_already_has_raises_fenced_leader_epoch(leader_epoch: int) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await append(await open_orders(store, leader_epoch=5), b"a")
        await store.close()
    async with running(filesystem) as store:
        with pytest.raises(FencedLeaderEpoch):
            await open_orders(store, leader_epoch=leader_epoch)
        with pytest.raises(EngineError):
            store.get(ORDERS).append(memoryview(batch(b"b")), acks=-1)
        assert await read_all(await open_orders(store, leader_epoch=6)) == {0: b"a"}


@pytest.mark.parametrize("kind", ["write", "create"])
async def test_l4_full_disk_delays_recovery_points_and_nothing_else(kind: str) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault(kind, errno.ENOSPC, "checkpoint.tmp"))
        await append(log, b"a")
        await trio.sleep(10)
        assert fatal == []
        assert not filesystem.exists("/data/checkpoint")
        await trio.sleep(70)
        assert filesystem.exists("/data/checkpoint")


@pytest.mark.parametrize(
    ("kind", "path"), [("make_dir", "orders-1"), ("create", "0.log"), ("write", "partition.metadata.tmp")]
)
async def test_l4_full_disk_refuses_a_new_partition_and_nothing_else(kind: str, path: str) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault(kind, errno.ENOSPC, path))
        with pytest.raises(StorageError, match="ENOSPC"):
            await store.open_partition(partition(1), LogConfig(), 0)
        assert fatal == []
        await append(log, b"a")
        await append(await store.open_partition(partition(1), LogConfig(), 0), b"b")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_log_dir_that_fails_at_the_farewell_does_not_spoil_the_others(code: int) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/a", "/b")) as store:
        await store.open_partition(partition(0), LogConfig(), 0)
        filesystem.faults.append(Fault("write", code, "/a/clean-shutdown.tmp"))
        await store.close()
    assert not filesystem.exists("/a/clean-shutdown")
    assert filesystem.exists("/b/clean-shutdown")


async def test_removed_logs_need_no_scan_and_leave_no_recovery_points() -> None:
    filesystem = SimulatedFileSystem()
    deleted = partition(0, "gone", bytes(16))
    async with running(filesystem) as store:
        await append(await store.open_partition(deleted, LogConfig(), 0), b"x")
        await trio.sleep(100)
    async with running(filesystem) as store:
        await store.strays.apply_fates(fates(lambda *_: False))
        await store.close()
    assert filesystem.exists("/data/clean-shutdown")
    assert bytes(16).hex().encode() not in filesystem.content("/data/checkpoint")


async def test_nothing_is_opened_or_deleted_after_the_farewell() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await open_orders(store)
        await store.close()
        written = len(filesystem.operations)
        with pytest.raises(EngineError):
            await store.open_partition(partition(1), LogConfig(), 0)
        with pytest.raises(EngineError):
            await store.delete_partition(ORDERS)
        assert len(filesystem.operations) == written


def open_segments(path: Path) -> int:
    """The number of segment files below `path` that this process has open, unlinked ones included."""
    count = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:  # the listing's own
            continue
        count += target.startswith(str(path)) and ".log" in target and "/index/" not in target
    return count


async def test_d1_a_waiter_on_a_deleted_partition_does_not_keep_its_files_open(tmp_path: Path) -> None:
    async with running(PosixFileSystem(), options(str(tmp_path))) as store:
        log = await open_orders(store)
        waiter = store.new_waiter()
        waiter.watch(log)
        await append(log, b"a")
        in_flight = log.read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
        await store.delete_partition(ORDERS)
        assert open_segments(tmp_path) == 1
        assert len(bytes_of(in_flight.records)) == in_flight.size_bytes
        del in_flight
        assert open_segments(tmp_path) == 0
        assert waiter.take_changed() == [log]


async def test_d2_a_disk_that_is_nearly_full_takes_no_appends_until_there_is_room_again() -> None:
    filesystem = SimulatedFileSystem(capacity_bytes=10_000)
    retention = RetentionOptions(disk_reject_ratio=0.9)
    almost = dataclasses.replace(options(journal_slot_size_bytes=NO_JOURNAL), retention=retention)
    async with running(filesystem, almost) as store:
        log = await open_orders(store)
        await append(log, b"x" * 9000)
        await trio.sleep(SPACE_CHECK_INTERVAL_S + 1)
        with pytest.raises(StorageError, match=r"nearly full \(disk.reject.ratio\)"):
            await append(log, b"y")
        assert await read_all(log) == {0: b"x" * 9000}
        filesystem.capacity_bytes = 20_000
        await trio.sleep(SPACE_CHECK_INTERVAL_S + 1)
        assert (await append(log, b"z")).base_offset == 1


async def test_l4_a_lack_of_descriptors_refuses_only_appends_that_open_a_file() -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, fatal=fatal) as store:
        log = await open_orders(store, LogConfig(segment_size_bytes=150))
        await append(log, b"a" * 50)
        filesystem.faults.append(Fault("create", errno.EMFILE, ".log"))
        with pytest.raises(StorageError):
            await append(log, b"b" * 50)
        filesystem.faults.append(Fault("create", errno.ENFILE, "checkpoint.tmp"))
        await append(log, b"c" * 50)
        await trio.sleep(70)
        assert not filesystem.faults
        assert fatal == []
        assert await read_all(log) == {0: b"a" * 50, 1: b"c" * 50}


async def test_l4_a_partition_is_not_taken_in_by_a_log_dir_that_failed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filesystem, fatal = SimulatedFileSystem(), list[str]()
    async with running(filesystem, options("/a", "/b"), fatal=fatal) as store:
        log_dir = store._dirs[0]

        async def fail(*_: object) -> None:
            log_dir.disk.fail(OSError(errno.EIO, "injected"))

        monkeypatch.setattr(log_dir.index, "reconcile", fail)
        with pytest.raises(StorageError, match="offline"):
            await open_orders(store)
        assert not log_dir.partitions
