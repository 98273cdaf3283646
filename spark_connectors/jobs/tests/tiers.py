"""Topics in a broker's tier, to be read without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.batches.batch import Record, RecordHeader, parse_header
from spark_connectors.source.options import SourceOptions, source_options
from spark_connectors.source.tests.world import FIRST_MS, Log
from testkit.bucket_broker import Bucket, Written

TOPIC = "orders"


def log_of(values: Sequence[bytes | None], batch_rows: int = 5) -> Log:
    """A log of records with keys, some headers, and these values."""
    log = Log()
    records = [
        Record(b"k%d" % number, value, FIRST_MS + number, (RecordHeader(b"h", b"%d" % number),) if number % 3 else ())
        for number, value in enumerate(values)
    ]
    for begin in range(0, len(records), batch_rows):
        log.add(*records[begin : begin + batch_rows])
    return log


def tier_of(directory: Path, logs: Sequence[Log], batches_each: int = 2) -> Bucket:
    """A topic with a partition for each log, copied completely, with `batches_each` batches in each segment."""
    bucket = Bucket(directory)
    bucket.put_topic(TOPIC, partition_count=len(logs))
    for partition, log in enumerate(logs):
        copy(bucket, log, partition, batches_each)
    return bucket


def copy(bucket: Bucket, log: Log, partition: int = 0, batches_each: int = 2) -> list[Written]:
    found = []
    for begin in range(0, len(log.batches), batches_each):
        some, behind = log.batches[begin : begin + batches_each], log.batches[begin + batches_each :]
        end = parse_header(memoryview(behind[0])).base_offset if behind else log.end
        base = parse_header(memoryview(some[0])).base_offset if begin else log.start
        aborted = [one for one in log.aborted if one[1] < end and one[2] >= base]
        found.append(bucket.copy(end, bucket.place(partition), batches=some, aborted=aborted))
    return found


def options_of(bucket: Bucket, **more: str) -> SourceOptions:
    raw = {"subscribe": TOPIC, "includeHeaders": "true", "segments": f"file://{bucket.directory}", **more}
    return source_options(raw, is_stream=False)
