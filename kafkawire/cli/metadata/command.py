"""`kafkawire metadata`: export, import and accepted rollback of a cluster's metadata, while no broker runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.metadata.accept_rollback import accept_rollback
from kafkawire.cli.metadata.place import StoreLocation, Work, store_command

if TYPE_CHECKING:
    from coordinator.api import ClusterImage
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

COLUMNS: Final = ("CLUSTER-ID", "BROKERS", "TOPICS", "PARTITIONS")
RENAMED_SUFFIX: Final = ".exported"  # suffix of a directory that no broker may start on

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group("metadata")
def command() -> None:
    """Export or import a cluster's metadata, or go on with a store that was rolled back. Stop all brokers first."""


command.add_command(accept_rollback)


@command.command("export")
@click.option(
    "--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a single broker: the first of its log.dirs.",
)  # fmt: skip
@click.option(
    "--set-aside", is_flag=True, help="Rename a single broker's store afterwards, so that no broker starts on it."
)
@file_argument
@store_command
def export(file: Path, set_aside: bool) -> Work:
    """Write the metadata of a cluster into FILE: topics, configs, epochs and all else in its store."""
    if file.exists():
        raise click.ClickException(f"{file} exists")
    directory = str(file.parent.absolute())

    async def work(location: StoreLocation) -> Report:
        from coordinator.transfer.export_format import encode_export
        from coordinator.transfer.transfer import export_metadata, image_of
        from engine.files.filesystem import PosixFileSystem, replace_small

        filesystem, renamed = PosixFileSystem(), _renamed_path(location.address) if set_aside else None
        store = await location.open()
        try:
            exported = await export_metadata(store)
            replace_small(filesystem, directory, file.name, encode_export(exported))
        finally:
            await store.close()
        report = _report(image_of(exported))
        if renamed is not None:
            filesystem.rename(str(location.address), str(renamed))
            filesystem.sync_dir(str(renamed.parent))
            report.remarks.append(f"the broker's own store is {renamed} now")
        return report

    return work


def _renamed_path(address: Path | ZooKeeperSettings) -> Path:
    if not isinstance(address, Path):
        raise click.UsageError("--set-aside is for the store of a broker that stands alone")
    renamed = address.with_name(address.name + RENAMED_SUFFIX)
    if renamed.exists():
        raise click.ClickException(f"{renamed} exists")
    return renamed


@command.command("import")
@file_argument
@store_command
def import_(file: Path) -> Work:
    """Put the metadata of FILE into the empty store of a cluster. No broker starts on the store before all is there.

    If an import was interrupted, run it again with the same file: it goes on.
    """
    content = file.read_bytes()

    async def work(location: StoreLocation) -> Report:
        from coordinator.transfer.export_format import decode_export
        from coordinator.transfer.transfer import import_metadata

        if isinstance(location.address, Path):
            raise click.ClickException("the configuration has no zookeeper.connect: its broker stands alone")
        export, digest = decode_export(content)
        store = await location.open()
        try:
            return _report(await import_metadata(store, export, digest))
        finally:
            await store.close()

    return work


def _report(image: ClusterImage) -> Report:
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    row = (image.cluster_id, len(image.members), len(image.topics), partitions)
    keys = (column.lower().replace("-", "_") for column in COLUMNS)
    return Report(dict(zip(keys, row, strict=True)), COLUMNS, [row])
