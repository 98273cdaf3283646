"""The metadata store of a `kafkawire metadata` command: its options, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkawire.cli.common.cluster_command import Report, output_option, printable, show

if TYPE_CHECKING:
    from coordinator.metadata_store.store import MetadataStore
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

    OpenZooKeeper = Callable[[ZooKeeperSettings], Awaitable[MetadataStore]]


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Location of a metadata store: a directory, or ZooKeeper servers. Tests give another `open_zookeeper`."""

    address: Path | ZooKeeperSettings
    open_zookeeper: OpenZooKeeper
    log_dirs: tuple[Path, ...] = ()  # named by the options

    async def open(self) -> MetadataStore:
        """Open the store. A directory is locked meanwhile. Raises CannotStart."""
        if not isinstance(self.address, Path):
            return await self.open_zookeeper(self.address)
        import trio

        from coordinator.errors import CannotStart
        from coordinator.metadata_store.embedded import open_embedded

        if not self.address.is_dir():  # none is created
            raise CannotStart(f"there is no metadata store {self.address}")
        return await open_embedded(self.address, trio.to_thread.run_sync)


Work = Callable[[StoreLocation], Awaitable[Report]]


def store_command(function: Callable[..., Work]) -> Callable[..., None]:
    """Make a click command of a function: add the options of the store, run the returned Work, show its Report."""

    @click.option(
        "--config", "properties", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Use the store of the broker with this server.properties.",
    )  # fmt: skip
    @click.option(
        "--zookeeper",
        metavar="HOST:PORT[,...][/CHROOT]",
        help="ZooKeeper servers of a cluster, as in zookeeper.connect.",
    )
    @click.option(
        "--credentials", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Credentials file for --zookeeper, as zookeeper.credentials.file.",
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
        from coordinator.metadata_store.store import StoreError
        from kafkawire.config.values import ConfigError
        from kafkawire.process import log_output

        log_output.configure()
        try:
            address, log_dirs = _locate(properties, zookeeper, credentials, data_dir)
            report = trio.run(function(**arguments), StoreLocation(address, context.obj or _open_zookeeper, log_dirs))
        except StoreError as error:
            raise click.ClickException(f"the metadata store did not answer: {error!r}") from None
        except (ConfigError, CoordinatorError, OSError) as error:
            raise click.ClickException(printable(str(error))) from None
        show(report, as_json=output == "json")
        if report.problems:
            context.exit(1)

    return update_wrapper(run, function)


def _locate(
    properties: Path | None, zookeeper: str | None, credentials: Path | None, data_dir: Path | None
) -> tuple[Path | ZooKeeperSettings, tuple[Path, ...]]:
    if sum(one is not None for one in (properties, zookeeper, data_dir)) != 1 or (credentials and not zookeeper):
        raise click.UsageError("say once where the metadata store is")
    if data_dir is not None:
        return data_dir.absolute() / "metadata", (data_dir.absolute(),)
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings
    from kafkawire.adapters.metadata import credentials_in, metadata_directory, zookeeper_settings
    from kafkawire.config.broker_config import load
    from kafkawire.config.properties import gather

    if zookeeper is not None:
        given = None if credentials is None else credentials_in(credentials)
        return ZooKeeperSettings(zookeeper, credentials=given), ()
    gathered = gather(properties, os.environ, ())
    config, _ = load(gathered.values, gathered.origins)
    address = zookeeper_settings(config) if config.is_in_cluster else metadata_directory(config)
    return address, tuple(path.absolute() for path in config.log_dirs)


async def _open_zookeeper(settings: ZooKeeperSettings) -> MetadataStore:
    from coordinator.metadata_store.zookeeper import open_zookeeper

    return await open_zookeeper(settings)
