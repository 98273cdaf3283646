"""One suite for every back end of the metadata store: what `coordinator.metadata.store` promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
import trio

from coordinator.metadata.embedded import open_embedded
from coordinator.metadata.fake import FakeEnsemble
from coordinator.metadata.store import (
    ANY_VERSION,
    MULTI_OPERATIONS_MAX,
    MULTI_SIZE_MAX_BYTES,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    NoChildrenForEphemerals,
    Node,
    NodeEvent,
    NodeExists,
    NoNode,
    NotEmpty,
    Put,
    SessionLost,
    StoreError,
    Watch,
)
from coordinator.metadata.watches import QUEUE_MAX_EVENTS
from coordinator.testing import run_inline

if TYPE_CHECKING:
    from pathlib import Path


class Backend(Protocol):
    """How the suite opens one session after the other on the same nodes."""

    async def open(self) -> MetadataStore: ...


class Embedded:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def open(self) -> MetadataStore:
        return await open_embedded(self.directory / "metadata", run_inline)


class Fake:
    def __init__(self) -> None:
        self.ensemble = FakeEnsemble()

    async def open(self) -> MetadataStore:
        await trio.lowlevel.checkpoint()
        return self.ensemble.connect()


@pytest.fixture(params=["embedded", "fake"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return Embedded(tmp_path) if request.param == "embedded" else Fake()


async def events_of(watch: Watch, count: int) -> list[NodeEvent]:
    return [await watch.receive() for _ in range(count)]


async def test_a_created_node_is_read_at_version_0(backend: Backend) -> None:
    store = await backend.open()
    await store.multi([Create("/a", b"value"), Create("/a/b", b"")])
    assert await store.get("/a") == Node(b"value", 0)
    assert await store.get("/a/b") == Node(b"", 0)
    await store.close()


async def test_put_needs_the_version_and_raises_it_by_one(backend: Backend) -> None:
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


async def test_of_two_writers_with_one_version_the_second_loses(backend: Backend) -> None:
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


async def test_delete_needs_the_version_and_a_new_node_begins_at_0(backend: Backend) -> None:
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
    backend: Backend, operation: Create | Put | Delete | Check, error: type[StoreError]
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


async def test_operations_of_a_multi_see_the_ones_before(backend: Backend) -> None:
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


async def test_a_multi_that_is_too_large_is_a_mistake_of_the_caller(backend: Backend) -> None:
    store = await backend.open()
    with pytest.raises(ValueError, match="too large"):
        await store.multi([Create(f"/{number}", b"") for number in range(MULTI_OPERATIONS_MAX + 1)])
    with pytest.raises(ValueError, match="too large"):
        await store.multi([Create("/a", bytes(MULTI_SIZE_MAX_BYTES))])
    await store.close()


async def test_children_are_sorted_and_come_with_their_values(backend: Backend) -> None:
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


async def test_ephemeral_nodes_go_with_the_session_and_the_others_stay(backend: Backend) -> None:
    store = await backend.open()
    await store.multi([Create("/mine", b"", ephemeral=True), Create("/a", b"")])
    await store.multi([Put("/mine", b"more", 0), Put("/a", b"more", 0)])
    assert await store.get("/mine") == Node(b"more", 1)
    await store.close()
    store = await backend.open()
    assert await store.children("") == ["a"]
    assert await store.get("/a") == Node(b"more", 1)
    await store.close()


async def test_an_ephemeral_node_can_be_deleted(backend: Backend) -> None:
    store = await backend.open()
    await store.multi([Create("/mine", b"", ephemeral=True)])
    await store.multi([Delete("/mine", 0)])
    assert await store.children("") == []
    await store.close()


async def test_after_close_everything_says_that_the_session_is_lost(backend: Backend) -> None:
    store = await backend.open()
    watch = await store.watch(["/a"])
    await store.close()
    await store.close()
    with pytest.raises(SessionLost):
        await store.get("/a")
    with pytest.raises(SessionLost):
        await store.multi([Create("/a", b"")])
    with pytest.raises(SessionLost):
        await store.sync()
    with pytest.raises(SessionLost):
        await watch.receive()


async def test_a_watch_sees_every_change_below_its_paths_once_and_in_order(backend: Backend) -> None:
    store = await backend.open()
    await store.multi([Create("/a", b""), Create("/b", b""), Create("/ab", b"")])
    watch = await store.watch(["/a", "/c"])
    await store.multi([Create("/a/1", b""), Create("/b/1", b""), Create("/ab/1", b"")])
    await store.multi([Put("/a/1", b"", 0), Put("/a", b"", 0)])
    await store.multi([Create("/c", b"", ephemeral=True), Delete("/a/1")])
    with pytest.raises(BadVersion):
        await store.multi([Delete("/c", 0), Check("/a", 7)])
    await store.multi([Delete("/c")])
    assert await events_of(watch, 6) == [
        NodeEvent(EventKind.CREATED, "/a/1"),
        NodeEvent(EventKind.CHANGED, "/a/1"),
        NodeEvent(EventKind.CHANGED, "/a"),
        NodeEvent(EventKind.CREATED, "/c"),
        NodeEvent(EventKind.DELETED, "/a/1"),
        NodeEvent(EventKind.DELETED, "/c"),
    ]
    with trio.move_on_after(1) as scope:
        await watch.receive()
    assert scope.cancelled_caught
    await store.close()


async def test_a_watch_wakes_its_reader(backend: Backend) -> None:
    store = await backend.open()
    watch = await store.watch([""])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.multi, [Create("/a", b"")])
        assert await watch.receive() == NodeEvent(EventKind.CREATED, "/a")
    await store.close()


async def test_a_slow_reader_of_a_watch_is_told_that_it_missed_events(backend: Backend) -> None:
    store = await backend.open()
    await store.multi([Create("/a", b"")])
    watch = await store.watch(["/a"])
    for _ in range(2):
        await store.multi([Put("/a", b"", ANY_VERSION) for _ in range(QUEUE_MAX_EVENTS // 2)])
    await store.multi([Put("/a", b"", ANY_VERSION)])
    await store.multi([Delete("/a")])
    assert await events_of(watch, 2) == [NodeEvent(EventKind.MISSED, ""), NodeEvent(EventKind.DELETED, "/a")]
    await store.close()


async def test_a_closed_watch_costs_nothing_more(backend: Backend) -> None:
    store = await backend.open()
    watch = await store.watch(["/a"])
    watch.close()
    await store.multi([Create("/a", b"")])
    with trio.move_on_after(1) as scope:
        await watch.receive()
    assert scope.cancelled_caught
    await store.close()


async def test_a_cancelled_writer_leaves_the_store_whole(backend: Backend) -> None:
    store = await backend.open()
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.multi([Create("/a", b"")])
    in_memory = await store.children("")
    await store.close()
    store = await backend.open()
    assert await store.children("") == in_memory
    await store.close()
