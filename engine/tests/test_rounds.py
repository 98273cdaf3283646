"""Who waits for the end of a round gets its turn, however many appends are queued."""

import trio

from engine.testing import MemoryFileSystem
from engine.tests.helpers import NO_JOURNAL, append, batch, open_orders, options, running

APPENDS = 200


async def test_a_producer_that_never_pauses_holds_up_nobody_between_rounds() -> None:
    """It has the next batch queued before the one on its way is answered."""
    appended = 0
    async with running(MemoryFileSystem(), options(journal_slot_size_bytes=NO_JOURNAL)) as store:
        log = await open_orders(store)

        async def produce() -> None:
            nonlocal appended
            on_its_way = log.append(memoryview(batch(b"x")), acks=-1)
            for _ in range(APPENDS):
                following = log.append(memoryview(batch(b"x")), acks=-1)
                await on_its_way.wait()
                appended, on_its_way = appended + 1, following
            await on_its_way.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            while appended < 3:
                await trio.lowlevel.checkpoint()
            await log.delete_records(1)
            assert appended < 30
            await open_orders(store, leader_epoch=1)
            assert appended < 60
        assert log.log_end_offset == APPENDS + 1


async def test_who_waits_for_one_again_and_again_holds_up_no_round() -> None:
    async with running(MemoryFileSystem()) as store:
        log = await open_orders(store)
        waited = 0

        async def wait_on_and_on() -> None:
            nonlocal waited
            for _ in range(APPENDS):
                await open_orders(store)
                waited += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_on_and_on)
            nursery.start_soon(wait_on_and_on)
            await append(log, b"x")
            assert waited < 30
