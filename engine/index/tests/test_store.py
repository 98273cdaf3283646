"""LevelDB and the simulated index behave alike: a list of batches; a crash keeps a prefix, and damage is an error."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.index.store import IndexBroken, IndexStore, LevelDbStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from engine.testing.simulated_index import SimulatedIndexStore

Reopen = Callable[[], IndexStore]


@pytest.fixture(params=["twin", "LevelDB"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    filesystem = SimulatedFileSystem()
    if request.param == "twin":
        return lambda: SimulatedIndexStore(filesystem, "/index")
    return lambda: LevelDbStore(str(tmp_path / "index"))


def test_written_entries_are_found_in_order_before_and_after_a_restart(reopen: Reopen) -> None:
    store = reopen()
    store.write([(b"b", b"2"), (b"a", b"1"), (b"c", b"3")])
    store.write([(b"b", b"22")], [b"a"], sync=True)
    for _ in range(2):
        assert (store.get(b"a"), store.get(b"b")) == (None, b"22")
        assert store.scan(b"a", b"z") == [(b"b", b"22"), (b"c", b"3")]
        assert store.scan(b"b", b"c") == [(b"b", b"22")]
        store.close()
        store = reopen()
    store.close()


def test_a_put_and_a_delete_of_one_key_in_one_batch_leave_it(reopen: Reopen) -> None:
    store = reopen()
    store.write([(b"a", b"1")], [b"a"])
    assert store.get(b"a") == b"1"
    store.close()


def test_a_flipped_bit_in_leveldb_is_told(tmp_path: Path) -> None:
    store = LevelDbStore(str(tmp_path))
    for number in range(100):
        store.write([(b"%d" % number, bytes(100))])
    store.close()
    for path in [*tmp_path.glob("*.log"), *tmp_path.glob("*.ldb")]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(IndexBroken, match="checksum"):
        LevelDbStore(str(tmp_path)).scan(b"", b"z")


def test_a_leveldb_store_that_cannot_be_opened_raises_index_broken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IndexBroken):
        LevelDbStore(str(tmp_path / "file" / "index"))


def test_a_flipped_bit_in_the_twin_is_told() -> None:
    filesystem = SimulatedFileSystem()
    store = SimulatedIndexStore(filesystem, "/index")
    store.write([(b"a", b"1")])
    store.write([(b"b", b"2")])
    filesystem.damage("/index/batches", 18, b"\xff")
    with pytest.raises(IndexBroken):
        SimulatedIndexStore(filesystem, "/index")


@pytest.mark.parametrize("kind", ["read", "write", "fdatasync"])
def test_errors_of_the_disk_are_told_by_the_twin(kind: str) -> None:
    filesystem = SimulatedFileSystem()
    store = SimulatedIndexStore(filesystem, "/index")
    filesystem.faults.append(Fault(kind, errno.EIO))
    with pytest.raises(IndexBroken):
        store.get(b"a") if kind == "read" else store.write([(b"a", b"1")], sync=True)


@given(st.lists(st.booleans(), max_size=8), st.none() | st.integers(0, 99))
def test_a_crash_leaves_a_prefix_of_the_batches_with_all_up_to_the_last_synced_one(
    syncs: list[bool], seed: int | None
) -> None:
    filesystem = SimulatedFileSystem()
    filesystem.make_dir("/index")
    filesystem.sync_dir("/")
    store = SimulatedIndexStore(filesystem, "/index")
    filesystem.sync_dir("/index")
    for number, sync in enumerate(syncs):
        store.write([(b"%d" % number, b"x")], sync=sync)
    filesystem.crash(None if seed is None else random.Random(seed))
    synced = len(syncs) - syncs[::-1].index(True) if True in syncs else 0
    try:
        found = SimulatedIndexStore(filesystem, "/index").scan(b"", b"z")
    except IndexBroken:
        return  # batches were lost before others that were not: an error
    assert found == [(b"%d" % number, b"x") for number in range(len(found))]
    assert len(found) >= synced
