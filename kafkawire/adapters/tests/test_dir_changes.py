"""The queue of one log dir, and when it is behind (decision 44)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import trio

from coordinator.api import PartitionState
from coordinator.ports import HostedPartition
from kafkawire.adapters.dir_changes import BATCH_MAX, DirChanges, DirWorker
from kafkawire.adapters.hosted import Opened, Vanished, identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.api import TopicIdPartition
    from engine.log_dirs.log_dir import LogDir
    from kafkawire.adapters.dir_changes import Change

LAG_S = 30.0


def hosted(number: int = 0, epoch: int = 0, topic_id: int = 1) -> HostedPartition:
    state = PartitionState(leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,))
    return HostedPartition("t", bytes([topic_id] * 16), number, state, {})


def led(number: int = 0, epoch: int = 0, topic_id: int = 1) -> Opened:
    return Opened(hosted(number, epoch, topic_id), is_led=True)


def queue(*changes: Change) -> DirChanges:
    made = DirChanges()
    for one in changes:
        made.queue(key_of(one), one)
    return made


def key_of(change: Change) -> TopicIdPartition:
    if isinstance(change, Opened):
        return change.key
    return identity(change.hosted if isinstance(change, Vanished) else change)


KEY = led().key


def test_of_each_partition_the_newest_role_is_taken() -> None:
    changes = queue(led(epoch=1), led(1), led(epoch=2))
    assert [one.leader_epoch for one in changes.take().values() if isinstance(one, Opened)] == [2, 0]
    assert not changes.take(), "each is taken once"


def test_a_taken_change_is_not_the_newest_after_a_newer_change_is_queued() -> None:
    changes = queue(led(epoch=1))
    changes.take()
    assert changes.is_newest(KEY)
    changes.queue(KEY, led(epoch=2))
    assert not changes.is_newest(KEY)
    assert changes.unapplied == {KEY: led(epoch=2)}
    changes.done()
    assert changes.take() == {KEY: led(epoch=2)}


def test_as_many_are_taken_at_once_as_one_job_may_have() -> None:
    changes = queue(*(led(number) for number in range(BATCH_MAX + 1)))
    taken = []
    while batch := changes.take():
        taken.append(len(batch))
        changes.done()
    assert taken == [BATCH_MAX, 1]
    assert changes.is_empty


def test_a_deletion_that_waits_is_done_before_the_replica_comes_back() -> None:
    changes = queue(hosted(), led(epoch=1), led(epoch=2))
    assert changes.take() == {KEY: led(epoch=2)._replace(replaces=hosted())}
    changes = queue(hosted(), led(epoch=1), hosted(epoch=2))
    assert changes.take() == {KEY: hosted(epoch=2)}


def test_only_a_queued_opening_that_has_not_begun_is_dropped() -> None:
    changes = queue(led())
    assert changes.drop(KEY)
    assert changes.is_empty
    assert not changes.drop(KEY)
    for busy in (queue(hosted(), led()), queue(hosted()), queue(led())):
        busy.hold([KEY] if busy.unapplied == {KEY: led()} else [])
        assert not busy.drop(KEY)
    changes = queue(led())
    changes.take()
    changes.queue(KEY, led(epoch=1))
    assert not changes.drop(KEY)


def test_changes_of_a_held_partition_wait_also_under_another_topic_id() -> None:
    again = led(topic_id=2)
    changes = queue(hosted(), again, led(1))
    changes.hold([KEY])
    assert [*changes.take()] == [led(1).key]
    changes.done()
    assert changes.is_empty
    assert [*changes.held] == [KEY, again.key]
    changes.release([KEY])
    assert [*changes.take()] == [KEY, again.key]


@dataclass
class Disk:
    """A log dir whose jobs end when the test lets them."""

    nursery: trio.Nursery
    batches: list[Mapping[TopicIdPartition, Change]] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    may_end: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(0))

    async def carry_out(self, _: DirWorker, batch: Mapping[TopicIdPartition, Change]) -> None:
        self.batches.append(batch)
        await self.may_end.acquire()

    def worker(self) -> DirWorker:
        log_dir = cast("LogDir", SimpleNamespace(behind_since_s=None, disk=SimpleNamespace(path="/a")))
        callbacks = self.carry_out, self.nursery.start_soon, lambda _: self.late.append(trio.current_time())
        return DirWorker(log_dir, *callbacks, lambda: LAG_S)


async def test_a_worker_applies_batches_one_after_another_until_the_queue_is_empty() -> None:
    async with trio.open_nursery() as nursery:
        disk = Disk(nursery)
        worker = disk.worker()
        worker.queue(KEY, led())
        await trio.testing.wait_all_tasks_blocked()
        worker.queue(KEY, led(epoch=1))
        worker.queue(KEY, led(epoch=2))
        for _ in range(2):
            assert worker.is_busy
            disk.may_end.release()
            await trio.testing.wait_all_tasks_blocked()
        await worker.until_idle()
        assert not worker.is_busy
        assert disk.batches == [{KEY: led()}, {KEY: led(epoch=2)}]


async def test_a_log_dir_is_late_when_it_has_finished_nothing_for_the_lag_time() -> None:
    """A log dir that is behind for long, and still finishes changes now and then, is not late."""
    async with trio.open_nursery() as nursery:
        disk = Disk(nursery)
        worker = disk.worker()
        for number in range(3 * BATCH_MAX):
            worker.queue(led(number).key, led(number))
        await trio.sleep(2)
        worker.note_behind()
        assert worker.log_dir.behind_since_s == 0.0
        await trio.sleep(LAG_S - 3)
        disk.may_end.release()
        await trio.sleep(LAG_S - 1)
        assert disk.late == []
        await trio.sleep(2)
        assert disk.late == [2 * LAG_S - 1]
        assert worker.is_late
        disk.may_end.release()
        disk.may_end.release()
        await trio.testing.wait_all_tasks_blocked()
        assert (worker.is_behind, worker.is_late) == (False, False)
        await trio.sleep(2 * LAG_S)
        assert len(disk.late) == 1


async def test_a_log_dir_that_catches_up_in_time_is_not_late_afterwards() -> None:
    async with trio.open_nursery() as nursery:
        disk = Disk(nursery)
        worker = disk.worker()
        for _ in range(2):
            worker.queue(KEY, led())
            await trio.sleep(2)
            worker.note_behind()
            worker.note_behind()
            disk.may_end.release()
            await trio.sleep(1)
            assert not worker.is_behind
        await trio.sleep(2 * LAG_S)
        assert disk.late == []


def test_a_vanished_log_is_set_aside_before_it_is_opened_again() -> None:
    changes = queue(Vanished(hosted()), led())
    [(key, wanted)] = changes.take().items()
    assert key == KEY
    assert isinstance(wanted, Opened)
    assert wanted.replaces == Vanished(hosted())
