"""The file form of a partition's producers: docs/formats/producer-snapshot.md.

Written at each roll and at a clean stop, so that a start need not read the log from its beginning; where none is sound,
the batches of the log tell the same. The first part is Kafka's ProducerSnapshot, which `kafka-dump-log` prints; what
Kafka forgets, the batches before the last one of each producer, follows under the same CRC, so that retries of five
requests in flight are recognised after a restart too.
"""

from collections.abc import Callable
from struct import Struct, error

from crc32c import crc32c

from engine.files.filesystem import FileSystem, Unreadable, read_small
from engine.logs.producer_state import ProducedBatch, Producer, ProducerTable, recent

SUFFIX = ".snapshot"
TEMPORARY = "snapshot.tmp"  # one name for all: what a crash leaves is overwritten by the next
ASIDE_TEMPORARY = "local-start.snapshot.tmp"  # of whoever makes one beside rounds: both may write at the same time
SNAPSHOTS_KEPT = 2
_HEAD = Struct(">hI")  # version, CRC of what follows
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")  # id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, transaction
_OLDER = Struct(">qb")  # id, number of older batches
_BATCH = Struct(">iqiq")
_VERSION = 1
_NO_COORDINATOR_EPOCH = -1
_NO_TRANSACTION = -1


class SnapshotDamaged(Exception):
    """Not what was written, or of another version: the state must come from the log."""


def snapshot_name(offset: int) -> str:
    """The state before `offset`, named as Kafka names it."""
    return f"{offset:020d}{SUFFIX}"


def encode_snapshot(table: ProducerTable) -> bytes:
    body = bytearray(_COUNT.pack(len(table)))
    older = bytearray()
    for producer_id, producer in table:
        last = producer.batches[-1]
        body += _ENTRY.pack(producer_id, producer.epoch, *last, _NO_COORDINATOR_EPOCH, _NO_TRANSACTION)
        older += _OLDER.pack(producer_id, len(producer.batches) - 1)
        for batch in producer.batches[:-1]:
            older += _BATCH.pack(*batch)
    body += older
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(content: bytes) -> ProducerTable:
    """Raises SnapshotDamaged."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise SnapshotDamaged(f"{len(content)} bytes")
    version, crc = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise SnapshotDamaged(f"format version {version}")
    if crc != crc32c(content[_HEAD.size :]):
        raise SnapshotDamaged("its CRC does not match")
    try:
        return ProducerTable(_producers(content).items())
    except (error, KeyError) as problem:
        raise SnapshotDamaged(str(problem)) from problem


def _producers(content: bytes) -> dict[int, Producer]:
    [count] = _COUNT.unpack_from(content, _HEAD.size)
    position = _HEAD.size + _COUNT.size
    found = {}
    for _ in range(count):
        producer_id, epoch, *last, _, _ = _ENTRY.unpack_from(content, position)
        found[producer_id] = Producer(epoch, (ProducedBatch(*last),))
        position += _ENTRY.size
    while position < len(content):
        producer_id, number = _OLDER.unpack_from(content, position)
        position += _OLDER.size
        older = [ProducedBatch(*_BATCH.unpack_from(content, position + n * _BATCH.size)) for n in range(number)]
        position += number * _BATCH.size
        producer = found[producer_id]
        found[producer_id] = producer._replace(batches=recent((*older, *producer.batches)))
    return found


def snapshot_offsets(filesystem: FileSystem, directory: str) -> list[int]:
    """Of the snapshots in a partition's directory, ascending."""
    names = [name.removesuffix(SUFFIX) for name in filesystem.list_dir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def write_snapshot(
    filesystem: FileSystem, directory: str, offset: int, table: ProducerTable, keep_from: int | None = None
) -> None:
    """Replace what there may be of that offset, and remove older ones, but for those from `keep_from` on. The names are
    the caller's to sync, or not."""
    put_snapshot(filesystem, directory, offset, table)
    for older in snapshot_offsets(filesystem, directory)[:-SNAPSHOTS_KEPT]:
        if keep_from is None or older < keep_from:
            filesystem.unlink(f"{directory}/{snapshot_name(older)}")


def put_snapshot(
    filesystem: FileSystem, directory: str, offset: int, table: ProducerTable, temporary_name: str = TEMPORARY
) -> None:
    """The same, beside others."""
    temporary = f"{directory}/{temporary_name}"
    file = filesystem.open(temporary, create=True)
    file.truncate(0)
    file.write_at([encode_snapshot(table)], 0)
    file.fdatasync()
    filesystem.rename(temporary, f"{directory}/{snapshot_name(offset)}")


def newest_sound(
    filesystem: FileSystem,
    directory: str,
    above: int,
    up_to: int,
    on_damage: Callable[[str], None] = lambda _problem: None,
) -> tuple[ProducerTable, int] | None:
    """The newest snapshot above one offset, up to another, and its own offset; `on_damage` is told of damaged ones."""
    for offset in reversed(snapshot_offsets(filesystem, directory)):
        if above < offset <= up_to:
            try:
                return read_snapshot(filesystem, directory, offset), offset
            except SnapshotDamaged as damage:
                on_damage(f"{directory}/{snapshot_name(offset)} is damaged ({damage})")
    return None


def read_snapshot(filesystem: FileSystem, directory: str, offset: int) -> ProducerTable:
    """Raises SnapshotDamaged."""
    try:
        content = read_small(filesystem, f"{directory}/{snapshot_name(offset)}")
    except Unreadable as problem:
        raise SnapshotDamaged(str(problem)) from problem
    return decode_snapshot(content or b"")
