"""A process that stands still does nothing, whatever happens to it, and then all of it at once."""

from __future__ import annotations

import trio

from kafkawire.tests.cluster_simulation.standstill import Standstill


async def test_process_at_a_standstill_does_nothing_until_it_goes_on() -> None:
    done: list[tuple[str, float]] = []
    woken = trio.Event()

    async def tick(name: str) -> None:
        while True:
            await trio.sleep(1)
            done.append((name, trio.current_time() - started_s))

    async def wait() -> None:
        await woken.wait()
        done.append(("woken", trio.current_time() - started_s))

    async def process(*, task_status: trio.TaskStatus[trio.lowlevel.Task]) -> None:
        async with trio.open_nursery() as children:
            children.start_soon(tick, "stopped")
            children.start_soon(wait)
            task_status.started(trio.lowlevel.current_task())

    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        standstill = Standstill(await nursery.start(process))
        nursery.start_soon(tick, "other")
        await trio.sleep(1.5)
        standstill.begin()
        woken.set()
        await trio.sleep(2)
        assert done[2:] == [("other", 2.0), ("other", 3.0)]
        standstill.end()
        await trio.sleep(1.1)
        assert sorted(done[4:]) == [("other", 4.0), ("stopped", 3.5), ("stopped", 4.5), ("woken", 3.5)]
        nursery.cancel_scope.cancel()


async def test_task_started_by_a_process_at_a_standstill_waits_too() -> None:
    has_run = trio.Event()

    async def process(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        async with trio.open_nursery() as children:
            task_status.started(children)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        children: trio.Nursery = await nursery.start(process)
        standstill = Standstill(children.parent_task)
        standstill.begin()

        async def child() -> None:
            has_run.set()

        children.start_soon(child)
        await trio.sleep(5)
        assert not has_run.is_set()
        standstill.end()
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert has_run.is_set()
        nursery.cancel_scope.cancel()
