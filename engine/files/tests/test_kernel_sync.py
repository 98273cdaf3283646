"""Kernel syncs: all of them return, with their errors, also while the event loop is busy."""

import errno
import os
from pathlib import Path

import pytest
import trio

from engine.files.kernel_sync import QUEUE_LENGTH, KernelSync, KernelSyncs


def open_kernel() -> KernelSync:
    try:
        return KernelSync()
    except OSError as error:
        pytest.skip(f"the kernel here has no AIO: {error}")


def files(directory: Path, count: int) -> list[int]:
    return [os.open(directory / f"{number}", os.O_RDWR | os.O_CREAT) for number in range(count)]


async def test_syncs_come_back(tmp_path: Path) -> None:
    kernel = open_kernel()
    descriptors = files(tmp_path, QUEUE_LENGTH + 3)
    async with trio.open_nursery() as nursery:
        for _ in range(4):  # more than the queue holds: they wait for room
            nursery.start_soon(kernel.sync, descriptors)
        nursery.start_soon(kernel.sync, [])
    with trio.CancelScope() as scope:
        scope.cancel()
        await kernel.sync(descriptors[:1])
    kernel.close()
    for descriptor in descriptors:
        os.close(descriptor)


async def test_a_sync_error_is_raised_and_does_not_affect_later_syncs(tmp_path: Path) -> None:
    kernel = open_kernel()
    [good] = files(tmp_path, 1)
    reading, writing = os.pipe()
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        await kernel.sync([good, writing])  # a pipe cannot be synced
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        await kernel.sync([good, writing])
    await kernel.sync([good])
    kernel.close()
    os.close(good)


async def test_a_busy_loop_does_not_hold_them_up(tmp_path: Path) -> None:
    open_kernel().close()
    syncs = KernelSyncs()
    kernel = syncs.of(0)
    assert kernel is not None
    [descriptor] = files(tmp_path, 1)
    done = trio.Event()

    async def sync() -> None:
        await kernel.sync([descriptor], is_urgent=True)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync)
        while not done.is_set():  # a loop that never waits in a poll
            await trio.lowlevel.checkpoint()
    syncs.close()
    os.close(descriptor)


async def test_a_worker_whose_syncs_never_return_takes_no_room_of_another_worker(tmp_path: Path) -> None:
    open_kernel().close()
    kernel, descriptors = KernelSyncs(), files(tmp_path, 2)
    hanging, other = kernel.of(0), kernel.of(1)
    assert hanging is not None
    assert other is not None
    assert other is not hanging
    hanging._in_flight = QUEUE_LENGTH  # as if the disk of worker 0 had not answered any of them
    with trio.fail_after(10):
        await other.sync(descriptors)
    kernel.close()
    await trio.testing.wait_all_tasks_blocked()
    os.fstat(hanging._completions)  # left to the end of the process: to destroy the context would wait for the disk
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(other._completions)
    for descriptor in (*descriptors, hanging._completions):
        os.close(descriptor)


async def test_a_large_batch_is_not_overtaken_while_it_waits_for_room(tmp_path: Path) -> None:
    kernel, order = open_kernel(), list[int]()
    descriptors = files(tmp_path, QUEUE_LENGTH)

    async def sync(count: int) -> None:
        await kernel.sync(descriptors[:count])
        order.append(count)

    kernel._in_flight = 1  # a sync that takes long
    async with trio.open_nursery() as nursery:
        for count in (QUEUE_LENGTH, 1):
            nursery.start_soon(sync, count)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
        assert order == [], "there is room for one, but the large batch is next"
        kernel._in_flight = 0
        kernel._waiting_for_room.unpark_all()
    assert sorted(order) == [1, QUEUE_LENGTH]
    kernel.close()
    for descriptor in descriptors:
        os.close(descriptor)


class Context(KernelSync):
    """A fake context without a kernel."""

    def __init__(self) -> None:
        self._urgent = 0
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def test_each_worker_has_its_own_kernel_context() -> None:
    made: list[Context] = []

    def new_context() -> Context:
        if len(made) == 2:
            raise OSError(errno.EAGAIN, "fs.aio-max-nr")
        made.append(Context())
        return made[-1]

    kernel = KernelSyncs(new_context)
    assert [kernel.of(worker) for worker in (0, 4, 0, 4)] == [*made, *made]
    assert kernel.of(8) is kernel.of(8) is None, "a worker without one syncs in its thread, and asks for none again"
    assert kernel.of(0) is made[0]
    kernel.close()
    assert [one.is_closed for one in made] == [True, True]


async def test_a_busy_loop_offers_its_cpu_only_while_an_urgent_sync_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: offered.append(None))
    kernel = KernelSyncs(Context)
    for worker in (0, 4):
        kernel.of(worker)
    kernel.before_io_wait(0)
    assert offered == []
    context = kernel.of(4)
    assert context is not None
    context._urgent = 1
    kernel.before_io_wait(1)
    assert offered == []
    kernel.before_io_wait(0)
    assert len(offered) == 1
    kernel.close()
