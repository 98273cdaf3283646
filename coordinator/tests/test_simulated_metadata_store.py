"""The ensemble in memory misbehaves as ZooKeeper may, and no worse."""

from __future__ import annotations

from random import Random

import pytest
import trio

from coordinator.metadata_store.store import ConnectionLost, Create, Delete, NodeExists, NoNode, SessionLost
from coordinator.testing.fakes import FakeEnsemble, FakeStore, Faults, Loss

TIMEOUT_S = 6.0


async def pair() -> tuple[FakeStore, FakeStore]:
    """Two clients; the first has an ephemeral node."""
    ensemble = FakeEnsemble(session_timeout_s=TIMEOUT_S)
    one, two = ensemble.connect(), ensemble.connect()
    await one.multi([Create("/one", b"", ephemeral=True)])
    return one, two


@pytest.mark.parametrize("way", ["paused", "cut off", "both"])
async def test_the_session_of_a_silent_client_ends_by_the_clock_and_others_are_woken(way: str) -> None:
    one, two = await pair()
    gone = trio.Event()
    await two.exists("/one", gone)
    started_s = trio.current_time()
    if way != "paused":
        one.disconnected = True
    if way != "cut off":
        one.pause()
    await gone.wait()
    assert trio.current_time() - started_s == pytest.approx(TIMEOUT_S)
    one.disconnected = False
    one.resume()
    with pytest.raises(SessionLost):
        await one.get("/one")
    await one.renew()
    await one.multi([Create("/one", b"", ephemeral=True)])
    await trio.sleep(2 * TIMEOUT_S)
    assert await two.exists("/one")


async def test_a_silent_server_answers_nothing_until_the_read_timeout_and_the_session_ends_by_the_clock() -> None:
    one, two = await pair()
    gone, woken = trio.Event(), trio.Event()
    await two.exists("/one", gone)
    await one.exists("/one", woken)
    started_s = trio.current_time()
    one.silent = True
    assert not woken.is_set()
    with pytest.raises(ConnectionLost):
        await one.get("/one")
    assert trio.current_time() - started_s == pytest.approx(TIMEOUT_S * 2 / 3)
    assert woken.is_set()
    await gone.wait()
    assert trio.current_time() - started_s == pytest.approx(TIMEOUT_S)
    one.silent = False
    with pytest.raises(SessionLost):
        await one.get("/one")


async def test_a_client_that_is_heard_in_time_keeps_its_session() -> None:
    one, two = await pair()
    for _ in range(3):
        one.disconnected = True
        await trio.sleep(TIMEOUT_S - 1)
        one.disconnected = False
        one.pause()
        await trio.sleep(TIMEOUT_S - 1)
        one.resume()
    await trio.sleep(2 * TIMEOUT_S)
    assert await two.exists("/one")
    assert await one.exists("/one")


async def test_a_client_learns_of_the_end_of_its_session_only_when_it_is_connected() -> None:
    one, two = await pair()
    one.disconnected = True
    await trio.sleep(TIMEOUT_S + 1)
    assert not await two.exists("/one")
    with pytest.raises(ConnectionLost):
        await one.get("/one")
    with pytest.raises(ConnectionLost):
        await one.renew()
    one.disconnected = False
    with pytest.raises(SessionLost):
        await one.get("/one")


async def test_nodes_of_a_client_that_closes_while_disconnected_stay_until_its_session_ends() -> None:
    one, two = await pair()
    one.disconnected = True
    await one.close()
    assert await two.exists("/one")
    await trio.sleep(TIMEOUT_S + 1)
    assert not await two.exists("/one")
    with pytest.raises(SessionLost):
        await one.renew()


async def test_a_lost_connection_wakes_waiters_even_if_it_is_back_at_once() -> None:
    one, _ = await pair()
    for lose in (one.flap, lambda: setattr(one, "disconnected", True)):
        wake = trio.Event()
        await one.exists("/a", wake)
        lose()
        assert wake.is_set()


async def test_a_lost_message_wakes_waiters() -> None:
    one, _ = await pair()
    for loss in (Loss.REQUEST, Loss.LATE, Loss.REPLY):
        wake = trio.Event()
        await one.exists("/a", wake)
        one.script.append(loss)
        with pytest.raises(ConnectionLost):
            await one.multi([Create(f"/{loss.name}", b"")])
        assert wake.is_set()


async def test_after_a_sync_that_a_deposed_leader_answers_reads_are_still_stale() -> None:
    one, two = await pair()
    one.lagging = one.has_deposed_leader = True
    await two.multi([Create("/a", b"")])
    await one.sync()
    assert not await one.exists("/a")
    with pytest.raises(NodeExists):
        await one.multi([Create("/a", b"")])
    assert await one.exists("/a")


async def test_a_late_multi_may_arrive_after_others_have_looked_and_written() -> None:
    one, two = await pair()
    one.script.append(Loss.LATE)
    with pytest.raises(ConnectionLost):
        await one.multi([Create("/late", b"")])
    assert not await one.exists("/late")
    assert not await two.exists("/late")
    one.land()
    assert await two.exists("/late")


async def test_a_late_multi_is_never_done_after_the_next_write_of_its_session() -> None:
    outcomes = set()
    for seed in range(20):
        ensemble = FakeEnsemble(Random(seed))
        one, two = ensemble.connect(), ensemble.connect()
        one.script.append(Loss.LATE)
        with pytest.raises(ConnectionLost):
            await one.multi([Create("/late", b"")])
        await one.multi([Create("/next", b"")])
        outcomes.add(arrived := await one.exists("/late"))
        await two.multi([Create("/theirs", b"")])
        one.land()
        assert await two.exists("/late") == arrived
    assert outcomes == {True, False}


async def test_a_late_multi_dies_with_its_session() -> None:
    one, two = await pair()
    one.script.append(Loss.LATE)
    with pytest.raises(ConnectionLost):
        await one.multi([Create("/late", b"")])
    one.ensemble.expire(one)
    one.land()
    assert not await two.exists("/late")


async def run_by_chance(seed: int) -> list[str]:
    """The errors and answers that a client meets, one operation after the other."""
    faults = Faults(request_lost=0.1, request_late=0.2, reply_lost=0.1, replica_lags=0.3, deposed_sync=0.3, flap=0.2)
    ensemble = FakeEnsemble(Random(seed), faults)
    one, two = ensemble.connect(), ensemble.connect()
    met: list[str] = []
    for number in range(100):
        wake = trio.Event()
        await one.exists("/none", wake)
        for store, operation in ((one, Create(f"/{number}", b"")), (two, Delete(f"/{number}"))):
            try:
                await store.multi([operation])
            except (ConnectionLost, NoNode) as error:
                met.append(type(error).__name__)
            await one.sync()
            met.append(f"{await one.exists(f'/{number}')} {wake.is_set()}")
    return met


async def test_a_random_run_repeats_with_the_same_seed() -> None:
    first = await run_by_chance(1)
    assert first == await run_by_chance(1)
    assert first != await run_by_chance(2)
    assert len(set(first)) == 6
