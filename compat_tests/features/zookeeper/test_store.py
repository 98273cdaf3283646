"""A ZooKeeper ensemble fulfils `coordinator.metadata_store.store`, with faults of its servers and of the network."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import trio

from compat_tests.features.zookeeper.proxy import Proxy
from compat_tests.harness.broker import free_port
from coordinator.errors import CannotStart
from coordinator.metadata_store.commits import commit
from coordinator.metadata_store.store import (
    ANY_VERSION,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NotAllowed,
    Operation,
    Put,
    SessionLost,
)
from coordinator.metadata_store.zookeeper import ZooKeeperSettings, ZooKeeperStore, open_zookeeper
from coordinator.metadata_store.zookeeper_session import IN_FLIGHT_MAX, ReadMany
from engine.files.io_workers import SWITCH_INTERVAL_S
from testkit.metadata_store_suite import SharedStoreSuite, woken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from compat_tests.harness.zookeeper import ZooKeeperEnsemble

SESSION_TIMEOUT_MS = 6_000
PATIENT_SESSION_MS = 10_000  # long enough to connect to another server, once one is given up
SHORTEST_SESSION_MS = 1_000  # the shortest that servers with this tickTime grant
CONNECTS_WITHIN_MS = 30_000  # a machine that is busy may need longer than such a session lasts
PATIENCE_S = 30.0
LOADED_WITHIN_S = 3.0
CREDENTIALS = "broker:a-secret-of-the-tests"


@dataclass
class RealServers:
    """A `Backend`."""

    settings: ZooKeeperSettings

    async def open(self) -> ZooKeeperStore:
        return await open_zookeeper(self.settings)


@asynccontextmanager
async def opened(
    connect: str,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    credentials: str | None = None,
    connection_timeout_ms: int = CONNECTS_WITHIN_MS,
) -> AsyncIterator[ZooKeeperStore]:
    settings = ZooKeeperSettings(connect, session_timeout_ms, connection_timeout_ms, credentials)
    store = await open_zookeeper(settings)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_behind(
    proxy: Proxy,
    chroot: str,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    connection_timeout_ms: int = CONNECTS_WITHIN_MS,
) -> AsyncIterator[ZooKeeperStore]:
    """A store behind a proxy, which serves as long as the store is open."""
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.serve)
        connect = proxy.address + chroot
        async with opened(connect, session_timeout_ms, connection_timeout_ms=connection_timeout_ms) as store:
            yield store
        nursery.cancel_scope.cancel()


async def answered(store: ZooKeeperStore) -> None:
    """Wait until there is a connection again."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                await store.sync()
            except ConnectionLost:
                await trio.sleep(0.02)
            else:
                return


async def commit_all(store: ZooKeeperStore, *operations: Operation) -> None:
    await commit(store, operations)


@pytest.fixture
def connect(ensemble: ZooKeeperEnsemble, chroot: str) -> str:
    return ensemble.connect + chroot


@pytest.fixture
def proxy(ensemble: ZooKeeperEnsemble) -> Proxy:
    return Proxy(ensemble.servers[0].port)


class TestZooKeeper(SharedStoreSuite):
    @pytest.fixture
    def backend(self, connect: str) -> RealServers:
        return RealServers(ZooKeeperSettings(connect, SESSION_TIMEOUT_MS))


class TestZooKeeperWithCredentials(SharedStoreSuite):
    @pytest.fixture
    def backend(self, connect: str) -> RealServers:
        return RealServers(ZooKeeperSettings(connect, SESSION_TIMEOUT_MS, credentials=CREDENTIALS))


# Opening


async def test_all_nodes_are_below_the_chroot_which_is_made_if_there_is_none(
    ensemble: ZooKeeperEnsemble, chroot: str
) -> None:
    async with opened(f"{ensemble.connect}{chroot}/deep") as store, opened(ensemble.connect) as above:
        await store.multi([Create("/a", b"value")])
        await above.sync()
        assert await above.get(f"{chroot}/deep/a") == Node(b"value", 0)
        assert await store.children("") == ["a"]
        came = trio.Event()
        await above.exists(f"{chroot}/deep/b", came)
        await store.multi([Create("/b", b"")])
        await woken(came)
        assert "zookeeper" in await above.children("")


