"""The caches of coordinator state, LevelDB and the simulated one: they keep all that they are told, or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol

import plyvel
import pytest
import trio
from structlog.testing import capture_logs

from coordinator.state.cache import Checkpoint, PartitionChange
from coordinator.state.leveldb_cache import LevelDbStateCache, open_state_cache
from coordinator.state.log import StateRecord
from coordinator.testing.fakes import SimulatedStateCaches, run_inline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.state.cache import StateCache

TOPIC_ID = bytes(range(16))


class World(Protocol):
    """A disk with one cache on it."""

    async def open(self) -> StateCache: ...
    def crash(self) -> None: ...
    def fail(self) -> None:
        """Let writes fail, from the next one on."""


class Simulated:
    def __init__(self, seed: int = 0) -> None:
        self.caches = SimulatedStateCaches(Random(seed))

    async def open(self) -> StateCache:
        self.caches.is_failing = False
        return await self.caches.open(Path("/view"))

    def crash(self) -> None:
        self.caches.crash()

    def fail(self) -> None:
        self.caches.is_failing = True


class LevelDb:
    """LevelDB on real files. A crash leaves the files as they are, and abandons the process that held them."""

    def __init__(self, path: Path) -> None:
        self.directory = path / "view"
        self.is_failing = False

    async def open(self) -> LevelDbStateCache:
        return await open_state_cache(self.directory, self.run)

    async def run(self, function: Callable[[], None]) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_failing:
            self.is_failing = False
            raise plyvel.IOError("no space left on device")
        function()

    def crash(self) -> None:
        self.directory = shutil.copytree(
            self.directory, self.directory.with_name(self.directory.name + "+"), ignore=shutil.ignore_patterns("LOCK")
        )

    def fail(self) -> None:
        self.is_failing = True


@pytest.fixture(params=["simulated", "LevelDB"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return Simulated() if request.param == "simulated" else LevelDb(tmp_path)


def change(partition: int, next_offset: int, values: Mapping[bytes, bytes | None]) -> PartitionChange:
    return PartitionChange(partition, Checkpoint(TOPIC_ID, 3, next_offset, next_offset - 1), values)


async def contents(cache: StateCache, partition: int) -> tuple[int, dict[bytes, bytes | None]] | None:
    """The next offset and the values of a partition."""
    loaded = await cache.load(partition)
    return None if loaded is None else (loaded[0].next_offset, dict(loaded[1]))


async def test_saved_records_are_loaded_at_once_and_after_a_restart(world: World) -> None:
    cache = await world.open()
    assert await cache.load(0) is None
    await cache.save([change(0, 2, {b"b": b"2", b"a": b"1", b"": b""})])
    for _ in range(2):
        assert await cache.load(0) == (
            Checkpoint(TOPIC_ID, 3, 2, 1),
            [StateRecord(b"", b""), StateRecord(b"a", b"1"), StateRecord(b"b", b"2")],
        )
        await cache.close()
        cache = await world.open()
    await cache.close()


async def test_a_value_replaces_the_one_before_and_none_removes_it(world: World) -> None:
    cache = await world.open()
    await cache.save([change(0, 2, {b"a": b"1", b"b": b"1"})])
    await cache.save([change(0, 5, {b"a": b"2", b"b": None, b"c": None})])
    assert await contents(cache, 0) == (5, {b"a": b"2"})
    await cache.save([change(0, 6, {})])
    assert await contents(cache, 0) == (6, {b"a": b"2"})
    await cache.close()


async def test_partitions_do_not_see_each_other(world: World) -> None:
    cache = await world.open()
    numbers = [0, 1, 255, 256, 65_535, 2**31 - 1]
    await cache.save([change(number, number, {b"k": b"%d" % number}) for number in numbers])
    await cache.discard(255)
    await cache.discard(254)
    for number in numbers:
        expected = None if number == 255 else (number, {b"k": b"%d" % number})
        assert await contents(cache, number) == expected
    await cache.close()


async def test_nothing_of_a_discarded_partition_comes_back(world: World) -> None:
    cache = await world.open()
    await cache.save([change(0, 9, {b"old": b"1"})])
    await cache.discard(0)
    assert await cache.load(0) is None
    await cache.save([change(0, 1, {b"new": b"1"})])
    assert await contents(cache, 0) == (1, {b"new": b"1"})
    await cache.close()


@pytest.mark.parametrize("seed", range(20))
async def test_a_crash_leaves_the_state_of_one_of_the_saves(tmp_path: Path, seed: int) -> None:
    for world in (Simulated(seed), LevelDb(tmp_path)):
        cache = await world.open()
        for number in range(1, 10):
            await cache.save([change(0, number, {b"k": b"%d" % number}), change(1, number, {b"%d" % number: b""})])
        world.crash()
        await cache.save([change(0, 99, {})])  # of the dead process
        cache = await world.open()
        first, second = await contents(cache, 0), await contents(cache, 1)
        kept = 0 if first is None else first[0]
        assert isinstance(world, Simulated) or kept == 9
        assert first == ((kept, {b"k": b"%d" % kept}) if kept else None)
        assert second == ((kept, {b"%d" % number: b"" for number in range(1, kept + 1)}) if kept else None)
        await cache.close()


async def test_the_simulated_cache_loses_saves_in_some_crashes_and_all_on_demand() -> None:
    world = Simulated()
    kept = set()
    for number in range(50):
        cache = await world.open()
        await cache.discard(0)
        await cache.save([change(0, number, {})])
        world.crash()
        kept.add((await (await world.open()).load(0)) is not None)
    assert kept == {False, True}
    world.caches.lose()
    assert await (await world.open()).load(0) is None


async def test_after_a_failed_write_the_view_is_empty_and_takes_nothing(world: World) -> None:
    cache = await world.open()
    await cache.save([change(0, 1, {b"a": b"1"}), change(1, 1, {})])
    world.fail()
    with capture_logs() as logs:
        await cache.save([change(0, 2, {b"a": b"2"})])
        await cache.save([change(0, 3, {b"a": b"3"})])
        await cache.discard(0)
        assert await cache.load(0) is None
        await cache.close()
    assert [one["reason"] for one in logs] == (["no space left on device"] if isinstance(world, LevelDb) else [])
    cache = await world.open()
    assert await cache.load(0) is None
    assert await cache.load(1) is None
    await cache.save([change(0, 4, {})])
    assert await contents(cache, 0) == (4, {})
    await cache.close()


async def test_calls_that_overlap_take_effect_in_their_order(world: World) -> None:
    cache = await world.open()
    calls: list[int] = []

    async def save(number: int) -> None:
        calls.append(number)
        await cache.save([change(0, number, {b"newest": b"%d" % number, b"%d" % number: b""})])
        seen = await contents(cache, 0)
        assert seen is not None
        assert calls.index(seen[0]) >= calls.index(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(save, number)
    values = {b"%d" % number: b"" for number in range(10)}
    assert await contents(cache, 0) == (calls[-1], {**values, b"newest": b"%d" % calls[-1]})
    await cache.close()


async def test_a_call_takes_effect_though_its_caller_is_cancelled(world: World) -> None:
    cache = await world.open()
    async with trio.open_nursery() as nursery:
        for number in range(1, 4):
            nursery.start_soon(cache.save, [change(number, 1, {})])
        nursery.cancel_scope.cancel()
    assert [await contents(cache, number) for number in range(1, 4)] == [(1, {})] * 3
    await cache.close()


async def test_work_runs_on_a_thread_in_production(tmp_path: Path) -> None:
    cache = await open_state_cache(tmp_path / "view", trio.to_thread.run_sync)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(cache.save, [change(number, 1, {})])
    assert [await contents(cache, number) for number in range(20)] == [(1, {})] * 20
    await cache.close()


# Wrong directories


async def opened_on(directory: Path) -> tuple[LevelDbStateCache, list[str]]:
    """The cache, and the levels of its log lines."""
    with capture_logs() as logs:
        cache = await open_state_cache(directory, run_inline)
    return cache, [one["log_level"] for one in logs]


@pytest.mark.parametrize("entries", [{b"format": b"2"}, {b"x": b"1"}, {b"format": b"1"}, {b"format": b"1", b"b": b"2"}])
async def test_another_format_is_not_misread_but_replaced(tmp_path: Path, entries: Mapping[bytes, bytes]) -> None:
    with plyvel.DB(str(tmp_path / "view"), create_if_missing=True) as database:
        for key, value in entries.items():
            database.put(key, value)
        database.put(b"e\0\0\0\0key", b"value")
        database.put(b"c\0\0\0\0", bytes(28))
    cache, levels = await opened_on(tmp_path / "view")
    assert levels == ["warning"]
    assert await cache.load(0) is None
    await cache.save([change(0, 1, {b"a": b"1"})])
    await cache.close()
    cache, levels = await opened_on(tmp_path / "view")
    assert levels == []
    assert await contents(cache, 0) == (1, {b"a": b"1"})
    await cache.close()


async def test_where_no_directory_can_be_there_is_no_view(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "view"):
        cache, levels = await opened_on(directory)
        assert levels == ["warning", "error"]
        await cache.save([change(0, 1, {})])
        assert await cache.load(0) is None
        await cache.close()


async def test_a_view_in_use_is_left_alone(tmp_path: Path) -> None:
    owner = await open_state_cache(tmp_path / "view", run_inline)
    await owner.save([change(0, 1, {})])
    other, levels = await opened_on(tmp_path / "view")
    assert levels == ["error"]
    assert await other.load(0) is None
    await other.close()
    await owner.save([change(0, 2, {})])
    await owner.close()
    cache, levels = await opened_on(tmp_path / "view")
    assert await contents(cache, 0) == (2, {})
    await cache.close()


# The files after a disk fault or a power cut


async def written(directory: Path, saves: int, size_bytes: int, *, reopened: int) -> list[dict[bytes, bytes | None]]:
    """Write the files of a process that was killed; return the content of partitions 0 and 1 after each of its saves.

    From the save `reopened` on they are in the write-ahead file, before in a table.
    """
    random = Random(size_bytes)
    states: list[dict[bytes, bytes | None]] = [{}]
    cache = await open_state_cache(directory / "open", run_inline)
    for number in range(1, saves + 1):
        values: dict[bytes, bytes | None] = {
            b"%d" % random.randint(0, saves): None if random.random() < 0.2 else random.randbytes(size_bytes)
            for _ in range(3)
        }
        await cache.save([change(partition, number, values) for partition in (0, 1)])
        merged = {**states[-1], **values}
        states.append({key: value for key, value in merged.items() if value is not None})
        if number == reopened:
            await cache.close()
            cache = await open_state_cache(directory / "open", run_inline)
    shutil.copytree(directory / "open", directory / "killed", ignore=shutil.ignore_patterns("LOCK"))
    await cache.close()
    return states


async def is_right_or_nothing(directory: Path, states: list[dict[bytes, bytes | None]]) -> int:
    """The number of saves that are there; both partitions must be as one save left them, or absent."""
    cache, _ = await opened_on(directory)
    found = [await contents(cache, partition) for partition in (0, 1)]
    await cache.close()
    numbers = set()
    for one in found:
        if one is not None:
            numbers.add(one[0])
            assert one[1] == states[one[0]]
    assert len(numbers) <= 1
    return max(numbers, default=0)


@pytest.mark.parametrize("suffix", [".ldb", ".log", "MANIFEST", "CURRENT"])
async def test_flipped_bits_leave_the_right_state_or_none(tmp_path: Path, suffix: str) -> None:
    states = await written(tmp_path, 60, 60, reopened=40)
    names = [path.name for path in (tmp_path / "killed").iterdir() if suffix in path.name]
    assert names
    random = Random(5)
    for name in names:
        content = (tmp_path / "killed" / name).read_bytes()
        for number in range(40):
            damaged = bytearray(content)
            damaged[random.randrange(len(content))] ^= 1 << random.randrange(8)
            copy = shutil.copytree(tmp_path / "killed", tmp_path / f"{name} {number}")
            (copy / name).write_bytes(damaged)
            await is_right_or_nothing(copy, states)
            shutil.rmtree(copy, ignore_errors=True)


async def test_bits_that_flip_under_an_open_view_are_noticed(tmp_path: Path) -> None:
    """The last block of the last table counts, too, which an iterator does not check."""
    states = await written(tmp_path, 60, 60, reopened=60)
    (table,) = (tmp_path / "killed").glob("*.ldb")
    content = table.read_bytes()
    for position in range(0, len(content), 211):
        copy = shutil.copytree(tmp_path / "killed", tmp_path / str(position))
        cache = await open_state_cache(copy, run_inline)
        with (copy / table.name).open("r+b") as file:
            file.seek(position)
            file.write(bytes([content[position] ^ 1]))
        assert await contents(cache, 1) in (None, (60, states[60]))
        await cache.close()


async def test_a_torn_tail_takes_the_last_saves_and_no_other(tmp_path: Path) -> None:
    states = await written(tmp_path, 20, 30, reopened=10)
    (log,) = (tmp_path / "killed").glob("*.log")
    content = log.read_bytes()
    kept = set()
    for size_bytes in range(0, len(content), 61):
        copy = shutil.copytree(tmp_path / "killed", tmp_path / str(size_bytes))
        (copy / log.name).write_bytes(content[:size_bytes])
        kept.add(await is_right_or_nothing(copy, states))
    assert kept == set(range(10, 20))


async def test_saves_that_leveldb_lost_without_a_word_are_missed(tmp_path: Path) -> None:
    """The last change of the manifest, which names the newest table, is taken for a torn tail."""
    cache = await open_state_cache(tmp_path / "view", run_inline)
    random = Random(1)
    for number in range(1, 31):  # two write buffers full: the first was written as a table
        await cache.save([change(0, number, {b"%d" % number: random.randbytes(100_000)})])
    await cache.close()
    (manifest,) = (tmp_path / "view").glob("MANIFEST*")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    copy = shutil.copytree(tmp_path / "view", tmp_path / "copy")
    with plyvel.DB(str(copy), paranoid_checks=True) as database:
        keys = list(database.prefixed_db(b"e\0\0\0\0").iterator(include_value=False))
    assert b"30" in keys
    assert len(keys) < 30
    cache, levels = await opened_on(tmp_path / "view")
    assert levels == ["warning"]
    assert await cache.load(0) is None
    await cache.close()


async def test_numbers_of_batches_go_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.state.leveldb_cache.SLOTS", 4)
    for start in range(6):
        cache, levels = await opened_on(tmp_path / "view")
        assert levels == []
        assert await contents(cache, 0) == ((start - 1, {}) if start else None)
        await cache.save([change(0, start, {})])
        await cache.close()
    with plyvel.DB(str(tmp_path / "view")) as database:
        database.delete(b"b\0\x01")
    cache, levels = await opened_on(tmp_path / "view")
    assert levels == ["warning"]
    await cache.close()


async def test_a_checkpoint_of_another_size_is_not_read_but_the_log(tmp_path: Path) -> None:
    cache = await open_state_cache(tmp_path / "view", run_inline)
    await cache.save([change(0, 1, {b"a": b"1"})])
    await cache.close()
    with plyvel.DB(str(tmp_path / "view")) as database:
        database.put(b"c\0\0\0\0", bytes(5))
    cache, levels = await opened_on(tmp_path / "view")
    assert levels == []
    assert await cache.load(0) is None
    await cache.close()
    assert not (tmp_path / "view").exists()
