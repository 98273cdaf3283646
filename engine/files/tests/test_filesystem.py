"""The contract of the operating system's filesystem and the simulated disk; crashes lose what they may lose."""

import errno
import mmap
import os
import random
import resource
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

import engine.files.filesystem
from engine.files.filesystem import (
    DiskFull,
    FileSystem,
    PosixFile,
    PosixFileSystem,
    Unreadable,
    Usage,
    preallocate,
    read_small,
    replace_small,
)
from engine.files.page_cache import cached_pages
from engine.testing.simulated_disk import Fault, SimulatedFile, SimulatedFileSystem

EVICTIONS_MAX = 100  # the kernel does not drop a page that it is just looking at


@pytest.fixture(params=["real", "twin"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    if request.param == "real":
        yield PosixFileSystem(), str(tmp_path)
    else:
        twin = SimulatedFileSystem()
        twin.make_dir("/data")
        yield twin, "/data"


def test_files(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at([b"hello ", memoryview(b"world"), bytearray(b"!")], 0)
    file.write_at([b"W"], 6)
    assert (file.size(), file.read_at(0, 100), file.read_at(6, 5)) == (12, b"hello World!", b"World")
    file.truncate(5)
    file.fdatasync()
    assert file.read_at(0, 100) == b"hello"
    assert filesystem.open(f"{root}/a", create=True).size() == 5
    assert file.read_at(5, 10) == b""
    file.write_at([b"x"], 8)
    assert file.read_at(0, 100) == b"hello\0\0\0x"


def test_is_cached_returns_false_for_a_range_with_an_evicted_part(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    path, size_bytes, hole = f"{root}/a", 16 << 20, range(4 << 20, 12 << 20)  # in whole folios, however large they are
    file = filesystem.open(path, create=True)
    file.write_at([bytes(size_bytes)], 0)
    file.fdatasync()
    file.read_at(0, size_bytes)
    assert file.is_cached(0, size_bytes)
    assert file.is_cached(5, 1)
    evict(filesystem, path, hole)
    if isinstance(filesystem, PosixFileSystem) and file.is_cached(8 << 20, 1):
        pytest.skip("needs a filesystem whose pages can be dropped")
    assert file.read_cached(0, 1) == file.read_cached(size_bytes - 1, 1) == b"\0"
    assert not file.is_cached(0, size_bytes)
    assert not file.is_cached(hole.stop - 10, 20)
    assert file.is_cached(0, hole.start)
    assert file.is_cached(hole.stop, size_bytes - hole.stop)
    file.read_at(0, size_bytes)
    assert file.is_cached(0, size_bytes)


def test_cached_size_ends_where_a_part_was_evicted(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    path, size_bytes, hole = f"{root}/a", 16 << 20, range(4 << 20, 12 << 20)
    file = filesystem.open(path, create=True)
    file.write_at([bytes(size_bytes)], 0)
    file.fdatasync()
    file.read_at(0, size_bytes)
    evict(filesystem, path, hole)
    if isinstance(filesystem, PosixFileSystem) and file.is_cached(8 << 20, 1):
        pytest.skip("needs a filesystem whose pages can be dropped")
    for position in (0, 5, 1 << 20, hole.start - 5000):
        found = file.cached_size(position, size_bytes)
        assert 0 <= hole.start - position - found <= mmap.PAGESIZE
        assert file.is_cached(position, found)
    assert file.cached_size(hole.start, 1 << 20) == 0
    assert file.cached_size(hole.stop - 10, 20) == 0


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 200_000])
@pytest.mark.parametrize("size_bytes", [1, 4096, 300_000])
def test_where_the_kernel_counts_no_pages_every_window_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, position: int, size_bytes: int
) -> None:
    looked_at: list[int] = []

    def read_cached(_file: PosixFile, at: int, _size_bytes: int) -> bytes:
        looked_at.append(at)
        return b"x"

    monkeypatch.setattr(engine.files.filesystem, "cached_pages", lambda *_: None)
    monkeypatch.setattr(PosixFile, "read_cached", read_cached)
    file = PosixFileSystem().open(f"{tmp_path}/a", create=True)
    assert file.is_cached(position, size_bytes)
    last = position + size_bytes - 1
    assert {looked_at[0], looked_at[-1]} == {position, last}
    assert all(after - before <= 128 * 1024 for before, after in pairwise(looked_at))


def evict(filesystem: FileSystem, path: str, part: range) -> None:
    if isinstance(filesystem, SimulatedFileSystem):
        filesystem.evict(path, part)
        return
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(EVICTIONS_MAX):
        os.posix_fadvise(descriptor, part.start, len(part), os.POSIX_FADV_DONTNEED)
        if not cached_pages(descriptor, part.start, len(part)):
            break
    os.close(descriptor)


def test_allocated_space_is_no_size_and_is_given_back(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    path = f"{root}/a"
    file = filesystem.open(path, create=True)

    def taken_bytes() -> int:
        return filesystem.allocated_bytes(path) if isinstance(filesystem, SimulatedFileSystem) else blocks_bytes(path)

    if (why := preallocate(file, 1 << 20)) is not None:
        pytest.skip(f"needs a filesystem that can allocate: {why}")
    file.write_at([b"hello"], 0)
    file.fdatasync()
    assert (file.size(), file.read_at(0, 100)) == (5, b"hello")
    assert taken_bytes() >= 1 << 20
    file.trim()
    assert taken_bytes() < 1 << 16
    file.trim()
    assert (file.size(), file.read_at(0, 100)) == (5, b"hello")


def blocks_bytes(path: str) -> int:
    return os.stat(path).st_blocks * 512


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSPC])
def test_a_failed_preallocation_takes_no_space(number: int) -> None:
    twin = SimulatedFileSystem(faults=[Fault("allocate", number)])
    file = twin.open("/a", create=True)
    assert preallocate(file, 1000) == "injected"
    assert twin.allocated_bytes("/a") == 0
    assert preallocate(file, 1000) is None
    assert twin.usage("/").used_bytes == 1000


def test_many_buffers(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    file = filesystem.open(f"{root}/a", create=True)
    file.write_at([b"%05d" % n for n in range(3000)], 3)
    assert file.size() == 15003
    assert file.read_at(3 + 5 * 2999, 5) == b"02999"


def test_names(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    filesystem.make_dir(f"{root}/d")
    with pytest.raises(FileExistsError):
        filesystem.make_dir(f"{root}/d")
    filesystem.open(f"{root}/d/one", create=True)
    filesystem.rename(f"{root}/d/one", f"{root}/d/two")
    assert filesystem.list_dir(f"{root}/d") == ["two"]
    assert filesystem.exists(f"{root}/d/two")
    assert not filesystem.exists(f"{root}/d/one")
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{root}/d/one")
    held = filesystem.open(f"{root}/d/two")
    held.write_at([b"still here"], 0)
    filesystem.unlink(f"{root}/d/two")
    assert held.read_at(0, 100) == b"still here"
    filesystem.sync_dir(f"{root}/d")
    filesystem.remove_dir(f"{root}/d")
    assert filesystem.list_dir(f"{root}/d") == []


def test_lock(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    lock = filesystem.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        filesystem.lock(f"{root}/.lock")
    lock.release()
    filesystem.lock(f"{root}/.lock").release()


def test_small_files(place: tuple[FileSystem, str]) -> None:
    filesystem, root = place
    assert read_small(filesystem, f"{root}/x") is None
    replace_small(filesystem, root, "x", b"a long first version")
    replace_small(filesystem, root, "x", b"second")
    assert read_small(filesystem, f"{root}/x") == b"second"
    assert filesystem.list_dir(root) == ["x"]


def test_short_write_goes_on_and_then_fails_for_good(tmp_path: Path) -> None:
    """RLIMIT_FSIZE lets a write through in part: an error after written bytes is no DiskFull."""
    file = PosixFileSystem().open(f"{tmp_path}/a", create=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            file.write_at([bytes(700), bytes(700)], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not isinstance(caught.value, DiskFull)
    assert file.size() == 1000


def test_full_disk_is_told_apart_from_other_errors() -> None:
    file = PosixFileSystem().open("/dev/full")
    for buffers in ([b"x"], [b"x", b"y"]):
        with pytest.raises(DiskFull):
            file.write_at(buffers, 0)


def test_descriptor_lives_as_long_as_its_holders(tmp_path: Path) -> None:
    file = PosixFileSystem().open(f"{tmp_path}/a", create=True)
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_crash_keeps_synced_content_and_synced_names_only() -> None:
    twin = SimulatedFileSystem()
    twin.make_dir("/data")
    twin.sync_dir("/")
    named = twin.open("/data/named", create=True)
    twin.sync_dir("/data")
    unnamed = twin.open("/data/unnamed", create=True)
    for file in (named, unnamed):
        file.write_at([b"durable"], 0)
        file.fdatasync()
        file.write_at([b" and not"], 7)
    twin.crash()
    assert twin.list_dir("/data") == ["named"]
    assert twin.content("/data/named") == b"durable"
    with pytest.raises(AssertionError, match="before the crash"):
        named.size()


def test_unsynced_rename_may_be_undone() -> None:
    twin = SimulatedFileSystem()
    twin.open("/a", create=True)
    twin.sync_dir("/")
    twin.rename("/a", "/b")
    twin.crash()
    assert twin.list_dir("/") == ["a"]


def test_lucky_crashes_keep_more_and_never_less() -> None:
    seen = set()
    for seed in range(200):
        twin = SimulatedFileSystem()
        file = twin.open("/a", create=True)
        twin.sync_dir("/")
        file.write_at([b"durable"], 0)
        file.fdatasync()
        file.write_at([b"ABCD"], 7)
        file.write_at([b"EFGH"], 11)
        twin.crash(random.Random(seed))
        seen.add(twin.content("/a"))
    assert all(content.startswith(b"durable") for content in seen)
    assert {b"durable", b"durableAB", b"durableABCD", b"durableABCDEFGH", b"durable\0\0\0\0EFGH"} <= seen


def test_faults_hit_once_or_for_good_and_let_bytes_through() -> None:
    twin = SimulatedFileSystem()
    file = twin.open("/a.log", create=True)
    twin.faults.append(Fault("write", errno.EIO, ".log", skip=1, written_bytes=2))
    file.write_at([b"one"], 0)
    with pytest.raises(OSError, match="injected"):
        file.write_at([b"two"], 3)
    assert twin.content("/a.log") == b"onetw"
    twin.faults.append(Fault("fdatasync", errno.EIO, is_lasting=True))
    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            file.fdatasync()


def test_usage_counts_space_as_an_unprivileged_program_sees_it(tmp_path: Path) -> None:
    usage = PosixFileSystem().usage(str(tmp_path))
    assert usage.used_bytes > 0
    assert 0 < usage.ratio <= 1
    assert Usage(110, 95, 5).ratio == 0.95


def test_read_small_returns_none_for_a_file_unlinked_just_before_its_open() -> None:
    class Vanishing(SimulatedFileSystem):
        def open(self, path: str, *, create: bool = False) -> SimulatedFile:
            self.unlink(path)
            return super().open(path, create=create)

    filesystem = Vanishing()
    SimulatedFileSystem.open(filesystem, "/x", create=True)
    assert read_small(filesystem, "/x") is None


def test_a_file_that_cannot_be_opened_for_want_of_a_descriptor_is_a_disk_without_room(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(DiskFull) as caught:
            PosixFileSystem().open(f"{tmp_path}/a", create=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert caught.value.errno == errno.EMFILE


def test_a_writeback_error_is_raised_by_a_single_sync_of_each_open_descriptor() -> None:
    """Linux does the same; a descriptor that is opened after the report gets no error."""
    twin = SimulatedFileSystem()
    one, other = twin.open("/a", create=True), twin.open("/a")
    twin.sync_dir("/")
    one.write_at([b"lost"], 0)
    twin.faults.append(Fault("fdatasync", errno.EIO, "/a"))
    first, second = one.begin_sync(), one.begin_sync()
    unaware = twin.open("/a")
    with pytest.raises(OSError, match="injected"):
        one.end_sync(second)
    one.end_sync(first)
    with pytest.raises(OSError, match="injected"):
        other.fdatasync()
    with pytest.raises(OSError, match="injected"):
        unaware.fdatasync()
    twin.open("/a").fdatasync()
    assert twin.content("/a") == b"lost"
    twin.crash()
    assert twin.content("/a") == b""


@pytest.mark.parametrize(("has_power", "is_told"), [(True, True), (False, False)])
def test_the_next_process_gets_an_unreported_writeback_error_unless_power_was_cut(
    *, has_power: bool, is_told: bool
) -> None:
    twin = SimulatedFileSystem()
    file = twin.open("/a", create=True)
    twin.sync_dir("/")
    file.write_at([b"lost"], 0)
    twin.faults.append(Fault("fdatasync", errno.EIO, "/a"))
    file.begin_sync()
    twin.end_process() if has_power else twin.crash()
    with pytest.raises(OSError, match="injected") if is_told else nullcontext():
        twin.open("/a").fdatasync()


def test_a_sync_makes_durable_only_writes_from_before_it_began() -> None:
    twin = SimulatedFileSystem()
    file = twin.open("/a", create=True)
    twin.sync_dir("/")
    file.write_at([b"before"], 0)
    change_count = file.begin_sync()
    file.write_at([b" and after"], 6)
    file.end_sync(change_count)
    replayed = SimulatedFileSystem.replayed(twin.operations)
    for one in (twin, replayed):
        one.crash()
        assert one.content("/a") == b"before"


def test_a_file_that_is_there_may_not_be_opened_for_want_of_a_descriptor() -> None:
    twin = SimulatedFileSystem()
    twin.open("/a", create=True)
    twin.faults.append(Fault("open", errno.EMFILE, "/a"))
    with pytest.raises(DiskFull) as caught:
        twin.open("/a")
    assert caught.value.errno == errno.EMFILE
    assert twin.open("/a").size() == 0


def test_a_bad_sector_is_unreadable_until_it_is_written_again() -> None:
    twin = SimulatedFileSystem()
    file = twin.open("/a", create=True)
    file.write_at([b"0123456789"], 0)
    twin.bad_sectors["/a"] = range(4, 6)
    assert file.read_at(0, 4) == b"0123"
    with pytest.raises(Unreadable):
        file.read_at(3, 2)
    assert file.read_cached(3, 2) is None
    file.write_at([b"ab"], 4)
    assert file.read_at(0, 10) == b"0123ab6789"


def test_errors_of_reads_that_mean_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PosixFileSystem().open(f"{tmp_path}/a", create=True)
    file.write_at([b"x"], 0)

    def fail_with(code: int) -> None:
        def fail(*_: object) -> bytes:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "pread", fail)
        monkeypatch.setattr(os, "preadv", fail)

    for code in (errno.EIO, errno.EBADMSG):
        fail_with(code)
        with pytest.raises(Unreadable):
            file.read_at(0, 1)
        assert file.read_cached(0, 1) is None
    fail_with(errno.EBADF)
    with pytest.raises(OSError, match="Bad file") as caught:
        file.read_at(0, 1)
    assert not isinstance(caught.value, Unreadable)