async def test_nodes_with_credentials_are_closed_to_other_clients(ensemble: ZooKeeperEnsemble, chroot: str) -> None:
    path = f"{chroot}/mine"
    async with opened(ensemble.connect + path, credentials=CREDENTIALS) as mine:
        await mine.multi([Create("/a", b"")])
        for credentials, how in [(None, "without credentials"), ("broker:wrong", "with these credentials")]:
            with pytest.raises(CannotStart, match=rf"ZooKeeper \(.*\) refuses to read and write .* {how}$"):
                async with opened(ensemble.connect + path, credentials=credentials):
                    pass
            async with opened(ensemble.connect, credentials=credentials) as other:
                with pytest.raises(NotAllowed):
                    await other.get(f"{path}/a")
                for operation in (Put(f"{path}/a", b"", 0), Delete(f"{path}/a"), Create(f"{path}/b", b"")):
                    with pytest.raises(NotAllowed) as raised:
                        await other.multi([operation])
                    assert raised.value.path == operation.path
        assert await mine.get("/a") == Node(b"", 0)


async def test_credentials_are_in_no_log_and_no_repr(
    connect: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings = ZooKeeperSettings(connect, SESSION_TIMEOUT_MS, credentials=CREDENTIALS)
    with caplog.at_level(logging.DEBUG):
        store = await open_zookeeper(settings)
        await store.close()
    seen = repr((settings, settings.servers(), store)) + caplog.text + "".join(capfd.readouterr())
    assert CREDENTIALS.partition(":")[2] not in seen


async def test_servers_that_are_away_stop_the_start() -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = ZooKeeperSettings(f"{address}/kafka", SESSION_TIMEOUT_MS, connection_timeout_ms=300)
    with pytest.raises(CannotStart, match=f"^no ZooKeeper server of {address} answered within 300 ms$"):
        await open_zookeeper(settings)


async def test_servers_that_are_too_old_stop_the_start(connect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadMany, "type", 99)  # as unknown to these as 22 is to older ones
    with pytest.raises(CannotStart, match=r"is older than 3\.6"):
        async with opened(connect):
            pass


@pytest.mark.parametrize(
    ("connect", "credentials", "complaint"),
    [
        ("zk:2181/", None, "/ is no path of a node"),
        ("zk:2181/a//b", None, "/a//b is no path of a node"),
        ("zk:2181/a/../b", None, "/a/../b is no path of a node"),
        ("zk:port/a", None, "zk:port is no list of host:port"),
        ("/a", None, " is no list of host:port"),
        ("zk:2181,/a", None, "zk:2181, is no list of host:port"),
        ("zk:2181", "broker", "not of the form user:password"),
        ("zk:2181", "broker:", "not of the form user:password"),
    ],
)
async def test_a_malformed_setting_stops_the_start(connect: str, credentials: str | None, complaint: str) -> None:
    with pytest.raises(CannotStart) as raised:
        await open_zookeeper(ZooKeeperSettings(connect, credentials=credentials))
    assert str(raised.value).endswith(complaint)


# Connections and sessions


@pytest.mark.parametrize("trouble", ["killed", "paused"])
async def test_a_session_moves_to_another_server_if_its_server_fails(
    ensemble: ZooKeeperEnsemble, connect: str, trouble: str
) -> None:
    async with opened(connect, PATIENT_SESSION_MS) as store:
        await store.multi([Create("/mine", b"", ephemeral=True)])
        losses = 0
        for server in ensemble.servers:
            wake = trio.Event()
            await store.exists("/mine", wake)
            if trouble == "killed":
                server.kill()
            with server.paused() if trouble == "paused" else nullcontext():
                await answered(store)
                await commit(store, [Create(f"/{server.number}", b"")])
            losses += wake.is_set()
            ensemble.start()
        assert losses >= 1
        assert await store.children("") == ["1", "2", "3", "mine"]
        assert (await store.get("/mine")).version == 0


async def test_a_session_that_has_expired_is_lost_until_it_is_renewed(proxy: Proxy, connect: str, chroot: str) -> None:
    async with opened(connect) as other, opened_behind(proxy, chroot, 2 * SHORTEST_SESSION_MS) as store:
        await store.multi([Create("/mine", b"", ephemeral=True)])
        gone, lost = trio.Event(), trio.Event()
        await other.sync()
        await other.exists("/mine", gone)
        await store.exists("/mine", lost)
        proxy.is_black_hole = True
        await woken(gone)
        await woken(lost)
        with pytest.raises(ConnectionLost):
            await store.get("/mine")
        proxy.is_black_hole = False
        proxy.cut()
        with pytest.raises(SessionLost):
            await answered(store)
        for _ in range(3):
            await trio.sleep(0.1)  # kazoo has a new session by now, which is not this one
            with pytest.raises(SessionLost):
                await store.multi([Create("/mine", b"")])
        await store.renew()
        assert not await store.exists("/mine")
        await store.multi([Create("/mine", b"", ephemeral=True)])
        await other.sync()
        assert await other.exists("/mine")


async def test_without_servers_a_session_cannot_be_renewed_and_then_can(proxy: Proxy, chroot: str) -> None:
    async with opened_behind(proxy, chroot, SHORTEST_SESSION_MS, connection_timeout_ms=5_000) as store:
        proxy.is_shut = True
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await store.renew()
        with pytest.raises(SessionLost):
            await store.get("")
        proxy.is_shut = False
        await store.renew()
        assert await store.children("") == []


async def test_the_end_of_a_session_is_quick(connect: str, proxy: Proxy, chroot: str) -> None:
    async with opened(connect) as other:
        store = await open_zookeeper(ZooKeeperSettings(connect, SESSION_TIMEOUT_MS))
        await store.multi([Create("/mine", b"", ephemeral=True)])
        started_s = trio.current_time()
        await store.close()
        await other.sync()
        assert not await other.exists("/mine")
        assert trio.current_time() - started_s < SESSION_TIMEOUT_MS / 1000
    async with opened_behind(proxy, chroot, SHORTEST_SESSION_MS) as store:
        proxy.is_black_hole = True
        started_s = trio.current_time()
        await store.close()
        assert trio.current_time() - started_s < PATIENCE_S / 3


async def test_requests_without_a_connection_fail_at_once_and_never_go_out(proxy: Proxy, chroot: str) -> None:
    async with opened_behind(proxy, chroot) as store:
        wake = trio.Event()
        await store.exists("/a", wake)
        proxy.is_shut = True
        proxy.cut()
        await woken(wake)
        started_s = trio.current_time()
        for number in range(20):
            with pytest.raises(ConnectionLost):
                await store.multi([Create(f"/{number}", b"")])
        assert trio.current_time() - started_s < SESSION_TIMEOUT_MS / 1000 / 2
        proxy.is_shut = False
        await answered(store)
        assert await store.children("") == []


async def test_a_multi_whose_reply_is_lost_fails_but_is_applied(proxy: Proxy, connect: str, chroot: str) -> None:
    async with opened(connect) as other, opened_behind(proxy, chroot) as store:
        came = trio.Event()
        await other.exists("/a", came)
        proxy.swallows_replies = True

        async def lose_reply() -> None:
            await woken(came)
            proxy.swallows_replies = False
            proxy.cut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose_reply)
            with pytest.raises(ConnectionLost):
                await store.multi([Create("/a", b"")])
        await answered(store)
        assert await store.exists("/a")


