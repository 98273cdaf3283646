"""`kafkawire metadata`: export, import and accepted rollback of a cluster's metadata, while no broker runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkawire.cli.accept_rollback import accept_rollback
from kafkawire.cli.cluster_command import Report
from kafkawire.cli.metadata_place import Place, Work, place_command

if TYPE_CHECKING:
    from coordinator.api import ClusterImage
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

COLUMNS: Final = ("CLUSTER-ID", "BROKERS", "TOPICS", "PARTITIONS")
ASIDE: Final = ".exported"  # suffix of a directory that no broker may start on

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
@place_command
def export(file: Path, set_aside: bool) -> Work:
    """Write the metadata of a cluster into FILE: topics, configs, epochs and all else in its store."""
    if file.exists():
        raise click.ClickException(f"{file} exists")
    directory = str(file.parent.absolute())

    async def work(place: Place) -> Report:
        from coordinator.transfer.export_format import encode_export
        from coordinator.transfer.transfer import image_of, take_out
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
@file_argument
@place_command
def import_(file: Path) -> Work:
    """Put the metadata of FILE into the empty store of a cluster. No broker starts on the store before all is there.

    If an import was interrupted, run it again with the same file: it goes on.
    """
    content = file.read_bytes()

    async def work(place: Place) -> Report:
        from coordinator.transfer.export_format import decode_export
        from coordinator.transfer.transfer import put_in

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
