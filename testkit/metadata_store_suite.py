"""The promises of `coordinator.metadata_store.store`, for any back end: one suite, inherited by the tests of each."""

from __future__ import annotations

from typing import Protocol

import pytest
import trio

from coordinator.metadata_store.store import (
    ANY_VERSION,
    MULTI_OPERATIONS_MAX,
    MULTI_SIZE_MAX_BYTES,
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionLost,
    StoreError,
)

WAKE_TIMEOUT_S = 10


class Backend(Protocol):
    """Opens one session after the other on the same nodes, for the suite."""

    async def open(self) -> MetadataStore: ...


async def woken(wake: trio.Event) -> None:
    """Wait for a wake-up, which may come after the answer of the write that causes it."""
    with trio.fail_after(WAKE_TIMEOUT_S):
        await wake.wait()


class MetadataStoreSuite:
    """The promises of any store. Needs a fixture `backend`: a `Backend` without nodes."""

    async def test_a_created_node_is_read_at_version_0(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"value"), Create("/a/b", b"")])
        assert await store.get("/a") == Node(b"value", 0)
        assert await store.get("/a/b") == Node(b"", 0)
        await store.close()

    async def test_put_needs_the_version_and_raises_it_by_one(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"0")])
        await store.multi([Put("/a", b"1", 0)])
        await store.multi([Put("/a", b"2", ANY_VERSION)])
        assert await store.get("/a") == Node(b"2", 2)
        with pytest.raises(BadVersion) as raised:
            await store.multi([Put("/a", b"3", 1)])
        assert raised.value.path == "/a"
        assert await store.get("/a") == Node(b"2", 2)
        await store.close()

    async def test_only_the_first_of_two_writers_with_the_same_version_succeeds(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"0")])
        lost: list[bytes] = []

        async def write(value: bytes) -> None:
            try:
                await store.multi([Put("/a", value, 0)])
            except BadVersion:
                lost.append(value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, b"x")
            nursery.start_soon(write, b"y")
        assert len(lost) == 1
        assert (await store.get("/a")).value in {b"x", b"y"} - set(lost)
        await store.close()

    async def test_delete_needs_the_version_and_a_new_node_begins_at_0(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"")])
        await store.multi([Put("/a", b"", 0)])
        with pytest.raises(BadVersion):
            await store.multi([Delete("/a", 0)])
        await store.multi([Delete("/a", 1)])
        with pytest.raises(NoNode):
            await store.get("/a")
        await store.multi([Create("/a", b"")])
        assert (await store.get("/a")).version == 0
        await store.close()

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Create("/a", b""), NodeExists),
            (Create("/none/b", b""), NoNode),
            (Create("/mine/b", b""), NoChildrenForEphemerals),
            (Put("/none", b"", ANY_VERSION), NoNode),
            (Put("/a", b"", 7), BadVersion),
            (Delete("/none"), NoNode),
            (Delete("/a"), NotEmpty),
            (Delete("/a/b", 7), BadVersion),
            (Check("/none", 0), NoNode),
            (Check("/a", 7), BadVersion),
        ],
    )
    async def test_a_multi_is_all_or_nothing(
        self, backend: Backend, operation: Create | Put | Delete | Check, error: type[StoreError]
    ) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b""), Create("/a/b", b""), Create("/mine", b"", ephemeral=True)])
        with pytest.raises(error):
            await store.multi([Create("/new", b""), Put("/a/b", b"changed", 0), Check("/a", 0), operation])
        assert await store.get("/a/b") == Node(b"", 0)
        assert await store.children("") == ["a", "mine"]
        await store.close()
        store = await backend.open()
        assert await store.children("") == ["a"]
        await store.close()

    async def test_operations_of_a_multi_see_the_ones_before(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi(
            [
                Create("/a", b"0"),
                Create("/a/b", b""),
                Put("/a", b"1", 0),
                Check("/a", 1),
                Delete("/a/b", 0),
                Delete("/a", 1),
                Create("/a", b"again"),
            ]
        )
        assert await store.get("/a") == Node(b"again", 0)
        assert await store.children("/a") == []
        await store.close()

    async def test_a_multi_that_is_too_large_is_a_mistake_of_the_caller(self, backend: Backend) -> None:
        store = await backend.open()
        with pytest.raises(ValueError, match="too large"):
            await store.multi([Create(f"/{number}", b"") for number in range(MULTI_OPERATIONS_MAX + 1)])
        with pytest.raises(ValueError, match="too large"):
            await store.multi([Create("/a", bytes(MULTI_SIZE_MAX_BYTES))])
        await store.close()

    async def test_children_are_sorted_and_come_with_their_values(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b""), Create("/a/10", b"x"), Create("/a/9", b"y"), Create("/a/10/deep", b"")])
        await store.multi([Put("/a/9", b"z", 0)])
        assert await store.children("/a") == ["10", "9"]
        assert await store.read_children("/a") == {"10": Node(b"x", 0), "9": Node(b"z", 1)}
        with pytest.raises(NoNode):
            await store.children("/none")
        with pytest.raises(NoNode):
            await store.read_children("/none")
        await store.close()

    async def test_ephemeral_nodes_go_with_the_session_and_the_others_stay(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/mine", b"", ephemeral=True), Create("/a", b"")])
        await store.multi([Put("/mine", b"more", 0), Put("/a", b"more", 0)])
        assert await store.get("/mine") == Node(b"more", 1)
        await store.close()
        store = await backend.open()
        assert await store.children("") == ["a"]
        assert await store.get("/a") == Node(b"more", 1)
        await store.close()

    async def test_an_ephemeral_node_can_be_deleted(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/mine", b"", ephemeral=True)])
        await store.multi([Delete("/mine", 0)])
        assert await store.children("") == []
        await store.close()

    async def test_after_close_everything_says_that_the_session_is_lost(self, backend: Backend) -> None:
        store = await backend.open()
        await store.close()
        await store.close()
        with pytest.raises(SessionLost):
            await store.get("/a")
        with pytest.raises(SessionLost):
            await store.multi([Create("/a", b"")])
        with pytest.raises(SessionLost):
            await store.sync()

    async def test_many_nodes_are_read_in_the_order_asked_for(self, backend: Backend) -> None:
        store = await backend.open()
        names = [f"{number:04}" for number in range(1_200)]
        await store.multi([Create("/a", b"")])
        for first in range(0, len(names), 1_000):
            await store.multi([Create(f"/a/{name}", name.encode()) for name in names[first : first + 1_000]])
        found = await store.read_many([f"/a/{name}" for name in [*reversed(names), "none"]])
        assert found == [*(Node(name.encode(), 0) for name in reversed(names)), None]
        assert await store.read_children("/a") == {name: Node(name.encode(), 0) for name in names}
        assert await store.read_many([]) == []
        await store.multi([Create("/b", b""), Create("/b/y", b""), Create("/b/x", b"")])
        assert await store.children_of_many(["/b", "/none", "/a", "/b/x"]) == [["x", "y"], [], names, []]
        await store.close()

    async def test_exists_returns_whether_a_node_exists(self, backend: Backend) -> None:
        store = await backend.open()
        assert not await store.exists("/a")
        await store.multi([Create("/a", b"")])
        assert await store.exists("/a")
        await store.close()

    @pytest.mark.parametrize(
        ("before", "change"),
        [
            ([], Create("/a", b"")),
            ([Create("/a", b"")], Put("/a", b"", 0)),
            ([Create("/a", b"")], Delete("/a")),
        ],
    )
    async def test_a_waiter_for_a_node_is_woken_by_a_change_of_the_node(
        self, backend: Backend, before: list[Operation], change: Operation
    ) -> None:
        store = await backend.open()
        await store.multi([Create("/b", b""), *before])
        wake = trio.Event()
        assert await store.exists("/a", wake) == bool(before)
        await store.multi([Put("/b", b"", 0), Create("/ab", b"")])
        with pytest.raises(BadVersion):
            await store.multi([change, Check("/b", 0)])
        assert not wake.is_set()
        await store.multi([change])
        await woken(wake)
        await store.close()

    @pytest.mark.parametrize("change", [Create("/a/2", b""), Delete("/a/1"), Create("/a/2", b"", ephemeral=True)])
    async def test_a_waiter_for_children_is_woken_when_a_child_is_created_or_deleted(
        self, backend: Backend, change: Operation
    ) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b""), Create("/a/1", b""), Create("/a/3", b"")])
        wake = trio.Event()
        assert await store.children("/a", wake) == ["1", "3"]
        await store.multi([Put("/a", b"", 0), Put("/a/1", b"", 0), Create("/a/3/deep", b""), Create("/ab", b"")])
        assert await store.children("/a") == ["1", "3"]
        assert not wake.is_set()
        await store.multi([change])
        await woken(wake)
        await store.close()

    async def test_a_waiter_for_children_is_woken_when_their_parent_is_deleted(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"")])
        wake = trio.Event()
        await store.children("/a", wake)
        await store.multi([Delete("/a")])
        await woken(wake)
        await store.close()

    async def test_all_waiters_for_the_same_node_are_woken(self, backend: Backend) -> None:
        store = await backend.open()
        wakes = [trio.Event() for _ in range(3)]
        for wake in wakes:
            await store.exists("/a", wake)
            await store.children("", wake)
        await store.multi([Create("/a", b"")])
        for wake in wakes:
            await woken(wake)
        await store.close()

    async def test_a_waiter_that_waits_again_is_woken_again(self, backend: Backend) -> None:
        store = await backend.open()
        for number in range(3):
            wake = trio.Event()
            assert await store.children("", wake) == [str(each) for each in range(number)]
            await store.multi([Create(f"/{number}", b"")])
            await woken(wake)
        await store.close()

    async def test_the_end_of_the_session_wakes_all_waiters(self, backend: Backend) -> None:
        store = await backend.open()
        await store.multi([Create("/a", b"")])
        node, children = trio.Event(), trio.Event()
        await store.exists("/a", node)
        await store.children("/a", children)
        await store.close()
        await woken(node)
        await woken(children)

    async def test_a_cancelled_writer_leaves_the_store_whole(self, backend: Backend) -> None:
        store = await backend.open()
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.multi([Create("/a", b"")])
        in_memory = await store.children("")
        await store.close()
        store = await backend.open()
        assert await store.children("") == in_memory
        await store.close()


class SharedStoreSuite(MetadataStoreSuite):
    """The promises of stores that several sessions can use at a time."""

    async def test_a_waiter_is_woken_by_writes_and_by_the_end_of_another_session(self, backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        await store.multi([Create("/brokers", b"")])
        appeared, disappeared = trio.Event(), trio.Event()
        await store.children("/brokers", appeared)
        await other.multi([Create("/brokers/1", b"", ephemeral=True)])
        await woken(appeared)
        assert await store.children("/brokers") == ["1"]
        await store.exists("/brokers/1", disappeared)
        await other.close()
        await woken(disappeared)
        assert not await store.exists("/brokers/1")
        await store.close()
