"""Producer snapshot files: docs/formats/producer-snapshot.md.

They are written at each roll and at a clean stop, so that a start need not read the log from its beginning. If no
snapshot is sound, the batches of the log give the same state. The first part is Kafka's ProducerSnapshot, which
`kafka-dump-log` prints. Behind it, under the same CRC, is more than Kafka keeps: the older batches of each producer, so
that retries of five requests in flight are recognised after a restart too, and the aborted index of the segment that
ends at the snapshot.
"""

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from engine.api import NO_EPOCH, NO_OFFSET, AbortedTransaction
from engine.files.filesystem import FileSystem, Unreadable, read_small
from engine.logs.producers.state import ProducedBatch, Producer, ProducerTable, recent

SUFFIX = ".snapshot"
TEMPORARY = "snapshot.tmp"  # one name for all: the next snapshot overwrites a rest that a crash left
ASIDE_TEMPORARY = "local-start.snapshot.tmp"  # of snapshots written outside of commit batches, maybe at the same time
SNAPSHOTS_KEPT = 2
_HEAD = Struct(">hI")  # version, CRC of what follows
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")  # id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, transaction
_OLDER = Struct(">qb")  # id, number of older batches
_BATCH = Struct(">iqiq")
_MARKER = Struct(">qq")  # id, offset of its last marker
_ABORTED_FROM = Struct(">q")
_ABORTED = Struct(">qqqq")
_VERSION = 1
_NO_BATCH = ProducedBatch(-1, -1, 0, -1)  # as in Kafka


class SnapshotDamaged(Exception):
    """The content differs from what was written, or has another version: the state must come from the log."""


class Snapshot(NamedTuple):
    """The state before `offset`: producers, and aborted transactions whose markers are at or above `aborted_from`."""

    offset: int
    producers: ProducerTable
    aborted_from: int
    aborted: Sequence[AbortedTransaction] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no producer and no aborted transaction; such a snapshot is knowledge, too."""
        return not (self.producers or self.aborted)


def snapshot_name(offset: int) -> str:
    """The file name of the snapshot before `offset`, as in Kafka."""
    return f"{offset:020d}{SUFFIX}"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    body = bytearray(_COUNT.pack(len(snapshot.producers)))
    older, markers = bytearray(), bytearray()
    for producer_id, producer in snapshot.producers:
        last_sequence, last_offset, delta, _ = producer.batches[-1] if producer.batches else _NO_BATCH
        last = last_sequence, last_offset, delta, producer.timestamp_ms
        body += _ENTRY.pack(producer_id, producer.epoch, *last, producer.coordinator_epoch, producer.transaction_from)
        before = producer.batches[:-1]
        older += _OLDER.pack(producer_id, len(before))
        for batch in before:
            older += _BATCH.pack(*batch)
        if producer.marker_offset >= 0:
            markers += _MARKER.pack(producer_id, producer.marker_offset)
    body += older
    body += _COUNT.pack(len(markers) // _MARKER.size) + markers
    body += _ABORTED_FROM.pack(snapshot.aborted_from)
    body += b"".join([_ABORTED.pack(*one) for one in snapshot.aborted])
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(content: bytes, offset: int) -> Snapshot:
    """Decode a snapshot. Raises SnapshotDamaged."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise SnapshotDamaged(f"{len(content)} bytes")
    version, crc = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise SnapshotDamaged(f"format version {version}")
    if crc != crc32c(content[_HEAD.size :]):
        raise SnapshotDamaged("its CRC does not match")
    try:
        producers, position = _producers(content)
        if position == len(content):  # the format before transactions
            return Snapshot(offset, ProducerTable(producers.items()), aborted_from=offset)
        position = _note_markers(producers, content, position)
        [aborted_from] = _ABORTED_FROM.unpack_from(content, position)
        rows = _ABORTED.iter_unpack(content[position + _ABORTED_FROM.size :])
        aborted = [AbortedTransaction(*one) for one in rows]
        return Snapshot(offset, ProducerTable(producers.items()), aborted_from, aborted)
    except (error, KeyError) as problem:
        raise SnapshotDamaged(str(problem)) from problem


