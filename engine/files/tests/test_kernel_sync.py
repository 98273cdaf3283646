"""The kernel's syncs come back, all of them, with their errors, also while the loop is busy."""

import errno
import os
from pathlib import Path

import pytest
import trio

from engine.files.kernel_sync import QUEUE_LENGTH, KernelSync


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


async def test_errors_are_raised_and_harm_nobody_else(tmp_path: Path) -> None:
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
    kernel = open_kernel()
    [descriptor] = files(tmp_path, 1)
    done = trio.Event()

    async def sync() -> None:
        await kernel.sync([descriptor], is_urgent=True)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync)
        while not done.is_set():  # a loop that never waits in a poll
            await trio.lowlevel.checkpoint()
    kernel.close()
    os.close(descriptor)
