"""The files of a log dir besides segments, and their names: docs/formats/log-dir.md.

Plain functions on a `FileSystem`, for a worker. Every file carries a format version; an unknown version is refused.
Each function leaves the names that it made or removed durable (RULES L7).
"""

import base64
import binascii
from collections.abc import Container, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from engine.api import TopicIdPartition
from engine.commit.journal import Found
from engine.commit.replay import Directories, prepare_journal
from engine.errors import StorageError, StoreRefused
from engine.files.filesystem import (
    DirLock,
    DiskFull,
    File,
    FileSystem,
    Unreadable,
    read_small,
    replace_small,
    take_in_place,
    write_aside,
)
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import Checkpoint, PartitionKey, read_checkpoint, write_checkpoint
from engine.logs.recovery.recovery import LastKnown, create_log, open_log
from engine.logs.segments.segment import SUFFIX, segment_bases

LOCK = ".lock"
META = "meta.properties"
DIRECTORY_ID = "directory.id"
CLEAN_SHUTDOWN = "clean-shutdown"
INDEX = "index"  # the directory of the stored index
PARTITION_METADATA = "partition.metadata"
_METADATA_CRC = b"crc32: "
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
STRAY_METADATA = "stray.metadata"  # engine.log_dirs.stray_files
VERSION_LINE = "version=1"


class Identity(NamedTuple):
    """The owner of a log dir."""

    cluster_id: str
    broker_id: int


class Claim(IntEnum):
    """How strong the claim of a partition directory is, if another log dir has a directory of the same name."""

    NONE = 0  # no topic id
    NAME = 1  # a topic id, but no records
    RECORDS = 2


class Prepared(NamedTuple):
    """A log dir as a start has found it: locked, and without its clean-shutdown marker."""

    lock: DirLock
    directory_id: str
    is_clean: bool
    checkpoint: Checkpoint
    journal: Found
    partition_names: list[str]
    to_scan: frozenset[str] = frozenset()  # names of partitions to scan, even after a clean stop


class NewDir(NamedTuple):
    """A partition directory that does not count yet: `metadata`, with its topic id, is not in place."""

    log: Log
    metadata: File


def directory_name(partition: TopicIdPartition) -> str:
    """Kafka's directory name: topic-partition. Topic names are validated before; a name that leaves the log dir is a
    bug."""
    assert "/" not in partition.topic
    assert partition.topic not in {"", ".", ".."}
    return f"{partition.topic}-{partition.partition}"


def prepare(filesystem: FileSystem, path: str, identity: Identity, new_id: bytes | None = None) -> Prepared:
    """Take possession of a log dir. `new_id`: 16 bytes, the directory id of a log dir that has none.

    Raises StoreRefused, with one line for the operator; OSError if the disk is bad.
    """
    if not filesystem.exists(f"{path}/{META}"):
        ensure_dir(filesystem, path)
    try:
        lock = filesystem.lock(f"{path}/{LOCK}")
    except BlockingIOError:
        raise StoreRefused(f"{path} is in use by another broker") from None
    try:
        directory_id = _check_meta(filesystem, path, identity, new_id)
        before = read_checkpoint(filesystem, path)
        is_clean = _take_clean_marker(filesystem, path)
        names = [name for name in filesystem.list_dir(path) if is_partition_name(name)]
        remove_trees(filesystem, path, [one for one in filesystem.list_dir(path) if one.endswith(DELETE_SUFFIX)])
        journal, checkpoint = prepare_journal(
            filesystem, path, before, lambda: _directories(filesystem, path, names), is_clean=is_clean
        )
        if checkpoint != before:
            write_checkpoint(filesystem, path, checkpoint)
    except BaseException:
        lock.release()
        raise
    return Prepared(lock, directory_id, is_clean, checkpoint, journal, names)


