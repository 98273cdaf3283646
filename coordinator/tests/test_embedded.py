"""Cases of the embedded store alone: a directory that is in use, damaged, or written by another version."""

from __future__ import annotations

import shutil
from random import Random
from typing import TYPE_CHECKING

import plyvel
import pytest
import trio

from coordinator.errors import CannotStart
from coordinator.metadata_store.embedded import EmbeddedStore, open_embedded
from coordinator.metadata_store.store import ConnectionLost, Create, Node, NoNode, Put, SessionLost
from coordinator.metadata_store.tree import NodeTree
from coordinator.testing.fakes import run_inline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    store = await open_embedded(tmp_path / "metadata", run_inline)
    with pytest.raises(CannotStart, match=r"metadata is already in use by another broker$"):
        await open_embedded(tmp_path / "metadata", run_inline)
    await store.close()
    await (await open_embedded(tmp_path / "metadata", run_inline)).close()


@pytest.mark.parametrize("written", [b"2", None])
async def test_a_store_of_another_format_is_refused_and_stays_unchanged(tmp_path: Path, written: bytes | None) -> None:
    with plyvel.DB(str(tmp_path / "metadata"), create_if_missing=True) as database:
        database.put(b"something", b"else")
        if written:
            database.put(b"format", written)
    with pytest.raises(CannotStart, match=r"has the format .*; this version knows 1 only"):
        await open_embedded(tmp_path / "metadata", run_inline)
    with plyvel.DB(str(tmp_path / "metadata")) as database:
        assert database.get(b"format") == written


async def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CannotStart, match=r"cannot be opened: .*Not a directory"):
        await open_embedded(tmp_path / "file" / "metadata", run_inline)


async def test_a_flipped_bit_stops_the_start(tmp_path: Path) -> None:
    directory = tmp_path / "metadata"
    store = await open_embedded(directory, run_inline)
    await store.multi([Create("/a", bytes(1_000))])
    await store.close()
    await (await open_embedded(directory, run_inline)).close()  # moves the log into a table
    (table,) = (path for path in directory.iterdir() if path.suffix in {".ldb", ".sst"})
    damaged = bytearray(table.read_bytes())
    damaged[20] ^= 1
    table.write_bytes(damaged)
    with pytest.raises(CannotStart, match=r"damaged|cannot be opened"):
        await open_embedded(directory, run_inline)


async def test_a_flipped_bit_hides_no_node(tmp_path: Path) -> None:
    directory = tmp_path / "metadata"
    store = await open_embedded(directory, run_inline)
    await store.multi([Create(f"/{number}", Random(number).randbytes(300)) for number in range(30)])
    await store.close()
    await (await open_embedded(directory, run_inline)).close()  # moves the log into a table of several blocks
    (table,) = (path for path in directory.iterdir() if path.suffix in {".ldb", ".sst"})
    content = table.read_bytes()
    for position in range(0, len(content), 97):
        table.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        copy = shutil.copytree(directory, tmp_path / "copies" / str(position))
        try:
            damaged = await open_embedded(copy, run_inline)
        except CannotStart:
            continue
        assert len(await damaged.children("")) == 30
        await damaged.close()


async def test_written_nodes_survive_a_kill_and_ephemeral_nodes_do_not(tmp_path: Path) -> None:
    store = await open_embedded(tmp_path / "metadata", run_inline)
    await store.multi([Create("/a", b"0"), Create("/mine", b"", ephemeral=True)])
    await store.multi([Put("/a", b"1", 0)])
    shutil.copytree(tmp_path / "metadata", tmp_path / "killed", ignore=shutil.ignore_patterns("LOCK"))
    await store.close()
    killed = await open_embedded(tmp_path / "killed", run_inline)
    assert await killed.get("/a") == Node(b"1", 1)
    assert await killed.children("") == ["a"]
    await killed.close()


async def test_after_a_failed_write_the_outcome_is_unknown_and_the_store_refuses_more(tmp_path: Path) -> None:
    broken = False

    async def run(function: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        if broken:
            raise plyvel.IOError("disk full")
        function()

    store = await open_embedded(tmp_path / "metadata", run)
    wake = trio.Event()
    await store.exists("/a", wake)
    broken = True
    with pytest.raises(ConnectionLost):
        await store.multi([Create("/a", b"")])
    broken = False
    with pytest.raises(SessionLost):
        await store.multi([Create("/a", b"")])
    assert wake.is_set()
    with pytest.raises(SessionLost):
        await store.renew()
    await store.close()


async def test_a_write_is_not_visible_before_it_is_durable(tmp_path: Path) -> None:
    durable = trio.Event()

    async def run(function: Callable[[], None]) -> None:
        if (tmp_path / "metadata" / "CURRENT").exists():
            await durable.wait()
        function()

    store = await open_embedded(tmp_path / "metadata", run)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.multi, [Create("/a", b"")])
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NoNode):
            await store.get("/a")
        durable.set()
    assert await store.get("/a") == Node(b"", 0)
    await store.close()


async def test_writes_run_on_a_thread_in_production(tmp_path: Path) -> None:
    store = await open_embedded(tmp_path / "metadata", trio.to_thread.run_sync)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(store.multi, [Create(f"/{number}", b"")])
    assert len(await store.children("")) == 20
    await store.close()


async def test_every_write_is_synced(tmp_path: Path) -> None:
    class Watched:
        def __init__(self, database: plyvel.DB) -> None:
            self.database = database
            self.synced: list[bool] = []

        def write_batch(self, *, sync: bool) -> object:
            self.synced.append(sync)
            return self.database.write_batch(sync=sync)

        def close(self) -> None:
            self.database.close()

    watched = Watched(plyvel.DB(str(tmp_path / "metadata"), create_if_missing=True))
    store = EmbeddedStore(watched, NodeTree(), run_inline)
    await store.multi([Create("/a", b"")])
    await store.multi([Create("/mine", b"", ephemeral=True)])  # nothing of it is written
    await store.multi([Put("/a", b"", 0)])
    assert watched.synced == [True, True]
    await store.close()
