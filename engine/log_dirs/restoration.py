"""Log dirs after a loss: restoring one from the remote tier, and listing the logs of one whose metadata were lost.

A restored partition has no segment files with records; it ends where the tier's records end. Blocking, for a log dir
that no broker uses. A broker takes it for a log dir only after its last file is written.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.api import Marker, TopicIdPartition
from engine.errors import StoreRefused
from engine.files.filesystem import FileSystem, replace_small
from engine.log_dirs.layout import (
    Identity,
    directory_name,
    ensure_dir,
    identity_of,
    is_partition_name,
    stored_topic_id,
    write_clean_marker,
    write_identity,
    write_topic_id,
)
from engine.log_dirs.restored_transactions import lost_markers, marker_batches
from engine.logs.producers.snapshot import SnapshotDamaged, snapshot_name
from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, key_of, read_checkpoint, write_checkpoint
from engine.logs.recovery.epochs import EpochStart
from engine.logs.segments.footer import FooterDamaged
from engine.logs.segments.segment import segment_name


class RestoredLog(NamedTuple):
    """A partition whose records below `end_offset` are in the tier; appends go on there.

    `epochs`: (leader epoch, first offset) of the whole log. `producers`: the producer snapshot at the end, as the tier
    has it; empty without producers. `footer`: of the last segment. Markers that end open transactions get
    `leader_epoch`, which is above all of `epochs`, and the time `now_ms`.
    """

    partition: TopicIdPartition
    log_start_offset: int
    end_offset: int
    epochs: Sequence[tuple[int, int]]
    producers: bytes
    footer: bytes = b""
    leader_epoch: int = 0
    now_ms: int = 0

    def lost_markers(self) -> list[Marker]:
        """Markers for the transactions that are open at the end. Raises SnapshotDamaged, FooterDamaged."""
        return lost_markers(self.producers, self.end_offset, self.footer) if self.producers else []


class KeptLog(NamedTuple):
    """A partition in a log dir; `leader_epoch` is the last one in its checkpoint, or 0."""

    partition: TopicIdPartition
    leader_epoch: int


def kept_logs(filesystem: FileSystem, path: str, identity: Identity) -> list[KeptLog]:
    """All partitions of log dir `path`, which must have that owner. Raises StoreRefused, StorageError, OSError."""
    found = identity_of(filesystem, path)
    if found != identity:
        raise StoreRefused(f"{path} belongs to broker {found.broker_id} of cluster {found.cluster_id}")
    points = read_checkpoint(filesystem, path).partitions
    kept = []
    for name in filter(is_partition_name, sorted(filesystem.list_dir(path))):
        topic_id = stored_topic_id(filesystem, f"{path}/{name}")
        if topic_id is not None:
            topic, _, number = name.rpartition("-")
            point = points.get((topic_id, int(number)), PartitionCheckpoint())
            epoch = point.epochs[-1].epoch if point.epochs else 0
            kept.append(KeptLog(TopicIdPartition(topic_id, topic, int(number)), epoch))
    return kept


def is_used(filesystem: FileSystem, path: str) -> bool:
    """Whether the directory has any entry."""
    try:
        return bool(filesystem.list_dir(path))
    except FileNotFoundError:
        return False


def restore_log_dir(filesystem: FileSystem, path: str, identity: Identity, logs: Sequence[RestoredLog]) -> None:
    """Create the log dir `path`, which is empty or missing. Raises StoreRefused, OSError."""
    if is_used(filesystem, path):
        raise StoreRefused(f"{path} is not empty")
    for log in logs:
        _check(log)
    ensure_dir(filesystem, path)
    for log in logs:
        _make(filesystem, f"{path}/{directory_name(log.partition)}", log)
    filesystem.sync_dir(path)
    write_checkpoint(filesystem, path, Checkpoint(0, {key_of(one.partition): _point(one) for one in logs}))
    write_clean_marker(filesystem, path)
    write_identity(filesystem, path, identity)


def _check(log: RestoredLog) -> None:
    if log.producers:
        try:
            log.lost_markers()
        except (SnapshotDamaged, FooterDamaged) as damage:
            place = f"{directory_name(log.partition)}: its producer snapshot in the remote tier"
            raise StoreRefused(f"{place}: {damage}") from damage


def _make(filesystem: FileSystem, directory: str, log: RestoredLog) -> None:
    filesystem.make_dir(directory)
    file = filesystem.open(f"{directory}/{segment_name(log.end_offset)}", create=True)
    if markers := log.lost_markers():
        file.write_at([marker_batches(markers, log.end_offset, log.leader_epoch, log.now_ms)], 0)
    file.fdatasync()
    if log.producers:
        replace_small(filesystem, directory, snapshot_name(log.end_offset), log.producers)
    write_topic_id(filesystem, directory, log.partition.topic_id)  # this also syncs the names of the other files


def _point(log: RestoredLog) -> PartitionCheckpoint:
    start, end = log.end_offset, log.end_offset + len(log.lost_markers())
    epochs = [EpochStart(*one) for one in log.epochs if one[1] < start]
    if end > start:
        epochs.append(EpochStart(log.leader_epoch, start))
    return PartitionCheckpoint(
        recovery_point=end,
        log_start_offset=log.log_start_offset,
        producers_from=log.log_start_offset if log.producers else end,
        epochs=tuple(epochs),
        epochs_to=end,
        high_watermark=end,
        local_start_offset=start,
        tiered_to=start,
    )