def _directories(filesystem: FileSystem, path: str, names: Sequence[str]) -> Directories:
    """Partition directories by topic id and number."""
    by_owner: dict[PartitionKey, str] = {}
    unreadable: dict[int, Unreadable] = {}
    for name in names:
        directory, number = f"{path}/{name}", int(name.rpartition("-")[2])
        try:
            topic_id = _read_topic_id(filesystem, directory)
            if topic_id is not None:
                by_owner[topic_id, number] = directory
        except Unreadable as error:
            unreadable[number] = Unreadable(error.errno, f"{directory}/{PARTITION_METADATA}: {error.strerror}")
        except StorageError:  # no later start can read it either
            continue
    return Directories(by_owner, unreadable)


def ensure_dir(filesystem: FileSystem, path: str) -> None:
    """Make the missing directories of a path, and sync the names of all: a killed process may not have synced them."""
    if path:
        parent = path.rpartition("/")[0]
        ensure_dir(filesystem, parent)
        if not filesystem.exists(path):
            filesystem.make_dir(path)
        with suppress(PermissionError):  # a directory that this process may not read has another owner
            filesystem.sync_dir(parent or ("/" if path.startswith("/") else "."))


def is_partition_name(name: str) -> bool:
    """Whether a name is Kafka's topic-partition."""
    topic, dash, number = name.rpartition("-")
    return bool(topic) and bool(dash) and number.isdigit()


def identity_of(filesystem: FileSystem, path: str) -> Identity:
    """The owner of log dir `path`. Raises StoreRefused."""
    values = _meta_values(filesystem, path)
    if values is None:
        raise StoreRefused(f"{path} is no log dir: there is no {META}")
    try:
        return Identity(values["cluster.id"], int(values["broker.id"]))
    except (KeyError, ValueError):
        raise StoreRefused(f"{path}/{META} does not say whose it is") from None


def _meta_values(filesystem: FileSystem, path: str) -> dict[str, str] | None:
    content = read_small(filesystem, f"{path}/{META}")
    if content is None:
        return None
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != VERSION_LINE:
        found = lines[0] if lines else "nothing"
        raise StoreRefused(f"{path}/{META} begins with {found!r}: written by another version or another program")
    return dict(line.partition("=")[::2] for line in lines[1:])


def write_identity(filesystem: FileSystem, path: str, identity: Identity, directory_id: str = "") -> None:
    """Write the owner of a log dir; with this file, the directory counts as a log dir."""
    text = f"{VERSION_LINE}\ncluster.id={identity.cluster_id}\nbroker.id={identity.broker_id}\n"
    if directory_id:
        text += f"{DIRECTORY_ID}={directory_id}\n"
    replace_small(filesystem, path, META, text.encode())


def _check_meta(filesystem: FileSystem, path: str, identity: Identity, new_id: bytes | None) -> str:
    """Check the owner of a log dir and return its directory id, in Kafka's 22 characters.

    A log dir without an id, of an earlier version or a restore, gets `new_id`.
    """
    values = _meta_values(filesystem, path)
    if values is None and any(is_partition_name(name) for name in filesystem.list_dir(path)):
        raise StoreRefused(f"{path} holds partitions but no {META}: not a log dir of this broker")
    if values is not None:
        _check_owner(path, identity, values)
    directory_id = (values or {}).get(DIRECTORY_ID, "")
    if values is None or (not directory_id and new_id is not None):
        directory_id = "" if new_id is None else base64.urlsafe_b64encode(new_id).decode().rstrip("=")
        write_identity(filesystem, path, identity, directory_id)
    return directory_id


def _check_owner(path: str, identity: Identity, values: dict[str, str]) -> None:
    for key, ours in (("cluster.id", identity.cluster_id), ("broker.id", str(identity.broker_id))):
        if values.get(key) != ours:
            raise StoreRefused(f"{path} belongs to {key} {values.get(key)}, this broker has {ours}")


