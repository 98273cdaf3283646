"""`kafkawire metadata accept-rollback`: output, refusals, and effects of `--yes`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from coordinator.metadata.history import HistoryPosition
from coordinator.metadata_store import paths
from engine.files.filesystem import PosixFileSystem
from engine.log_dirs.layout import Identity, write_identity, write_topic_id
from kafkawire.adapters.followed_change import NAME, encode
from kafkawire.cli.metadata.accept_rollback import NO_EVIDENCE, WARNINGS
from kafkawire.cli.tests.test_metadata import SERVERS, on_mock_clock, run
from kafkawire.testing import MemoryDeps, open_broker

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from coordinator.api import ClusterImage

pytestmark = pytest.mark.usefixtures("image")


@pytest.fixture
def deps() -> MemoryDeps:
    return MemoryDeps()


@pytest.fixture
def image(deps: MemoryDeps) -> ClusterImage:
    """Image of a broker that has run on the ensemble and was stopped."""
    found: list[ClusterImage] = []

    async def fill() -> None:
        async with open_broker(deps) as opened:
            await opened.broker.coordinator.create_topic("t", partition_count=2)
            found.append(opened.broker.coordinator.image)

    on_mock_clock(fill)
    return found[0]


@pytest.fixture
def log_dir(image: ClusterImage, tmp_path: Path) -> Path:
    """Log dir of the broker. It has followed 40 more changes, and has partitions of another topic."""
    path, filesystem = tmp_path / "data", PosixFileSystem()
    path.mkdir()
    write_identity(filesystem, str(path), Identity(image.cluster_id, 1))
    (path / NAME).write_bytes(encode(HistoryPosition(0, "", image.version + 40)))
    for name, topic_id in (
        ("t-0", image.topics["t"].topic_id),
        ("t-2", image.topics["t"].topic_id),
        ("u-0", b"u" * 16),
    ):
        (path / name).mkdir()
        write_topic_id(filesystem, str(path / name), topic_id)
    return path


def writes(deps: MemoryDeps) -> int:
    return sum(map(len, deps.ensemble.history))


def accept(deps: MemoryDeps, *options: object) -> Result:
    return run(deps.ensemble, "accept-rollback", *SERVERS, *options)


def test_accept_rollback_without_yes_warns_and_writes_nothing(deps: MemoryDeps, log_dir: Path) -> None:
    before = writes(deps)
    result = accept(deps, "--log-dir", log_dir)
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert tuple(lines[:3]) == WARNINGS
    assert lines[-1] == "nothing was changed: --yes does it"
    assert f"not named by the metadata, kept on the disk and not served: {log_dir}/u-0" in lines
    assert f"not named by the metadata, kept on the disk and not served: {log_dir}/t-2" in lines
    assert not any(f"{log_dir}/t-0" in line for line in lines)
    assert any("its newest change is" in line for line in lines)
    table = [line.split() for line in result.stdout.splitlines()]
    assert table[0] == ["NUMBER", "NOW", "THEN"]
    assert ["history", "0", "1"] in table
    assert len(table) == 7
    assert writes(deps) == before


def test_accept_rollback_with_yes_acts_once_and_again_only_with_force(deps: MemoryDeps, log_dir: Path) -> None:
    result = accept(deps, "--log-dir", log_dir, "--yes", "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["done"], document["topics"]) == (True, ["t"])
    assert document["partitions_not_named"] == [f"{log_dir}/t-2", f"{log_dir}/u-0"]
    assert document["numbers"]["change"]["then"] > document["numbers"]["change"]["now"] + 2**20 - 1
    again = accept(deps, "--log-dir", log_dir, "--yes")
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (1, f"Error: {NO_EVIDENCE}")
    forced = accept(deps, "--yes", "--force")
    assert forced.exit_code == 0, forced.output

    async def look() -> None:
        async with open_broker(deps) as opened:
            history = opened.broker.coordinator.image.history
            assert (history.generation, history.keeps_strays) == (2, True)

    on_mock_clock(look)


def test_a_store_that_no_log_dir_contradicts_needs_force(deps: MemoryDeps, log_dir: Path, image: ClusterImage) -> None:
    before = writes(deps)
    (log_dir / NAME).write_bytes(encode(HistoryPosition(0, "", image.version)))
    for options in (("--log-dir", log_dir), ()):
        result = accept(deps, *options, "--yes")
        assert (result.exit_code, NO_EVIDENCE in result.stderr) == (1, True)
    assert writes(deps) == before


def test_a_running_broker_is_named_and_refuses_it(deps: MemoryDeps, log_dir: Path) -> None:
    async def look() -> None:
        async with open_broker(deps):
            before = writes(deps)
            dry = accept_in_thread(deps, log_dir)
            assert (dry.exit_code, "brokers are registered, stop them before --yes: 1" in dry.stderr) == (0, True)
            refused = accept_in_thread(deps, log_dir, "--yes")
            assert (refused.exit_code, "stop the brokers first" in refused.stderr) == (1, True)
            assert writes(deps) == before

    on_mock_clock(look)


def accept_in_thread(deps: MemoryDeps, log_dir: Path, *options: str) -> Result:
    """Run the command in a thread, with a trio run of its own, while the present run stands still."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(accept, deps, "--log-dir", log_dir, *options).result()


def test_a_log_dir_of_another_cluster_or_none_is_refused(deps: MemoryDeps, log_dir: Path, tmp_path: Path) -> None:
    write_identity(PosixFileSystem(), str(log_dir), Identity("another", 1))
    result = accept(deps, "--log-dir", log_dir)
    assert (result.exit_code, "belongs to the cluster another" in result.stderr) == (1, True)
    result = accept(deps, "--log-dir", tmp_path)
    assert (result.exit_code, "is no log dir" in result.stderr) == (1, True)


def test_a_store_without_a_cluster_is_refused() -> None:
    result = accept(MemoryDeps())
    assert (result.exit_code, "the metadata store has no cluster" in result.stderr) == (1, True)


def test_the_numbers_of_an_acceptance_that_was_broken_off_stay(deps: MemoryDeps, log_dir: Path) -> None:
    from coordinator.testing.simulated_metadata_store import Loss

    async def broken() -> None:
        from random import Random

        from coordinator.metadata_store.store import ConnectionLost
        from coordinator.transfer.rollback import accept as do
        from coordinator.transfer.rollback import next_history, read_store

        store = deps.ensemble.connect()
        found = await read_store(store)
        store.script.extend([Loss.NOTHING, *[Loss.REQUEST] * 20])
        with pytest.raises(ConnectionLost):
            await do(store, found, next_history(found, (), Random(0)))
        assert await store.exists(paths.ACCEPTING)

    on_mock_clock(broken)
    dry = accept(deps)
    assert "an acceptance was begun and not finished" in dry.stderr
    done = accept(deps, "--yes")
    assert (done.exit_code, done.stdout) == (0, dry.stdout), done.output
