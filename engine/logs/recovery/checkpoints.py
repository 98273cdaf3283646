"""The checkpoint file of a log dir: recovery points, log starts and other offsets that a start cannot read from
segments.

Pure, except that the file is read and replaced as a whole. Format: docs/formats/log-dir.md. A file that fails its CRC
is refused: without it, damage could be taken for a torn tail.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.api import TopicIdPartition
from engine.compaction_horizon import CompactionHorizon
from engine.errors import StoreRefused
from engine.files.checked_text import body_of, with_crc
from engine.files.filesystem import FileSystem, read_small, replace_small
from engine.logs.recovery.epochs import EpochStart

CHECKPOINT = "checkpoint"
OLDER_NAME = "recovery-points"  # version 1 had this name and nothing but the recovery points
_VERSION_1 = "version=1"
_VERSION_2 = "version=2"
_VERSION_3 = "version=3"
_VERSION_4 = "version=4"
_VERSION_5 = "version=5"
_LOST = " damaged"

PartitionKey = tuple[bytes, int]  # topic id, partition: a topic that is deleted and created again has another id
IsKnown = Callable[[bytes, int], bool]  # whether the log dir is to have the partition with this topic id and number


def key_of(partition: TopicIdPartition) -> PartitionKey:
    """The key of a partition in a log dir: topic id and number."""
    return partition.topic_id, partition.partition


class PartitionCheckpoint(NamedTuple):
    """The checkpoint of one partition.

    `recovery_point`: below it everything is durable in the segment files. `log_start_offset`: no record below it is
    served. `producers_from`: below it is no batch that the state of a producer needs, and no undecided transaction
    begins. `epochs`: where each leader epoch began. Below `epochs_to` they come from the log; the others are the
    leader's word on batches with gaps that may have come since.

    Below `compacted_to` offsets may have gaps; below `clean_to` every record is the newest of its key there.
    `high_watermark`: records below it were on all replicas in sync. Between the log start and `local_start_offset`
    there are no segment files; below `tiered_to` the remote tier has everything.

    Below `tombstones_to` tombstones may be gone, below `markers_to` markers. The records that replaced them are below
    `replaced_to`, as the leader of epoch `replaced_in` has said (RULES K18, K19).
    """

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
        """The offset that the first segment file must hold."""
        return max(self.log_start_offset, self.local_start_offset)

    @property
    def had_records(self) -> bool:
        """Whether the log was not an empty one that begins at 0."""
        return max(self.recovery_point, self.high_watermark, self.log_start_offset) > 0

    @property
    def dropped(self) -> CompactionHorizon:
        return CompactionHorizon(self.tombstones_to, self.markers_to, self.replaced_to, self.replaced_in)

    def without(self, dropped: CompactionHorizon) -> "PartitionCheckpoint":
        """The same checkpoint, of a log in which `dropped` may be gone as well."""
        return self if dropped == self.dropped else self.lacking(self.dropped.merged_with(dropped))

    def lacking(self, dropped: CompactionHorizon) -> "PartitionCheckpoint":
        """The same checkpoint, with `dropped` in place of its own."""
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
    """The checkpoint of a whole log dir. Journal frames below `journal_sequence` are no longer needed.

    `has_lost`: the journal was found damaged, and some partition has not been opened since.
    """

    journal_sequence: int
    partitions: Mapping[PartitionKey, PartitionCheckpoint]
    has_lost: bool = False


def encode(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint: version 5, or version 4 while nothing is compacted, so that earlier brokers can read it."""
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
    """Decode a checkpoint. Raises StoreRefused, with `path` in its text."""
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
    """Decode a line of version 2 to 5. Each version appended fields: 2 in version 3, 4 more in 4, 4 more in 5."""
    topic_id, number, recovery_point, log_start, producers_from, *others, chain = line.split(" ")
    pairs = [] if chain == "-" else [pair.split(":") for pair in chain.split(",")]
    epochs = tuple(EpochStart(int(epoch), int(start)) for epoch, start in pairs)
    point = PartitionCheckpoint(int(recovery_point), int(log_start), int(producers_from), epochs, *map(int, others))
    if len(others) <= _OTHERS_OF_VERSION_3:
        point = point._replace(epochs_to=point.recovery_point)
    if len(others) <= _OTHERS_OF_VERSION_4:  # all that an earlier cleaner dropped lay below, and was decided
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
    """Read the checkpoint of log dir `path`; an empty one if none was ever written. Raises StoreRefused."""
    for name in (CHECKPOINT, OLDER_NAME):
        content = read_small(filesystem, f"{path}/{name}")
        if content is not None:
            return decode(content, f"{path}/{name}")
    return Checkpoint(0, {})