def _take_clean_marker(filesystem: FileSystem, path: str) -> bool:
    """Remove the clean-shutdown marker durably, before anything is appended; returns whether it was there."""
    marker = f"{path}/{CLEAN_SHUTDOWN}"
    content = read_small(filesystem, marker)
    if content is None:
        filesystem.sync_dir(path)  # a killed process may have made partitions, or removed the marker, just before
        return False
    if content.decode("utf-8", "replace").splitlines()[:1] != [VERSION_LINE]:
        raise StoreRefused(f"{marker} was written by another version")
    filesystem.unlink(marker)
    filesystem.sync_dir(path)
    return True


def write_clean_marker(filesystem: FileSystem, path: str) -> None:
    """Write the clean-shutdown marker: the last write of a stop."""
    replace_small(filesystem, path, CLEAN_SHUTDOWN, f"{VERSION_LINE}\n".encode())


def open_partition_dirs(
    filesystem: FileSystem, path: str, wanted: Sequence[tuple[TopicIdPartition, LastKnown]]
) -> list[Log | NewDir | StorageError]:
    """Open the logs of partitions. A partition without a directory gets a NewDir, for `finish_partition_dirs`."""
    found: list[Log | NewDir | StorageError] = []
    for partition, last_known in wanted:
        try:
            found.append(_open_partition_dir(filesystem, path, partition, last_known))
        except DiskFull as error:
            found.append(StorageError(f"{path}: {error.strerror}"))
        except StorageError as error:
            found.append(error)
    return found


def _open_partition_dir(
    filesystem: FileSystem, path: str, partition: TopicIdPartition, last_known: LastKnown
) -> Log | NewDir:
    """Open one log. The directory of another topic with the same name is set aside."""
    name = directory_name(partition)
    directory = f"{path}/{name}"
    if filesystem.exists(directory):
        owner = stored_topic_id(filesystem, directory)
        if owner == partition.topic_id:
            if filesystem.exists(f"{directory}/{STRAY_METADATA}"):
                raise StorageError(f"{directory}/{STRAY_METADATA} has not come into the checkpoint")
            return open_log(filesystem, directory, last_known)
        if owner is not None:
            filesystem.rename(directory, f"{path}/{_stray_name(partition, owner)}")
            filesystem.sync_dir(path)
        elif _has_data(filesystem, directory):
            raise StorageError(f"{directory} holds segments but no {PARTITION_METADATA}")
    if not filesystem.exists(directory):
        filesystem.make_dir(directory)
    log = create_log(filesystem, directory)
    if max(last_known.checkpoint.recovery_point, last_known.checkpoint.log_start_offset) > 0:
        log.damaged_from = 0  # the directory was lost
    return NewDir(log, write_aside(filesystem, directory, PARTITION_METADATA, _metadata(partition.topic_id)))


def finish_partition_dirs(filesystem: FileSystem, path: str, new: Sequence[NewDir]) -> None:
    """Make new partition directories durable. The `metadata` of each was synced before.

    A crash may leave a directory half made; it has no records, and the next open makes it again. All files are renamed
    before the first sync, so that a journaling file system commits once for all.
    """
    for one in new:
        take_in_place(filesystem, one.log.directory, PARTITION_METADATA)
    for one in new:
        filesystem.sync_dir(one.log.directory)
    filesystem.sync_dir(path)


def _stray_name(partition: TopicIdPartition, owner: bytes) -> str:
    """The name of the stray directory of another topic's partition: short enough for a file name, and unique."""
    return f"{partition.topic[:150]}-{partition.partition}.{owner.hex()}{STRAY_SUFFIX}"


def _base64_id(topic_id: bytes) -> str:
    """A topic id as Kafka prints it: URL-safe base64 without padding."""
    text = binascii.b2a_base64(UUID(bytes=topic_id).bytes, newline=False).decode()
    return text.rstrip("=").translate(str.maketrans("+/", "-_"))


def _metadata(topic_id: bytes) -> bytes:
    """Kafka's two lines, and a CRC: one wrong bit in the topic id would turn the log into a stray."""
    body = f"version: 0\ntopic_id: {_base64_id(topic_id)}\n".encode()
    return body + b"%s%08x\n" % (_METADATA_CRC, binascii.crc32(body))


