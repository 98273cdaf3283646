"""`kafkawire metadata accept-rollback`: go on with a metadata store that was rolled back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkawire.cli.common.cluster_command import Report
from kafkawire.cli.metadata.place import StoreLocation, Work, store_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coordinator.api import ClusterImage
    from coordinator.metadata.history import History
    from coordinator.transfer.rollback import StoreContent
    from engine.files.filesystem import FileSystem

COLUMNS: Final = ("NUMBER", "NOW", "THEN")
WARNINGS: Final = (
    "WARNING: this discards every change of the metadata since the snapshot: topics, partitions, configs, moves.",
    "WARNING: topics that were deleted since come back without records: delete them again.",
    "WARNING: if newer data of the metadata store exist, restore those instead.",
)
NO_EVIDENCE: Final = (
    "no log dir shows that the metadata store was rolled back: name those of more brokers with --log-dir, or --force"
)


@click.command("accept-rollback")
@click.option(
    "--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a single broker: the first of its log.dirs.",
)  # fmt: skip
@click.option(
    "--log-dir", "log_dirs", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A log dir of a stopped broker, to read the newest change that it has applied. --config names those of its "
    "broker.",
)  # fmt: skip
@click.option("--yes", "is_confirmed", is_flag=True, help="Carry it out. Without it, the command only prints its plan.")
@click.option("--force", is_flag=True, help="Carry it out even if no log dir shows a rollback of the store.")
@store_command
def accept_rollback(log_dirs: tuple[Path, ...], is_confirmed: bool, force: bool) -> Work:
    """DISCARD EVERY CHANGE of the metadata since a snapshot, and go on with a store that was rolled back to it.

    Topics that were created since are not in the metadata any more. Their partitions stay on the disks, and are not
    served. Topics that were deleted since come back without records. Restore newer data of the metadata store if there
    are any.

    Run it without --yes first. Stop all brokers before --yes. It raises the change number, the epochs of leaders,
    brokers and the controller, and the next producer id above all that were used. If it was broken off, run it again.
    """

    async def work(location: StoreLocation) -> Report:
        from random import SystemRandom

        from coordinator.transfer.rollback import accept, next_history, read_store
        from engine.files.filesystem import PosixFileSystem
        from kafkawire.adapters.followed_change import last_followed

        for warning in WARNINGS:
            click.echo(warning, err=True)
        filesystem, paths = (
            PosixFileSystem(),
            sorted({str(path.absolute()) for path in (*log_dirs, *location.log_dirs)}),
        )
        store = await location.open()
        try:
            found = await read_store(store)
            owners = _owners(filesystem, paths, found.image.cluster_id)
            followed = [one for path in owners if (one := last_followed(filesystem, [path])) is not None]
            contradictions = found.contradictions(followed)
            history = next_history(found, followed, SystemRandom())
            unnamed = sorted(_unnamed(filesystem, owners, found.image))
            report = _report(found, history, contradictions, unnamed, is_done=False)
            if not is_confirmed:
                report.remarks.append("nothing was changed: --yes does it")
            elif not (contradictions or force or found.unfinished):
                report.problems.append(NO_EVIDENCE)
            else:
                await accept(store, found, history)
                report = _report(found, history, contradictions, unnamed, is_done=True)
                report.remarks.append("the rollback is accepted: start all brokers")
        finally:
            await store.close()
        return report

    return work


def _owners(filesystem: FileSystem, paths: Sequence[str], cluster_id: str) -> Mapping[str, int]:
    """The broker ids of log dirs."""
    from engine.errors import StoreRefused
    from engine.log_dirs.layout import identity_of

    owners: dict[str, int] = {}
    for path in paths:
        try:
            owner = identity_of(filesystem, path)
        except StoreRefused as error:
            raise click.ClickException(str(error)) from None
        if owner.cluster_id != cluster_id:
            mismatch = f"{path} belongs to the cluster {owner.cluster_id}, the metadata store has {cluster_id}"
            raise click.ClickException(mismatch)
        owners[path] = owner.broker_id
    return owners


def _unnamed(filesystem: FileSystem, owners: Mapping[str, int], image: ClusterImage) -> Iterator[str]:
    """The directories of partitions whose replica there the metadata do not name."""
    from engine.errors import StorageError
    from engine.log_dirs.layout import is_partition_name, stored_topic_id

    for path, broker_id in owners.items():
        for name in filter(is_partition_name, filesystem.list_dir(path)):
            try:
                topic = image.topics_by_id.get(stored_topic_id(filesystem, f"{path}/{name}") or b"")
            except StorageError:
                continue
            number = int(name.rpartition("-")[2])
            states = () if topic is None else topic.partitions[number : number + 1]
            if not any(broker_id in state.replicas for state in states):
                yield f"{path}/{name}"


def _report(
    found: StoreContent, history: History, contradictions: Sequence[str], unnamed: Sequence[str], *, is_done: bool
) -> Report:
    image, known = found.image, found.image.history
    states = [state for topic in image.topics.values() for state in topic.partitions]
    members = [*image.members.values(), *image.former.values()]
    rows = [
        ("history", known.generation, history.generation),
        ("change", image.version, history.first_change),
        ("leader epoch", max((state.leader_epoch for state in states), default=None), history.leader_epoch),
        ("broker epoch", max((one.epoch for one in members), default=None), history.broker_epoch),
        ("controller epoch", image.controller_epoch, history.controller_epoch),
        ("next producer id", found.next_producer_id, history.next_producer_id),
    ]
    document = {
        "cluster_id": image.cluster_id,
        "done": is_done,
        "is_begun": found.unfinished is not None,
        "numbers": {name.replace(" ", "_"): {"now": now, "then": then} for name, now, then in rows},
        "topics": [*image.topics],
        "partitions_not_named": [*unnamed],
        "registered_brokers": [*found.registered],
        "contradictions": [*contradictions],
    }
    report = Report(document, COLUMNS, rows)
    report.remarks += [
        f"topics that the metadata name, which stay: {', '.join(image.topics) or 'none'}",
        *(f"not named by the metadata, kept on the disk and not served: {path}" for path in unnamed),
        *(f"the metadata store was rolled back: {one}" for one in contradictions),
        *([] if contradictions else ["no log dir that was looked at shows that the metadata store was rolled back"]),
    ]
    if found.unfinished is not None:
        report.remarks.append("an acceptance was begun and not finished: it goes on with the same numbers")
    if found.registered:
        report.remarks.append(f"brokers are registered, stop them before --yes: {', '.join(found.registered)}")
    return report
