"""Files of stray logs, which the metadata do not name, and which have another directory name (docs/formats/log-dir.md).

Plain functions on a `FileSystem`, for a worker. A stray keeps its own checkpoint entry: without it, a log that is put
back would be taken for a new one (RULES D3, K8).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from engine.api import TopicIdPartition
from engine.errors import StorageError, StoreRefused
from engine.files.checked_text import body_of, with_crc
from engine.files.filesystem import FileSystem, Unreadable, read_small, replace_small, take_in_place, write_aside
from engine.log_dirs.layout import (
    DELETE_SUFFIX,
    STRAY_METADATA,
    STRAY_SUFFIX,
    VERSION_LINE,
    Prepared,
    directory_name,
    is_partition_name,
    remove_trees,
    stored_topic_id,
)
from engine.logs.recovery.checkpoints import Checkpoint, PartitionCheckpoint, PartitionKey, key_of, write_checkpoint
from engine.logs.recovery.checkpoints import decode as decode_checkpoint
from engine.logs.recovery.checkpoints import encode as encode_checkpoint

RUNNING_TIMES = "strays"
UNKNOWN = "UNKNOWN"  # the topic of a stray without metadata
_ENTRY = "checkpoint\n"


class StrayMetadata(NamedTuple):
    """The metadata of a stray log. `may_truncate`: whether a torn tail may be truncated."""

    partition: TopicIdPartition
    at_ms: int
    point: PartitionCheckpoint
    needs_scan: bool = True
    may_truncate: bool = True


class Stray(NamedTuple):
    """A stray directory of a log dir. `metadata` is None if it is missing, damaged, or of the older kind."""

    name: str
    size_bytes: int
    metadata: StrayMetadata | None
    kept_ms: int = 0

    @property
    def key(self) -> PartitionKey | None:
        """Topic id and number, if they are known."""
        if self.metadata is not None:
            return key_of(self.metadata.partition)
        return key_in(self.name)

    @property
    def topic(self) -> str:
        """The topic name, if it is known, else UNKNOWN."""
        if self.metadata is not None:
            return self.metadata.partition.topic
        topic, _, number = self.name.rpartition(".")[0].rpartition("-")
        return topic if key_in(self.name) is None and number.isdigit() else UNKNOWN

    @property
    def at_ms(self) -> int | None:
        """The time when the log became a stray, in ms; None if the name does not have it."""
        time = self.name.removesuffix(STRAY_SUFFIX).rpartition(".")[2]
        return int(time) if key_in(self.name) is not None else None


def stray_name(key: PartitionKey, at_ms: int) -> str:
    """The directory name of a stray."""
    topic_id, number = key
    return f"{topic_id.hex()}-{number}.{at_ms}{STRAY_SUFFIX}"


def key_in(name: str) -> PartitionKey | None:
    """The partition in the name of a stray directory; None for other names."""
    owner, dot, time = name.removesuffix(STRAY_SUFFIX).rpartition(".")
    topic_id, dash, number = owner.rpartition("-")
    if not (name.endswith(STRAY_SUFFIX) and dot and dash and time.isdigit() and number.isdigit()):
        return None
    with suppress(ValueError):
        if len(key := bytes.fromhex(topic_id)) == len(topic_id) // 2 == 16:
            return key, int(number)
    return None


def encode_metadata(metadata: StrayMetadata) -> bytes:
    """The content of `stray.metadata`."""
    key = key_of(metadata.partition)
    scan = "yes" if metadata.needs_scan else "no"
    lines = f"{VERSION_LINE}\ntopic={metadata.partition.topic}\ntime={metadata.at_ms}\nscan={scan}\n{_ENTRY}"
    body = lines.encode() + encode_checkpoint(Checkpoint(0, {key: metadata.point}, has_lost=not metadata.may_truncate))
    return with_crc(body)


def decode_metadata(content: bytes, path: str) -> StrayMetadata:
    """Decode the content of `stray.metadata`. Raises StorageError, with `path` in its text."""
    body = _opened(content, path)
    head, _, entry = body.partition(_ENTRY.encode())
    values = dict(line.partition("=")[::2] for line in head.decode().splitlines())
    try:
        checkpoint = decode_checkpoint(entry, path)
        [((topic_id, number), point)] = checkpoint.partitions.items()
        partition = TopicIdPartition(topic_id, values["topic"], number)
        return StrayMetadata(partition, int(values["time"]), point, values["scan"] != "no", not checkpoint.has_lost)
    except (StoreRefused, KeyError, ValueError) as error:
        raise StorageError(f"{path} was written by another version") from error


def _opened(content: bytes, path: str) -> bytes:
    body = body_of(content)
    if body is None:
        raise StorageError(f"{path} is damaged")
    if not body.startswith(f"{VERSION_LINE}\n".encode()):
        raise StorageError(f"{path} was written by another version")
    return body


def read_metadata(filesystem: FileSystem, directory: str) -> StrayMetadata | None:
    """The metadata of a stray, or of a partition directory that was one; None without it. Raises StorageError."""
    path = f"{directory}/{STRAY_METADATA}"
    try:
        content = read_small(filesystem, path)
    except Unreadable as error:
        raise StorageError(f"{path}: {error}") from error
    return None if content is None else decode_metadata(content, path)


def find_strays(filesystem: FileSystem, path: str) -> list[Stray]:
    """All strays of log dir `path`, by name."""
    kept_ms = read_running_times(filesystem, path)
    found = []
    for name in filesystem.list_dir(path):
        if name.endswith(STRAY_SUFFIX):
            with suppress(NotADirectoryError):
                size_bytes = _size_bytes(filesystem, f"{path}/{name}")
                found.append(Stray(name, size_bytes, _metadata_of(filesystem, path, name), kept_ms.get(name, 0)))
    return found


def _metadata_of(filesystem: FileSystem, path: str, name: str) -> StrayMetadata | None:
    with suppress(StorageError):
        metadata = read_metadata(filesystem, f"{path}/{name}")
        if metadata is not None and key_in(name) == key_of(metadata.partition):
            return metadata
    return None


def _size_bytes(filesystem: FileSystem, directory: str) -> int:
    return sum(filesystem.size(f"{directory}/{name}") for name in filesystem.list_dir(directory))


def read_running_times(filesystem: FileSystem, path: str) -> Mapping[str, int]:
    """The running times of strays by name, in ms. Empty if the file is missing or damaged: the count begins again."""
    with suppress(StorageError, Unreadable, ValueError):
        content = read_small(filesystem, f"{path}/{RUNNING_TIMES}")
        if content is not None:
            lines = _opened(content, f"{path}/{RUNNING_TIMES}").decode().splitlines()[1:]
            return {name: int(kept_ms) for name, kept_ms in (line.split(" ") for line in lines)}
    return {}


def write_running_times(filesystem: FileSystem, path: str, kept_ms: Mapping[str, int]) -> None:
    """Write the running times durably."""
    lines = [VERSION_LINE, *(f"{name} {time}" for name, time in sorted(kept_ms.items()))]
    replace_small(filesystem, path, RUNNING_TIMES, with_crc("\n".join(lines).encode() + b"\n"))


def note_strays(filesystem: FileSystem, path: str, strays: Iterable[StrayMetadata]) -> None:
    """Write the checkpoint entry of each partition directory durably, before it is renamed."""
    for metadata in strays:
        directory = f"{path}/{directory_name(metadata.partition)}"
        write_aside(filesystem, directory, STRAY_METADATA, encode_metadata(metadata)).fdatasync()
        take_in_place(filesystem, directory, STRAY_METADATA)
        filesystem.sync_dir(directory)


def rename_strays(filesystem: FileSystem, path: str, strays: Sequence[StrayMetadata]) -> list[Stray]:
    """Rename partition directories that have their checkpoint entry to strays."""
    found = []
    for metadata in strays:
        at_ms = metadata.at_ms
        while filesystem.exists(f"{path}/{stray_name(key_of(metadata.partition), at_ms)}"):
            at_ms += 1
        name, directory = stray_name(key_of(metadata.partition), at_ms), directory_name(metadata.partition)
        filesystem.rename(f"{path}/{directory}", f"{path}/{name}")
        found.append(Stray(name, _size_bytes(filesystem, f"{path}/{name}"), metadata))
    if found:
        filesystem.sync_dir(path)
    return found


def rename_back(filesystem: FileSystem, path: str, strays: Iterable[Stray]) -> None:
    """Rename strays with metadata back to partition directories; their checkpoint entries stay until `forget_notes`."""
    for one in strays:
        assert one.metadata is not None
        filesystem.rename(f"{path}/{one.name}", f"{path}/{directory_name(one.metadata.partition)}")
    filesystem.sync_dir(path)


def noted(filesystem: FileSystem, path: str, names: Iterable[str]) -> list[StrayMetadata]:
    """The entries of partition directories that were strays, or were about to be.

    A damaged entry, or one of another partition, is left out: that directory is not opened.
    """
    found = []
    for name in names:
        with suppress(StorageError):
            metadata = read_metadata(filesystem, f"{path}/{name}")
            is_same = metadata is not None and directory_name(metadata.partition) == name
            if metadata is not None and is_same and _is_owner(filesystem, f"{path}/{name}", metadata):
                found.append(metadata)
    return found


def _is_owner(filesystem: FileSystem, directory: str, metadata: StrayMetadata) -> bool:
    return stored_topic_id(filesystem, directory) == metadata.partition.topic_id


def resume(filesystem: FileSystem, path: str, prepared: Prepared) -> Prepared:
    """Move the entries of former strays into the checkpoint of the log dir, however the directories were renamed.

    A crash or an operator may have renamed them. On failure the log dir is unlocked.
    """
    try:
        found = noted(filesystem, path, prepared.partition_names)
        if not found:
            return prepared
        points = {**prepared.checkpoint.partitions, **{key_of(one.partition): one.point for one in found}}
        has_lost = prepared.checkpoint.has_lost or not all(one.may_truncate for one in found)
        checkpoint = prepared.checkpoint._replace(partitions=points, has_lost=has_lost)
        write_checkpoint(filesystem, path, checkpoint)
        forget_notes(filesystem, path, found)
    except BaseException:
        prepared.lock.release()
        raise
    to_scan = frozenset(directory_name(one.partition) for one in found if one.needs_scan)
    return prepared._replace(checkpoint=checkpoint, to_scan=to_scan)


def forget_notes(filesystem: FileSystem, path: str, strays: Iterable[StrayMetadata]) -> None:
    """Delete the entries of former strays, which the checkpoint has durably."""
    for metadata in strays:
        directory = f"{path}/{directory_name(metadata.partition)}"
        filesystem.unlink(f"{directory}/{STRAY_METADATA}")
        filesystem.sync_dir(directory)


def delete_strays(filesystem: FileSystem, path: str, names: Sequence[str]) -> None:
    """Delete strays. The rename takes each away in one step; the next start removes what a crash leaves."""
    renamed = [f"{name.removesuffix(STRAY_SUFFIX)}{DELETE_SUFFIX}" for name in names]
    for name, new_name in zip(names, renamed, strict=True):
        assert not is_partition_name(name)
        filesystem.rename(f"{path}/{name}", f"{path}/{new_name}")
    if names:
        filesystem.sync_dir(path)
        remove_trees(filesystem, path, renamed)