def write_topic_id(filesystem: FileSystem, directory: str, topic_id: bytes) -> None:
    """Write the topic id of a partition directory durably."""
    replace_small(filesystem, directory, PARTITION_METADATA, _metadata(topic_id))


def stored_topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    """The topic id of a partition directory; None without one. Raises StorageError."""
    try:
        return _read_topic_id(filesystem, directory)
    except Unreadable as error:
        raise StorageError(f"{directory}/{PARTITION_METADATA}: {error}") from error


def _read_topic_id(filesystem: FileSystem, directory: str) -> bytes | None:
    """The same as `stored_topic_id`; raises Unreadable, too."""
    content = read_small(filesystem, f"{directory}/{PARTITION_METADATA}")
    if content is None:
        return None
    body, marker, crc = content.partition(_METADATA_CRC)  # directories of the first version have no CRC
    lines = body.decode("utf-8", "replace").splitlines()
    is_sound = not marker or crc == b"%08x\n" % binascii.crc32(body)
    if not is_sound or len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise StorageError(f"{directory}/{PARTITION_METADATA} is damaged or of another version")
    text = lines[1].removeprefix("topic_id: ").translate(str.maketrans("-_", "+/"))
    try:
        return UUID(bytes=binascii.a2b_base64(text + "==", strict_mode=True)).bytes
    except ValueError:
        raise StorageError(f"{directory}/{PARTITION_METADATA} is damaged: {text!r} is no topic id") from None


def claim(filesystem: FileSystem, path: str, name: str) -> Claim:
    """The claim of the partition directory `name` in log dir `path`."""
    directory = f"{path}/{name}"
    with suppress(StorageError):
        if stored_topic_id(filesystem, directory) is not None:
            has_data = segment_bases(filesystem, directory) != [0] or _has_data(filesystem, directory)
            return Claim.RECORDS if has_data else Claim.NAME
    return Claim.NONE


def left_overs(filesystem: FileSystem, path: str, names: Sequence[str], known: Container[PartitionKey]) -> list[str]:
    """The partition directories among `names` without records that are not `known`."""
    found = []
    for name in names:
        if claim(filesystem, path, name) is not Claim.RECORDS:
            with suppress(StorageError):
                topic_id = stored_topic_id(filesystem, f"{path}/{name}")
                if topic_id is None or (topic_id, int(name.rpartition("-")[2])) not in known:
                    found.append(name)
    return found


def _has_data(filesystem: FileSystem, directory: str) -> bool:
    names = [name for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return any(filesystem.open(f"{directory}/{name}").size() for name in names)


def delete_partition_dirs(filesystem: FileSystem, path: str, partitions: Sequence[TopicIdPartition]) -> None:
    """Delete partition directories. The rename takes each away in one step; the next start removes what a crash
    leaves."""
    delete_dirs(filesystem, path, [(directory_name(one), one.topic_id) for one in partitions])


def delete_dirs(filesystem: FileSystem, path: str, dirs: Sequence[tuple[str, bytes]]) -> None:
    """Delete partition directories, given as (name, topic id)."""
    aside = [f"{topic_id.hex()}-{name.rpartition('-')[2]}{DELETE_SUFFIX}" for name, topic_id in dirs]
    for (name, _), new_name in zip(dirs, aside, strict=True):
        filesystem.rename(f"{path}/{name}", f"{path}/{new_name}")
    if aside:
        filesystem.sync_dir(path)
    remove_trees(filesystem, path, aside)


def remove_trees(filesystem: FileSystem, path: str, names: Sequence[str]) -> None:
    """Remove directories and the files in them."""
    for name in names:
        for entry in filesystem.list_dir(f"{path}/{name}"):
            filesystem.unlink(f"{path}/{name}/{entry}")
        filesystem.remove_dir(f"{path}/{name}")
    if names:
        filesystem.sync_dir(path)
