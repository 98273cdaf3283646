"""Import with new offsets, exactly once: a state machine without a network.

Each piece of a partition is one transaction. It contains the records, and an offset commit for the group with the name
of the transactional id: the position in the source. As in `sink.relay`, the positions are read after other producers
are fenced, so they are final. Lines of the offset map are written between: after the offsets of the records are known,
and before the transaction is committed.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.offset_map import Run
from spark_connectors.records.encode import stamp
from spark_connectors.records.plain import Dense, as_plain, is_dense, rebuilt
from spark_connectors.records.visible import visible
from spark_connectors.sink.relay import AddPartitions, AddRecord, Append, Begin, Commit, Producer
from spark_connectors.source.fetching import Piece
from spark_connectors.wire import TopicPartition

_SEQUENCES: Final = 2**31


class Position(NamedTuple):
    """Position in a partition of the source, and the number of records before it."""

    offset: int
    records: int


@dataclass(frozen=True)
class ReadPositions:
    """Read the commits of the group. The answer has an offset and its metadata for each partition."""


@dataclass(frozen=True)
class WritePosition:
    producer: Producer
    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True)
class Note:
    """Write runs to the offset map, durably."""

    runs: tuple[Run, ...]


Step = Begin | ReadPositions | AddPartitions | Append | AddRecord | WritePosition | Note | Commit


@dataclass
class Mapped:
    """Progress of an import over all runs, and the counts of this run."""

    producer: Producer
    positions: dict[int, Position]
    sequences: dict[int, int] = field(default_factory=dict)
    records: int = 0
    batches: int = 0
    size_bytes: int = 0


def load_progress(source_id: bytes) -> Generator[Step, Any, Mapped]:
    """Fence other producers and read the positions. Raises ImportRefused if they belong to another source topic."""
    producer: Producer = yield Begin()
    found: dict[int, tuple[int, str]] = yield ReadPositions()
    return Mapped(producer, {number: _position(*committed, source_id) for number, committed in found.items()})


def _position(offset: int, metadata: str, source_id: bytes) -> Position:
    try:
        fields = json.loads(metadata)
        read_id, records = fields["source_id"], int(fields["records"])
    except (KeyError, TypeError, ValueError):
        raise ImportRefused(f"the progress of this import was not written by an import: {metadata!r}") from None
    if read_id != source_id.hex():
        raise ImportRefused("the source was deleted and created again since: begin with another --job or --to-topic")
    return Position(offset, records)


def relayed(mapped: Mapped, place: TopicPartition, source_id: bytes, piece: Piece) -> Generator[Step, Any, list[Run]]:
    """Import one piece of a partition into `place`. Returns the runs of its records. Raises MalformedBatch."""
    before = mapped.positions.get(place.partition, Position(piece.start, 0))
    batches = list(dense_of(piece))
    producer = mapped.producer
    if batches:
        yield AddPartitions(producer, (place,))
    runs: list[Run] = []
    for one in batches:
        base_offsets = yield Append(producer, {place: _stamped(one, mapped, place.partition)})
        runs.append(Run(place.partition, one.first_offset, base_offsets[place], one.records))
    records = before.records + sum(one.records for one in batches)
    now = Position(piece.batches[-1].next_offset, records)
    yield AddRecord(producer)
    metadata = json.dumps({"source_id": source_id.hex(), "records": records})
    yield WritePosition(producer, place.partition, now.offset, metadata)
    yield Note(tuple(runs))
    yield Commit(producer)
    mapped.positions[place.partition] = now
    mapped.records += now.records - before.records
    mapped.batches += len(batches)
    mapped.size_bytes += sum(len(one.batch) for one in batches)
    return runs


def dense_of(piece: Piece) -> Iterable[Dense]:
    """Committed records of a piece, in batches without gaps, as producers send them. Raises MalformedBatch."""
    for batch in visible(piece.batches, piece.aborted, is_committed_only=True):
        if not batch.records:
            continue
        if is_dense(batch) and batch.base_offset >= piece.start:
            yield Dense(batch.base_offset, batch.records, as_plain(piece.records, batch))
        else:
            yield from rebuilt(piece.records, batch, piece.start, keeps_time_type=False)


def _stamped(one: Dense, mapped: Mapped, partition: int) -> bytearray:
    sequence = mapped.sequences.get(partition, 0)
    mapped.sequences[partition] = (sequence + one.records) % _SEQUENCES
    made = stamp(one.batch, mapped.producer.id, mapped.producer.epoch, sequence, is_transactional=True)
    made[:8] = bytes(8)  # the target assigns the offset
    return made