async def test_a_commit_whose_reply_is_lost_is_applied_once(proxy: Proxy, connect: str, chroot: str) -> None:
    async with opened(connect) as other, opened_behind(proxy, chroot) as store:
        await other.multi([Create("/fence", b"")])
        for number in range(3):
            came = trio.Event()
            await other.exists(f"/{number}", came)
            proxy.swallows_replies = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_all, store, Put("/fence", b"", number), Create(f"/{number}", b"mine"))
                await woken(came)
                proxy.swallows_replies = False
                proxy.cut()
        assert (await other.get("/fence")).version == 3


# Load


async def test_more_callers_than_requests_are_let_out_are_all_answered(connect: str) -> None:
    async with opened(connect) as store:
        found: list[Node] = []

        async def read(is_cancelled: bool) -> None:
            with trio.CancelScope() as scope:
                if is_cancelled:
                    scope.deadline = trio.current_time() + 0.001
                found.append(await store.get(""))

        async with trio.open_nursery() as nursery:
            for number in range(4 * IN_FLIGHT_MAX):
                nursery.start_soon(read, number % 4 == 0)
        assert len(found) >= 3 * IN_FLIGHT_MAX
        assert await store.exists("")


async def test_10_000_partitions_are_read_in_time(connect: str) -> None:
    async with opened(connect) as store:
        await store.multi([Create("/p", b"")])
        for first in range(0, 10_000, 1_000):
            await store.multi([Create(f"/p/{first + number}", bytes(300)) for number in range(1_000)])
        started_s = time.process_time()
        assert len(await store.read_children("/p")) == 10_000
        assert time.process_time() - started_s < LOADED_WITHIN_S


async def test_a_busy_event_loop_keeps_its_zookeeper_session(connect: str) -> None:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        async with opened(connect, SESSION_TIMEOUT_MS) as store:
            await store.multi([Create("/mine", b"", ephemeral=True)])
            lost = trio.Event()
            await store.exists("/mine", lost)
            until_s = time.monotonic() + 2 * SESSION_TIMEOUT_MS / 1000
            while time.monotonic() < until_s:
                await trio.lowlevel.checkpoint()
            assert not lost.is_set()
            await store.multi([Put("/mine", b"", ANY_VERSION)])
            await woken(lost)
    finally:
        sys.setswitchinterval(before_s)
