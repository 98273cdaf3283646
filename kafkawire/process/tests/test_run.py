"""The process around a broker: signals, and a stop that hangs (RULES L7)."""

from __future__ import annotations

import gc
import math
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from coordinator.membership.controlled_shutdown import LEAVE_TIMEOUT_S, REDIRECTING_S
from kafkawire.adapters.coordinators import VIEWS_CLOSE_MAX_S
from kafkawire.adapters.followed_change import CLOSE_MAX_S
from kafkawire.adapters.leaving import LEAVE_MAX_S, close_when_overdue
from kafkawire.process.run import (
    EXIT_AT_ONCE,
    EXIT_OVERDUE,
    STOP_MAX_S,
    YOUNG_OBJECTS_MAX,
    exit_stuck,
    exit_when_overdue,
    spare_collector,
    stop_on_signals,
)
from kafkawire.server.server import ServerLimits

HEAPS = """
import ctypes, sys, threading
from kafkawire.process.run import keep_one_heap

if sys.argv[1] == "one":
    keep_one_heap()
barrier = threading.Barrier(4)


def use() -> None:
    barrier.wait()
    for _ in range(100):
        bytes(100_000)
    barrier.wait()


threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps are told by glibc only")
@pytest.mark.parametrize("how", ["one", "many"])
def test_threads_share_a_heap(how: str, tmp_path: Path) -> None:
    heap_report = tmp_path / "heaps"
    subprocess.run([sys.executable, "-c", HEAPS, how, str(heap_report)], check=True, timeout=60)
    assert (heap_report.read_text().count("<heap nr=") == 1) == (how == "one")


async def test_the_first_signal_asks_and_the_second_does_not() -> None:
    exit_codes: list[int] = []
    stop = trio.Event()
    send, signals = trio.open_memory_channel[int](math.inf)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signals, stop, signals, exit_codes.append)
        await trio.testing.wait_all_tasks_blocked()
        assert not stop.is_set()
        send.send_nowait(15)
        await stop.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not exit_codes
        send.send_nowait(15)
    assert exit_codes == [EXIT_AT_ONCE]


async def test_the_first_signal_after_a_failure_of_our_own_is_still_the_first() -> None:
    exit_codes: list[int] = []
    stop = trio.Event()
    stop.set()
    send, signals = trio.open_memory_channel[int](math.inf)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signals, stop, signals, exit_codes.append)
        send.send_nowait(15)
        await trio.testing.wait_all_tasks_blocked()
        assert not exit_codes
        nursery.cancel_scope.cancel()


async def test_hanging_stop_exits_the_process_after_the_maximum_stop_time() -> None:
    exit_codes: list[int] = []
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exit_when_overdue, stop, exit_codes.append)
        await trio.sleep(1000)
        assert not exit_codes
        waited_s = trio.current_time()
        stop.set()
    assert exit_codes == [EXIT_OVERDUE]
    assert trio.current_time() - waited_s == STOP_MAX_S


def test_process_with_unfinished_disk_work_exits_with_the_overdue_code() -> None:
    exit_codes: list[int] = []
    exit_stuck(exit_codes.append)
    assert exit_codes == [EXIT_OVERDUE]


async def test_a_broker_that_cannot_leave_closes_all_the_same_and_in_time() -> None:
    stop, closing = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(close_when_overdue, stop, closing)
        await trio.sleep(1000)
        assert not closing.is_set()
        stop.set()
        await trio.sleep(LEAVE_MAX_S - 1)
        assert not closing.is_set()
    assert closing.is_set()
    assert LEAVE_TIMEOUT_S + REDIRECTING_S < LEAVE_MAX_S, "a broker that leaves in order is not interrupted"
    answering_s = ServerLimits().shutdown_grace_ms / 1000
    closing_s = VIEWS_CLOSE_MAX_S + CLOSE_MAX_S
    assert LEAVE_MAX_S + answering_s + closing_s < STOP_MAX_S, "log dirs that are well can be marked clean"


def test_the_collector_looks_for_new_garbage_alone() -> None:
    thresholds = gc.get_threshold()
    try:
        spare_collector()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
