"""The order in which the driver asks brokers to write staged batches: a state machine without a network.

`relay` yields steps and receives their answers. Its caller performs the steps, and repeats lost ones. Exactly-once
writes depend on this order alone:

    Begin        a producer id with a new epoch. It fences all earlier commits for this query: a process of a
                 former driver may still run, but its transaction is aborted
    ReadRecord   after Begin, because then no other process can change the record
    AddPartitions, Append ..., AddRecord, WriteRecord
                 rows and their record, in one transaction
    Commit       both, or neither

If the driver dies before Commit is done, the next Begin aborts the transaction, and the micro-batch is written again.
If it dies later, or gets no answer, the record shows that the micro-batch is written. In neither case anything has to
be undone: an open transaction ends at the next Begin, or by its timeout.
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
_SEQUENCES: Final = 2**31  # sequences wrap around to 0 (DefaultRecordBatch.incrementSequence)


class Frame(NamedTuple):
    """A staged batch without a producer, and the number of its records."""

    place: TopicPartition
    batch: bytes | bytearray
    records: int


@dataclass(frozen=True)
class Job:
    """Rows to write at once: micro-batch `batch_id` of a stream; None: a batch job, which is never tried again.

    `name` is the transactional id, and the group of the record. `places` are those of all frames.
    """

    name: str
    batch_id: int | None
    places: tuple[TopicPartition, ...]
    is_missing_accepted: bool = False


@dataclass(frozen=True)
class Producer:
    """A producer id and epoch. It may write until a newer epoch exists."""

    id: int
    epoch: int


@dataclass(frozen=True)
class Begin:
    """Get a producer with a new epoch. The answer is a Producer."""


@dataclass(frozen=True)
class ReadRecord:
    """Read the record. The answer is the number of the micro-batch after the last written one, or None."""


@dataclass(frozen=True)
class AddPartitions:
    producer: Producer
    places: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Append:
    """Append one batch to each partition. The answer has the offsets of their first records."""

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


class RelayOutcome(Enum):
    """Outcomes of a commit. Each means that the rows are written, once."""

    WRITTEN = "written"
    WRITTEN_BEFORE = "written before"
    NOTHING_TO_WRITE = "nothing to write"


def relay(job: Job, frames: Iterable[Frame]) -> Generator[Step, Any, RelayOutcome]:
    """Steps to write a job. Raises CommitRefused, the errors of `frames`, and thrown errors."""
    if not job.places and job.batch_id is None:  # an empty micro-batch too needs a record that does not expire
        return RelayOutcome.NOTHING_TO_WRITE
    producer: Producer = yield Begin()
    if job.batch_id is not None and _is_written(job, (yield ReadRecord())):
        return RelayOutcome.WRITTEN_BEFORE
    if job.places:
        yield AddPartitions(producer, job.places)
    sequences = dict.fromkeys(job.places, 0)
    for window in windows(frames):
        yield Append(producer, {frame.place: _stamped(frame, producer, sequences) for frame in window})
    if job.batch_id is not None:
        yield AddRecord(producer)
        yield WriteRecord(producer, job.batch_id + 1)
    yield Commit(producer)
    return RelayOutcome.WRITTEN


def windows(frames: Iterable[Frame], bytes_max: int = APPEND_MAX_BYTES) -> Iterator[list[Frame]]:
    """Groups of consecutive frames with different places, of at most `bytes_max` in all, at least one frame each.

    From a producer with an id, brokers accept one batch for each partition and request.
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
    if recorded > job.batch_id + 1:  # Spark repeats the last micro-batch only
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
