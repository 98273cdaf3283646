"""In which order the driver asks brokers to write what tasks have staged: a machine without a network.

`relay` yields steps and is sent their answers; who performs them, and repeats those that were lost, is another part.
The order is all there is to writing exactly once:

    Begin        a producer id in a new epoch. From here on whoever committed for this query before is fenced: a
                 process of a driver that is gone goes on, and its transaction is aborted
    ReadRecord   only now, as only now nobody can change it any more. What it says holds
    AddPartitions, Append ..., AddRecord, WriteRecord
                 rows and the record of them, in one transaction
    Commit       both, or neither

Dying before Commit was done: the next Begin aborts the transaction, and the micro-batch is written again. Dying behind
it, or without an answer: the record says that it is written. Nothing needs to be undone in either case, so nothing is:
a transaction that is left open ends with the next Begin, or by its time-out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from spark_connectors.records.encode import stamp
from spark_connectors.sink.errors import CommitRefused
from spark_connectors.wire import TopicPartition

APPEND_MAX_BYTES: Final = 8 << 20  # of all batches of one step
_SEQUENCES: Final = 2**31  # they go on at 0 (DefaultRecordBatch.incrementSequence)


class Frame(NamedTuple):
    """A staged batch, nobody's yet, of so many records."""

    place: TopicPartition
    batch: bytes | bytearray
    records: int


@dataclass(frozen=True)
class Job:
    """What is to be written at once: micro-batch `batch_id` of a stream, or with None what is never tried again.

    `name` is of the transactional id and of the group that keeps the record; `places` are those of all frames.
    """

    name: str
    batch_id: int | None
    places: tuple[TopicPartition, ...]
    is_missing_accepted: bool = False


@dataclass(frozen=True)
class Producer:
    """Who may write, as long as there is no newer epoch."""

    id: int
    epoch: int


@dataclass(frozen=True)
class Begin:
    """Answered by a Producer."""


@dataclass(frozen=True)
class ReadRecord:
    """Answered by the number of the micro-batch after the last one that is written, or None."""


@dataclass(frozen=True)
class AddPartitions:
    producer: Producer
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Append:
    """One batch of each partition. Answered by the offsets of their first records."""

    producer: Producer
    batches: Mapping[TopicPartition, bytearray]


@dataclass(frozen=True)
class AddRecord:
    producer: Producer


@dataclass(frozen=True)
class WriteRecord:
    producer: Producer
    next_batch_id: int


@dataclass(frozen=True)
class Commit:
    producer: Producer


Step = Begin | ReadRecord | AddPartitions | Append | AddRecord | WriteRecord | Commit


class Outcome(Enum):
    """All of them mean: it is written, once."""

    WRITTEN = "written"
    WRITTEN_BEFORE = "written before"
    NOTHING_TO_WRITE = "nothing to write"


def relay(job: Job, frames: Iterable[Frame]) -> Generator[Step, Any, Outcome]:
    """Raises CommitRefused; what `frames` raises; and what is thrown in."""
    if not job.places and job.batch_id is None:  # a micro-batch is recorded, as its record ages while nothing is
        return Outcome.NOTHING_TO_WRITE
    producer: Producer = yield Begin()
    if job.batch_id is not None and _is_written(job, (yield ReadRecord())):
        return Outcome.WRITTEN_BEFORE
    if job.places:
        yield AddPartitions(producer, job.places)
    sequences = dict.fromkeys(job.places, 0)
    for window in windows(frames):
        yield Append(producer, {frame.place: _stamped(frame, producer, sequences) for frame in window})
    if job.batch_id is not None:
        yield AddRecord(producer)
        yield WriteRecord(producer, job.batch_id + 1)
    yield Commit(producer)
    return Outcome.WRITTEN


def windows(frames: Iterable[Frame], bytes_max: int = APPEND_MAX_BYTES) -> Iterator[list[Frame]]:
    """Frames in their order, as many at once as have different places and not more than `bytes_max`; one at least.

    Brokers take one batch a partition and request of a producer that has an id.
    """
    window: dict[TopicPartition, Frame] = {}
    size_bytes = 0
    for frame in frames:
        if window and (frame.place in window or size_bytes + len(frame.batch) > bytes_max):
            yield list(window.values())
            window, size_bytes = {}, 0
        window[frame.place] = frame
        size_bytes += len(frame.batch)
    if window:
        yield list(window.values())


def _is_written(job: Job, next_batch_id: int | None) -> bool:
    assert job.batch_id is not None
    recorded = next_batch_id or 0
    if recorded > job.batch_id + 1:  # Spark tries the last one again, and none before it
        raise CommitRefused(
            f"micro-batch {job.batch_id} is to be written, and group {job.name} has it recorded that "
            f"{recorded - 1} was. The checkpoint is an older one, whose micro-batches may have had other rows: "
            f"begin with a new checkpoint"
        )
    if recorded < job.batch_id and job.places and not job.is_missing_accepted:
        raise CommitRefused(
            f"nothing tells whether micro-batch {job.batch_id} is written already: group {job.name} has no record of "
            f"the one before it, although there was one. Another sink has written it, or the record was deleted, or "
            f"aged out (offsets.retention.minutes). With the option onMissingRecord=accept it is written now; at worst "
            f"its rows are there twice"
        )
    return recorded > job.batch_id


def _stamped(frame: Frame, producer: Producer, sequences: dict[TopicPartition, int]) -> bytearray:
    sequence = sequences[frame.place]
    sequences[frame.place] = (sequence + frame.records) % _SEQUENCES
    return stamp(frame.batch, producer.id, producer.epoch, sequence, is_transactional=True)