def _producers(content: bytes) -> tuple[dict[int, Producer], int]:
    [count] = _COUNT.unpack_from(content, _HEAD.size)
    position = _HEAD.size + _COUNT.size
    found = {}
    for _ in range(count):
        producer_id, epoch, *last, coordinator_epoch, transaction_from = _ENTRY.unpack_from(content, position)
        batch = ProducedBatch(*last)
        batches = (batch,) if batch.last_offset >= 0 else ()
        known = epoch, batches, batch.last_offset, batch.timestamp_ms, coordinator_epoch, transaction_from
        marker_offset = NO_OFFSET if coordinator_epoch == NO_EPOCH else 0  # unless the next section has it
        found[producer_id] = Producer(*known, marker_offset)
        position += _ENTRY.size
    for _ in range(count):
        producer_id, number = _OLDER.unpack_from(content, position)
        position += _OLDER.size
        older = [ProducedBatch(*_BATCH.unpack_from(content, position + n * _BATCH.size)) for n in range(number)]
        position += number * _BATCH.size
        producer = found[producer_id]
        found[producer_id] = producer._replace(batches=recent((*older, *producer.batches)))
    return found, position


def _note_markers(producers: dict[int, Producer], content: bytes, position: int) -> int:
    """Set the offsets of the producers' last markers; returns the position of the next section.

    Earlier versions stored only markers behind the last batch of their producer.
    """
    [count] = _COUNT.unpack_from(content, position)
    position += _COUNT.size
    for _ in range(count):
        producer_id, marker_offset = _MARKER.unpack_from(content, position)
        position += _MARKER.size
        producer = producers[producer_id]
        last_offset = max(producer.last_offset, marker_offset)
        producers[producer_id] = producer._replace(last_offset=last_offset, marker_offset=marker_offset)
    return position


def snapshot_offsets(filesystem: FileSystem, directory: str) -> list[int]:
    """The offsets of the snapshots in a partition's directory, ascending."""
    names = [name.removesuffix(SUFFIX) for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def write_snapshot(filesystem: FileSystem, directory: str, snapshot: Snapshot, keep_from: int | None = None) -> None:
    """Write a snapshot, and delete older ones: all but the newest two, and none from `keep_from` on.

    The caller syncs the directory.
    """
    put_snapshot(filesystem, directory, snapshot)
    for older in snapshot_offsets(filesystem, directory)[:-SNAPSHOTS_KEPT]:
        if keep_from is None or older < keep_from:
            filesystem.unlink(f"{directory}/{snapshot_name(older)}")


def put_snapshot(filesystem: FileSystem, directory: str, snapshot: Snapshot, temporary_name: str = TEMPORARY) -> None:
    """Write a snapshot without deleting others. An existing one of the same offset is replaced."""
    temporary = f"{directory}/{temporary_name}"
    file = filesystem.open(temporary, create=True)
    file.truncate(0)
    file.write_at([encode_snapshot(snapshot)], 0)
    file.fdatasync()
    filesystem.rename(temporary, f"{directory}/{snapshot_name(snapshot.offset)}")


def newest_sound(
    filesystem: FileSystem,
    directory: str,
    above: int,
    up_to: int,
    on_damage: Callable[[str], None] = lambda _problem: None,
    aborted_from: int = 2**63 - 1,
) -> Snapshot | None:
    """The newest sound snapshot with `above` < offset <= `up_to`.

    Its `aborted_from` is at or below the argument. `on_damage` is called with a text for each damaged one.
    """
    for offset in reversed(snapshot_offsets(filesystem, directory)):
        if above < offset <= up_to:
            try:
                found = read_snapshot(filesystem, directory, offset)
            except SnapshotDamaged as damage:
                on_damage(f"{directory}/{snapshot_name(offset)} is damaged ({damage})")
                continue
            if found.aborted_from <= aborted_from:
                return found
    return None


def read_snapshot(filesystem: FileSystem, directory: str, offset: int) -> Snapshot:
    """Read the snapshot of `offset`. Raises SnapshotDamaged, also without a file."""
    try:
        content = read_small(filesystem, f"{directory}/{snapshot_name(offset)}")
    except Unreadable as problem:
        raise SnapshotDamaged(str(problem)) from problem
    return decode_snapshot(content or b"", offset)
