"""The checkpoint file of a log dir: what is known to be durable, and what only the running broker knew.

Pure but for reading and replacing the file as a whole. Format: docs/formats/log-dir.md. A file that fails its CRC is
refused: without it, rot could be taken for a torn tail.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.api import TopicPartition
from engine.compacted import Dropped
from engine.errors import StoreRefused
from engine.files.checked_text import body_of, with_crc
from engine.files.filesystem import FileSystem, read_small, replace_small
from engine.logs.epochs import EpochStart

CHECKPOINT = "checkpoint"
OLDER_NAME = "recovery-points"  # version 1 had this name and nothing but the recovery points
_VERSION_1 = "version=1"
_VERSION_2 = "version=2"
_VERSION_3 = "version=3"
_VERSION_4 = "version=4"
_VERSION_5 = "version=5"
_LOST = " damaged"

PartitionKey = tuple[bytes, int]  # topic id, partition: a topic deleted and created anew is another one
IsKnown = Callable[[bytes, int], bool]  # of a topic id and a partition: whether it is to be here


def key_of(partition: TopicPartition) -> PartitionKey:
    """What the log dir calls it."""
    return partition.topic_id, partition.partition


class PartitionCheckpoint(NamedTuple):
    """One partition. Below `recovery_point` everything is durable in its segment files; no record below
    `log_start_offset` is served; no producer has left state before `producers_from`, nor does a transaction begin there
    that is undecided; `epochs` tells which leader epoch began where, as far as `epochs_to`; those behind are the
    leader's word on gaps of what may be there by now. Below `compacted_to` offsets may have gaps; below `clean_to`
    every record is the newest of its key there. What lies below `high_watermark` was on all replicas in sync. Between
    the log start and `local_start_offset` there are no segment files; below `tiered_to` all is in a remote tier. Below
    `tombstones_to` tombstones may be gone, below `markers_to` markers; records below `replaced_to` may have taken the
    place of what is gone, as the leader of epoch `replaced_in` has said (RULES K18, K19)."""

    recovery_point: int = 0
    log_start_offset: int = 0
    producers_from: int = 0
    epochs: tuple[EpochStart, ...] = ()
    compacted_to: int = 0
    clean_to: int = 0
    epochs_to: int = 0
    high_watermark: int = 0
    local_start_offset: int = 0
    tiered_to: int = 0
    tombstones_to: int = 0
    markers_to: int = 0
    replaced_to: int = 0
    replaced_in: int = 0

    @property
    def first_local_offset(self) -> int:
        """Which the first segment file has to hold."""
        return max(self.log_start_offset, self.local_start_offset)

    @property
    def had_records(self) -> bool:
        """Whether the log was more than an empty one that begins at 0."""
        return max(self.recovery_point, self.high_watermark, self.log_start_offset) > 0

    @property
    def dropped(self) -> Dropped:
        return Dropped(self.tombstones_to, self.markers_to, self.replaced_to, self.replaced_in)

    def without(self, dropped: Dropped) -> "PartitionCheckpoint":
        """The same, where that may be gone as well."""
        return self if dropped == self.dropped else self.lacking(self.dropped.beside(dropped))

    def lacking(self, dropped: Dropped) -> "PartitionCheckpoint":
        """The same, where that may be gone, and no more."""
        return self._replace(**dropped._asdict())

    @property
    def known_epochs(self) -> tuple[EpochStart, ...]:
        return tuple(one for one in self.epochs if one.start_offset < self.epochs_to)

    @property
    def expected_epochs(self) -> tuple[EpochStart, ...]:
        return tuple(one for one in self.epochs if one.start_offset >= self.epochs_to)


_OTHERS_OF_VERSION_3 = 2
_OTHERS_OF_VERSION_4 = 6
_EPOCHS_AT = PartitionCheckpoint._fields.index("epochs")
_END_OF_VERSION_4 = PartitionCheckpoint._fields.index("tombstones_to")


class Checkpoint(NamedTuple):
    """A whole log dir; journal frames below `journal_sequence` are left-overs.

    With `has_lost` the journal was found damaged, and some partition was not opened since.
    """

    journal_sequence: int
    partitions: Mapping[PartitionKey, PartitionCheckpoint]
    has_lost: bool = False


def encode(checkpoint: Checkpoint) -> bytes:
    """As version 4, which earlier brokers read, while nothing is compacted: then it tells all there is."""
    is_compacted = any(one.compacted_to or any(one[_END_OF_VERSION_4:]) for one in checkpoint.partitions.values())
    version, end = (_VERSION_5, None) if is_compacted else (_VERSION_4, _END_OF_VERSION_4)
    lines = [version, f"journal {checkpoint.journal_sequence}{_LOST if checkpoint.has_lost else ''}"]
    for (topic_id, number), one in sorted(checkpoint.partitions.items()):
        epochs = ",".join(f"{start.epoch}:{start.start_offset}" for start in one.epochs)
        offsets = " ".join(map(str, (*one[:_EPOCHS_AT], *one[_EPOCHS_AT + 1 : end])))
        lines.append(f"{topic_id.hex()} {number} {offsets} {epochs or '-'}")
    body = "\n".join(lines).encode() + b"\n"
    return with_crc(body)


def decode(content: bytes, path: str) -> Checkpoint:
    """Raises StoreRefused, naming `path`."""
    body = body_of(content)
    if body is None:
        raise StoreRefused(f"{path} is damaged; without it every segment would be scanned")
    lines = body.decode().splitlines()
    if lines[:1] == [_VERSION_1]:
        return Checkpoint(0, dict(_partition_of_version_1(line) for line in lines[1:]))
    if lines[:1] not in ([_VERSION_2], [_VERSION_3], [_VERSION_4], [_VERSION_5]):
        raise StoreRefused(f"{path} was written by another version")
    sequence = lines[1].removeprefix("journal ").removesuffix(_LOST)
    return Checkpoint(int(sequence), dict(_partition(line) for line in lines[2:]), lines[1].endswith(_LOST))


def _partition(line: str) -> tuple[PartitionKey, PartitionCheckpoint]:
    """Of version 2, or 3, which has two offsets more, or 4, which has four more again, or 5, with four."""
    topic_id, number, recovery_point, log_start, producers_from, *others, chain = line.split(" ")
    pairs = [] if chain == "-" else [pair.split(":") for pair in chain.split(",")]
    epochs = tuple(EpochStart(int(epoch), int(start)) for epoch, start in pairs)
    point = PartitionCheckpoint(int(recovery_point), int(log_start), int(producers_from), epochs, *map(int, others))
    if len(others) <= _OTHERS_OF_VERSION_3:
        point = point._replace(epochs_to=point.recovery_point)
    if len(others) <= _OTHERS_OF_VERSION_4:  # whatever its cleaner dropped lay below, and counted
        dropped_to = min(point.compacted_to, point.recovery_point, point.high_watermark)
        point = point._replace(tombstones_to=dropped_to, markers_to=dropped_to)
    return (bytes.fromhex(topic_id), int(number)), point


def _partition_of_version_1(line: str) -> tuple[PartitionKey, PartitionCheckpoint]:
    topic_id, number, recovery_point = line.split(" ")
    return (bytes.fromhex(topic_id), int(number)), PartitionCheckpoint(int(recovery_point))


def write_checkpoint(filesystem: FileSystem, path: str, checkpoint: Checkpoint) -> None:
    """Durably replace the checkpoint of log dir `path`."""
    replace_small(filesystem, path, CHECKPOINT, encode(checkpoint))


def read_checkpoint(filesystem: FileSystem, path: str) -> Checkpoint:
    """Of log dir `path`; empty when none was ever written. Raises StoreRefused."""
    for name in (CHECKPOINT, OLDER_NAME):
        content = read_small(filesystem, f"{path}/{name}")
        if content is not None:
            return decode(content, f"{path}/{name}")
    return Checkpoint(0, {})
