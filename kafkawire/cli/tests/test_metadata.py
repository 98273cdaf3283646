"""`kafkawire metadata`: written files, output and exit code."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from click.testing import CliRunner, Result

from coordinator.metadata_store import paths
from coordinator.metadata_store.embedded import open_embedded
from coordinator.testing.fakes import run_inline
from coordinator.testing.simulated_metadata_store import FakeEnsemble
from coordinator.transfer.export_format import decode_export
from coordinator.transfer.transfer import import_metadata
from kafkawire.cli import main
from kafkawire.config.tests.test_enforced import ask, fetch_request, produce
from kafkawire.testing import MemoryDeps, open_broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

SERVERS = ("--zookeeper", "ensemble:2181/kafkawire")


def on_mock_clock(work: Callable[[], Awaitable[None]]) -> None:
    trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.fixture
def deps() -> MemoryDeps:
    """Dependencies of a single broker that has a record in each of two partitions."""
    made = MemoryDeps()

    async def fill() -> None:
        async with open_broker(made) as opened:
            await opened.broker.coordinator.create_topic("t", partition_count=2)
            await produce(opened.connect())

    on_mock_clock(fill)
    return made


def run(ensemble: FakeEnsemble, *arguments: object) -> Result:
    asked: list[ZooKeeperSettings] = []

    async def connect(settings: ZooKeeperSettings) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(settings)
        return ensemble.connect()

    result = CliRunner().invoke(main, ["metadata", *map(str, arguments)], obj=connect, catch_exceptions=False)
    assert all(one.connect == SERVERS[1] for one in asked)
    return result


@pytest.fixture
def exported(deps: MemoryDeps, tmp_path: Path) -> Path:
    file = tmp_path / "cluster.export"
    result = run(deps.ensemble, "export", file, *SERVERS)
    assert result.exit_code == 0, result.output
    return file


def test_a_broker_serves_its_records_with_an_imported_metadata_store(deps: MemoryDeps, exported: Path) -> None:
    there = FakeEnsemble()
    result = run(there, "import", exported, *SERVERS, "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == {"cluster_id": document["cluster_id"], "brokers": 1, "topics": 1, "partitions": 2}
    deps.ensemble = there

    async def look() -> None:
        async with open_broker(deps) as opened:
            assert opened.broker.coordinator.image.cluster_id == document["cluster_id"]
            reply = await ask(opened.connect(), fetch_request(), 11)
            assert reply.responses[0].partitions[0].high_watermark == 1

    on_mock_clock(look)


def test_an_export_file_is_private_to_its_owner_and_never_overwritten(deps: MemoryDeps, exported: Path) -> None:
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    result = run(deps.ensemble, "export", exported, *SERVERS)
    assert (result.exit_code, result.stderr) == (1, f"Error: {exported} exists\n")


def test_the_store_of_a_broker_alone_is_a_directory_and_can_be_set_aside(exported: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    export, digest = decode_export(exported.read_bytes())

    async def fill() -> None:
        data.mkdir()
        store = await open_embedded(data / "metadata", run_inline)
        await import_metadata(store, export, digest)
        await store.close()

    trio.run(fill)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={data}\n")
    plain, aside = tmp_path / "plain", tmp_path / "aside"
    assert run(FakeEnsemble(), "export", plain, "--data-dir", data).exit_code == 0
    result = run(FakeEnsemble(), "export", aside, "--config", properties, "--set-aside")
    assert (result.exit_code, result.stderr) == (0, f"the broker's own store is {data}/metadata.exported now\n")
    assert plain.read_bytes() == aside.read_bytes()
    again, _ = decode_export(plain.read_bytes())
    kept = [(one.path, one.value) for one in again.nodes if one.path != paths.HISTORY]
    assert kept == [(one.path, one.value) for one in export.nodes]
    result = run(FakeEnsemble(), "export", tmp_path / "none", "--data-dir", data)
    assert (result.exit_code, result.stderr) == (1, f"Error: there is no metadata store {data}/metadata\n")
    assert [one.name for one in data.iterdir()] == ["metadata.exported"]


def test_a_directory_that_a_broker_has_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()

    async def hold() -> None:
        store = await open_embedded(tmp_path / "metadata", run_inline)
        result = await trio.to_thread.run_sync(run, FakeEnsemble(), "export", tmp_path / "x", "--data-dir", tmp_path)
        assert result.exit_code == 1
        assert "is already in use by another broker" in result.stderr
        await store.close()

    trio.run(hold)


def test_an_import_goes_to_an_empty_cluster(deps: MemoryDeps, exported: Path, tmp_path: Path) -> None:
    result = run(deps.ensemble, "import", exported, *SERVERS)
    assert result.exit_code == 1
    assert "the metadata store has a cluster; an import needs one that is empty" in result.stderr
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}/data\n")
    result = run(FakeEnsemble(), "import", exported, "--config", properties)
    assert (result.exit_code, "has no zookeeper.connect" in result.stderr) == (1, True)
    exported.write_bytes(exported.read_bytes()[:-9])
    result = run(FakeEnsemble(), "import", exported, *SERVERS)
    assert (result.exit_code, "the export is damaged" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    "options",
    [(), (*SERVERS, "--data-dir", "."), ("--data-dir", ".", "--credentials", __file__), (*SERVERS, "--set-aside")],
)
def test_a_command_line_that_is_not_clear_is_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    assert run(FakeEnsemble(), "export", tmp_path / "x", *options).exit_code == 2
