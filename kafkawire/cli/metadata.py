"""`kafkawire metadata`: a cluster's metadata taken out of one store and put into another, while no broker runs."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkawire.cli.cluster_command import Report, output_option, printable, show

if TYPE_CHECKING:
    from coordinator.api import ClusterImage
    from coordinator.metadata.store import MetadataStore
    from coordinator.metadata.zookeeper import ZooKeeperSettings

    OpenZooKeeper = Callable[[ZooKeeperSettings], Awaitable[MetadataStore]]

COLUMNS: Final = ("CLUSTER-ID", "BROKERS", "TOPICS", "PARTITIONS")
ASIDE: Final = ".exported"  # behind the name of a directory that no broker is to start on


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is: a directory, or ZooKeeper servers. `open_zookeeper` may be a test's."""

    where: Path | ZooKeeperSettings
    open_zookeeper: OpenZooKeeper

    async def open(self) -> MetadataStore:
        """Nobody else has a directory meanwhile. Raises CannotStart."""
        if not isinstance(self.where, Path):
            return await self.open_zookeeper(self.where)
        import trio

        from coordinator.errors import CannotStart
        from coordinator.metadata.embedded import open_embedded

        if not self.where.is_dir():  # and none is to be made
            raise CannotStart(f"there is no metadata store {self.where}")
        return await open_embedded(self.where, trio.to_thread.run_sync)


Work = Callable[[Place], Awaitable[Report]]


def place_command(function: Callable[..., Work]) -> Callable[..., None]:
    """The file, the options that say which store, and doing what the command says with both."""

    @click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
    @click.option(
        "--config", "properties", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The store of the broker that has this server.properties.",
    )  # fmt: skip
    @click.option("--zookeeper", metavar="HOST:PORT[,...][/CHROOT]", help="That of a cluster, as zookeeper.connect.")
    @click.option(
        "--credentials", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --zookeeper: a file as zookeeper.credentials.file.",
    )  # fmt: skip
    @output_option
    @click.pass_context
    def run(
        context: click.Context,
        /,
        properties: Path | None,
        zookeeper: str | None,
        credentials: Path | None,
        output: str,
        data_dir: Path | None = None,
        **arguments: Any,
    ) -> None:
        import trio

        from coordinator.errors import CoordinatorError
        from coordinator.metadata.store import StoreError
        from kafkawire.config.values import ConfigError
        from kafkawire.process import log_output

        log_output.configure()
        try:
            where = _where(properties, zookeeper, credentials, data_dir)
            report = trio.run(function(**arguments), Place(where, context.obj or _open_zookeeper))
        except StoreError as error:
            raise click.ClickException(f"the metadata store did not answer: {error!r}") from None
        except (ConfigError, CoordinatorError, OSError) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")

    return update_wrapper(run, function)


def _where(
    properties: Path | None, zookeeper: str | None, credentials: Path | None, data_dir: Path | None
) -> Path | ZooKeeperSettings:
    if sum(one is not None for one in (properties, zookeeper, data_dir)) != 1 or (credentials and not zookeeper):
        raise click.UsageError("say once where the metadata store is")
    if data_dir is not None:
        return data_dir.absolute() / "metadata"
    from coordinator.metadata.zookeeper import ZooKeeperSettings
    from kafkawire.adapters.metadata import credentials_in, metadata_directory, zookeeper_settings
    from kafkawire.config.broker_config import load
    from kafkawire.config.properties import gather

    if zookeeper is not None:
        return ZooKeeperSettings(zookeeper, credentials=None if credentials is None else credentials_in(credentials))
    given = gather(properties, os.environ, ())
    config, _ = load(given.values, given.origins)
    return zookeeper_settings(config) if config.is_in_cluster else metadata_directory(config)


async def _open_zookeeper(settings: ZooKeeperSettings) -> MetadataStore:
    from coordinator.metadata.zookeeper import open_zookeeper

    return await open_zookeeper(settings)


@click.group("metadata")
def command() -> None:
    """Take a cluster's metadata out of a store, and put it into that of a cluster. All brokers are to be stopped."""


@command.command("export")
@click.option(
    "--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="That of a broker that stands alone: the first of its log.dirs.",
)  # fmt: skip
@click.option("--set-aside", is_flag=True, help="Then rename a broker's own store, so that it does not go on with it.")
@place_command
def export(file: Path, set_aside: bool) -> Work:
    """Write the metadata of a cluster into FILE: topics, configs, epochs, all that its store has of it."""
    if file.exists():
        raise click.ClickException(f"{file} exists")
    directory = str(file.parent.absolute())

    async def work(place: Place) -> Report:
        from coordinator.cluster.export_format import encode_export
        from coordinator.cluster.transfer import image_of, take_out
        from engine.files.filesystem import PosixFileSystem, replace_small

        filesystem, aside = PosixFileSystem(), _aside(place.where) if set_aside else None
        store = await place.open()
        try:
            exported = await take_out(store)
            replace_small(filesystem, directory, file.name, encode_export(exported))
        finally:
            await store.close()
        report = _report(image_of(exported))
        if aside is not None:
            filesystem.rename(str(place.where), str(aside))
            filesystem.sync_dir(str(aside.parent))
            report.remarks.append(f"the broker's own store is {aside} now")
        return report

    return work


def _aside(where: Path | ZooKeeperSettings) -> Path:
    if not isinstance(where, Path):
        raise click.UsageError("--set-aside is for the store of a broker that stands alone")
    aside = where.with_name(where.name + ASIDE)
    if aside.exists():
        raise click.ClickException(f"{aside} exists")
    return aside


@command.command("import")
@place_command
def import_(file: Path) -> Work:
    """Put what FILE has into the empty store of a cluster. No broker starts on it before all is there.

    An import that was broken off is begun again with the same file, and goes on.
    """
    content = file.read_bytes()

    async def work(place: Place) -> Report:
        from coordinator.cluster.export_format import decode_export
        from coordinator.cluster.transfer import put_in

        if isinstance(place.where, Path):
            raise click.ClickException("the configuration has no zookeeper.connect: its broker stands alone")
        export, digest = decode_export(content)
        store = await place.open()
        try:
            return _report(await put_in(store, export, digest))
        finally:
            await store.close()

    return work


def _report(image: ClusterImage) -> Report:
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    row = (image.cluster_id, len(image.members), len(image.topics), partitions)
    keys = (column.lower().replace("-", "_") for column in COLUMNS)
    return Report(dict(zip(keys, row, strict=True)), COLUMNS, [row])
