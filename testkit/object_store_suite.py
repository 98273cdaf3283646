"""Tests that every store has to pass: a test module derives from `Conformance` and has a fixture `store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from crc32c import crc32c

from engine.api import FileRange
from tiering.object_store import Content, ContentUnreadable, FilePart, ObjectExists, ObjectMissing, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Sequence

WRITERS = 6


class Bytes:
    """A file in memory, which may end too early, or be unreadable."""

    def __init__(self, content: bytes, error: OSError | None = None) -> None:
        self._content = content
        self._error = error

    def fileno(self) -> None:
        return None

    def read_at(self, position: int, size_bytes: int) -> bytes:
        if self._error is not None:
            raise self._error
        return self._content[position : position + size_bytes]


async def keys(store: ObjectStore, prefix: str, after: str = "", count_max: int = 1000) -> Sequence[str]:
    return [one.key for one in await store.list_after(prefix, after, count_max)]


def bytes_of_part(found: bytes | bytearray | FilePart) -> bytes:
    if isinstance(found, FilePart):
        return found.file.read_at(found.position, len(found))
    return bytes(found)


class Conformance:
    async def test_get_returns_the_object_of_the_last_put(self, store: ObjectStore) -> None:
        await store.put("a/b", Content.of(b"first"))
        assert await store.get("a/b") == b"first"
        await store.put("a/b", Content.of(b"the second"))
        assert await store.get("a/b") == b"the second"

    async def test_a_part_of_an_object(self, store: ObjectStore) -> None:
        await store.put("a", Content.of(b"0123456789"))
        assert await store.get("a", 3) == b"3456789"
        assert await store.get("a", 3, 4) == b"3456"
        assert await store.get("a", 8, 10) == b"89"

    async def test_get_part_returns_bytes_or_a_file_part(self, store: ObjectStore) -> None:
        await store.put("a", Content.of(b"0123456789"))
        for start, size_bytes, expected in ((3, 4, b"3456"), (8, 10, b"89"), (10, 4, b"")):
            assert bytes_of_part(await store.get_part("a", start, size_bytes)) == expected
        with pytest.raises(ObjectMissing):
            await store.get_part("b", 0, 1)

    async def test_nothing_is_an_object(self, store: ObjectStore) -> None:
        await store.put("empty", Content.of(b""))
        assert await store.get("empty") == b""
        info = await store.head("empty")
        assert info is not None
        assert info.size_bytes == 0

    async def test_missing_object_raises_on_get_and_can_be_deleted(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissing):
            await store.get("a/b")
        assert await store.head("a/b") is None
        await store.delete("a/b")
        assert not await store.list_after("a/")

    async def test_head_and_list_return_key_size_and_time(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 5
        await store.put("a/b/c", Content.of(data))
        info = await store.head("a/b/c")
        assert info is not None
        assert (info.key, info.size_bytes, info.crc32c) == ("a/b/c", len(data), crc32c(data))
        [listed] = await store.list_after("a/")
        assert (listed.key, listed.size_bytes) == ("a/b/c", len(data))
        assert abs(listed.modified_ms - info.modified_ms) < 1000

    async def test_deleted_object_is_gone_and_its_key_can_be_used_again(self, store: ObjectStore) -> None:
        for key in ("a/b/c", "a/d"):
            await store.put(key, Content.of(b"x"))
        await store.delete("a/b/c")
        assert await store.head("a/b/c") is None
        assert await keys(store, "") == ["a/d"]
        await store.put("a/b/c", Content.of(b"again"), if_absent=True)
        assert await store.get("a/b/c") == b"again"

    async def test_put_if_absent(self, store: ObjectStore) -> None:
        await store.put("a", Content.of(b"first"), if_absent=True)
        with pytest.raises(ObjectExists):
            await store.put("a", Content.of(b"second"), if_absent=True)
        assert await store.get("a") == b"first"

    async def test_put_if_absent_succeeds_once_among_racing_writers(self, store: ObjectStore) -> None:
        done: list[bytes] = []

        async def put(number: int, key: str) -> None:
            data = b"%d" % number * 1000
            try:
                await store.put(key, Content.of(data), if_absent=True)
            except ObjectExists:
                return
            done.append(data)

        for round_ in range(10):
            done.clear()
            async with trio.open_nursery() as nursery:
                for number in range(WRITERS):
                    nursery.start_soon(put, number, f"racing/{round_}")
            assert done == [await store.get(f"racing/{round_}")]

    async def test_parts_of_files(self, store: ObjectStore) -> None:
        content = bytes(range(256)) * 4096
        parts = FileRange(Bytes(content), 10, 700_000), b"between", FileRange(Bytes(content), 0, 5)
        whole = content[10:700_010] + b"between" + content[:5]
        await store.put("a", Content(parts, crc32c(whole)))
        assert await store.get("a") == whole

    @pytest.mark.parametrize(
        ("file", "checksum"),
        [
            (Bytes(b"0123456789"), 1),  # the CRC is of other bytes
            (Bytes(b"01234"), crc32c(b"01234")),
            (Bytes(b"0123456789", OSError(5, "unreadable")), crc32c(b"0123456789")),
        ],
        ids=["changed", "shorter", "unreadable"],
    )
    async def test_unreadable_content_is_not_put(self, store: ObjectStore, file: Bytes, checksum: int) -> None:
        await store.put("there", Content.of(b"before"))
        with pytest.raises(ContentUnreadable):
            await store.put("there", Content((FileRange(file, 0, 10),), checksum))
        assert await store.get("there") == b"before"
        assert await keys(store, "") == ["there"]

    async def test_a_listing_is_in_the_order_of_keys(self, store: ObjectStore) -> None:
        names = ["a-b", "a/b", "a/b-c", "a/b/c", "a/b/d", "a.b", "a0", "b", "B"]
        for name in reversed(names):
            if name == "a/b":
                continue  # in a directory it cannot be beside the objects below it
            await store.put(name, Content.of(b"x"))
        names.remove("a/b")
        assert await keys(store, "") == sorted(names)
        assert await keys(store, "a/") == ["a/b-c", "a/b/c", "a/b/d"]
        assert await keys(store, "a/b/") == ["a/b/c", "a/b/d"]
        assert await keys(store, "a") == [name for name in sorted(names) if name.startswith("a")]

    async def test_a_listing_goes_on(self, store: ObjectStore) -> None:
        names = [f"{one}/{two}" for one in "abc" for two in "xyz"]
        for name in names:
            await store.put(name, Content.of(b"x"))
        found: list[str] = []
        while some := await keys(store, "", found[-1] if found else "", 2):
            assert len(some) <= 2
            found += some
        assert found == names
        assert await keys(store, "b/", "a/z") == ["b/x", "b/y", "b/z"]
        assert await keys(store, "b/", "b/y") == ["b/z"]
        assert await keys(store, "b/", "c/x") == []
