"""A directory as an object store."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio

from engine.files.filesystem import PosixFileSystem
from testkit.object_store_suite import Conformance
from tiering.object_store import Content, ObjectExists, StoreRefused, StoreUnavailable
from tiering.stores.directory import INCOMING, LEFT_OVER_S, DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


class Inline:
    """Workers that run jobs at once, on the calling thread."""

    async def run(self, job: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return job()


def directory_store(root: Path) -> DirectoryStore:
    numbers = count()
    return DirectoryStore(str(root), Inline(), lambda: f"{next(numbers)}", PosixFileSystem().open)


@pytest.fixture
async def store(tmp_path: Path) -> DirectoryStore:
    store = directory_store(tmp_path / "tier")
    await store.prepare()
    return store


class TestDirectory(Conformance):
    pass


def incoming(root: Path) -> list[str]:
    return os.listdir(root / "tier" / INCOMING)


async def test_nothing_is_left_beside_the_object(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put("a/b", Content.of(b"x"), if_absent=True)
    with pytest.raises(ObjectExists):
        await store.put("a/b", Content.of(b"y"), if_absent=True)
    await store.put("a/b", Content.of(b"z"))
    assert not incoming(tmp_path)


async def test_open_part_keeps_its_bytes_after_its_object_is_replaced_and_deleted(store: DirectoryStore) -> None:
    await store.put("a/b", Content.of(b"0123456789"))
    part = await store.get_part("a/b", 2, 5)
    await store.put("a/b", Content.of(b"other"))
    await store.delete("a/b")
    assert part.file.read_at(part.position, len(part)) == b"23456"


async def test_empty_directories_go_with_their_last_object(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put("a/b/c", Content.of(b"x"))
    await store.put("a/d", Content.of(b"x"))
    await store.delete("a/b/c")
    assert os.listdir(tmp_path / "tier" / "a") == ["d"]
    await store.delete("a/d")
    assert os.listdir(tmp_path / "tier") == [INCOMING]


async def test_old_incoming_files_of_a_crash_are_deleted_at_start(store: DirectoryStore, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / "tier" / INCOMING / name).write_bytes(b"half")
    long_ago_s = (tmp_path / "tier" / INCOMING / "old").stat().st_mtime - LEFT_OVER_S - 1
    os.utime(tmp_path / "tier" / INCOMING / "old", (long_ago_s, long_ago_s))
    assert not await store.list_after("")
    await store.prepare()
    assert incoming(tmp_path) == ["new"]


async def test_a_directory_that_is_gone_comes_back_with_the_next_object(store: DirectoryStore) -> None:
    await store.put("a/b/c", Content.of(b"x"))
    await store.delete("a/b/c")
    await store.put("a/b/d", Content.of(b"y"))
    assert await store.get("a/b/d") == b"y"


async def test_a_root_that_is_not_there_is_no_empty_store(tmp_path: Path) -> None:
    """The root may be a file system that is not mounted."""
    (tmp_path / "nowhere").mkdir()
    store = directory_store(tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable):
        await store.put("a", Content.of(b"x"))
    for ask in (store.get, store.head, store.delete, store.list_after):
        with pytest.raises(StoreUnavailable, match="is not there"):
            await ask("a")


async def test_put_under_an_impossible_key_is_refused(store: DirectoryStore) -> None:
    await store.put("a", Content.of(b"x"))
    with pytest.raises(StoreRefused, match="Not a directory"):
        await store.put("a/b", Content.of(b"x"))
    with pytest.raises(StoreRefused, match="File name too long"):
        await store.put("a" * 300, Content.of(b"x"))
