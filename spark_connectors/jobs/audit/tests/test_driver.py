"""Audits of topics in a tier without a broker, of files, and of fetched batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install -r requirements/spark.txt")

from pyspark import cloudpickle

from engine.api import Outcome as Ending
from engine.api import TopicIdPartition as Place
from engine.batches.batch import parse_header
from engine.logs.segments.footer import Tally, encode
from spark_connectors.jobs.audit import driver as module
from spark_connectors.jobs.audit.driver import FetchTask, SealedTask, audit
from spark_connectors.jobs.audit.segments import ProblemKind
from spark_connectors.jobs.report import JobOutcome, ProgressLine, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.tests.tiers import TOPIC, log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.jobs.workers import OneByOne
from spark_connectors.records.batches import batches_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.segments.sealed import Sealed, Segment
from spark_connectors.source.fetching import Piece
from spark_connectors.source.options import source_options
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.tests.world import Log
from spark_connectors.wire import BrokerError, ErrorCode, TopicPartition
from testkit.bucket_broker import TOPIC_ID, Bucket, segment_of
from tiering.segment_object import make_object

VALUES = [b"%d" % number for number in range(40)]
PLACE = TopicPartition(TOPIC, 0)
QUIET = ProgressLine(lambda _: None, lambda: 0.0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return tier_of(tmp_path / "tier", [log_of(VALUES)])


def report_of(bucket: Bucket, *, has_records: bool = False, is_dry_run: bool = False) -> Report:
    report = Report("audit", {})
    with TopicLog(options_of(bucket)) as log:
        audit(log, report, Session(OneByOne(), QUIET, is_dry_run), has_records=has_records)
    return report


def objects(bucket: Bucket) -> list[Path]:
    """Paths of the objects of partition 0."""
    return [bucket.path(bucket.place().segment(one)) for one in bucket.entries()]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_tier_that_is_in_order(tmp_path: Path) -> None:
    log = Log()
    first = log.send(7, b"a", b"b")
    log.append(b"plain")
    log.decide(7, Ending.ABORT, first)
    bucket = tier_of(tmp_path, [log_of(VALUES), log])
    report = report_of(bucket, has_records=True)
    assert (report.outcome, report.findings) == (JobOutcome.DONE, [])
    size_bytes = sum(len(one) for one in log_of(VALUES).batches + log.batches)
    assert report.counts == {"objects": 6, "batches": 11, "records": 44, "bytes": size_bytes}


def test_a_flipped_bit_of_a_record_is_named(bucket: Bucket) -> None:
    second = objects(bucket)[1]
    flip(second, len(log_of(VALUES).batches[0]) + 100)
    report = report_of(bucket)
    assert report.outcome is JobOutcome.DIFFERS
    (found,) = report.findings
    known = {name: found[name] for name in ("kind", "partition", "segment", "position", "offset")}
    position = len(log_of(VALUES).batches[2])
    assert known == {"kind": "batch", "partition": 0, "segment": 10, "position": position, "offset": 15}
    assert found["object"] == str(second.relative_to(bucket.directory))


@pytest.mark.parametrize("place", [1, 30, 64, 70])
def test_a_trailer_that_is_damaged_is_found(bucket: Bucket, place: int) -> None:
    first = objects(bucket)[0]
    flip(first, len(first.read_bytes()) - place)
    (found,) = report_of(bucket).findings
    assert (found["kind"], found["segment"], found["position"]) == ("trailer", 0, bucket.entries()[0].size_bytes)


def test_an_object_that_is_not_there_or_too_short_cannot_be_read(bucket: Bucket) -> None:
    first, second, *_ = objects(bucket)
    first.unlink()
    second.write_bytes(second.read_bytes()[:50])
    found = report_of(bucket).findings
    assert [(one["kind"], one["segment"]) for one in found] == [("unreadable", 0), ("unreadable", 10)]


def test_object_with_the_bytes_of_another_object_has_trailer_and_offsets_findings(bucket: Bucket) -> None:
    first, second, *_ = objects(bucket)
    first.write_bytes(second.read_bytes())
    kinds = {one["kind"] for one in report_of(bucket).findings}
    assert {"trailer", "offsets"} <= kinds


def test_an_object_that_was_put_under_the_key_of_another_is_found(bucket: Bucket) -> None:
    """The object is correct and belongs to the same segment, but has other producers."""
    (entry, *_), (path, *_) = bucket.entries(), objects(bucket)
    batches = log_of(VALUES).batches[:2]
    other = make_object(segment_of(bucket.place(), 0, entry.end, batches=batches, producers=b"others"))
    path.write_bytes(b"".join(other.content.slices()))
    (found,) = report_of(bucket).findings
    assert (found["kind"], found["detail"]) == (
        "trailer",
        f"its key lacks the digest of its content, {other.digest}",
    )


def test_a_manifest_that_is_damaged_is_found(bucket: Bucket) -> None:
    with TopicLog(options_of(bucket)) as log:
        manifest = max(bucket.directory.rglob("manifest/*"))
        flip(manifest, 20)
        report = Report("audit", {})
        audit(log, report, Session(OneByOne(), QUIET))
    (found,) = report.findings
    assert (found["kind"], found["partition"]) == ("catalogue", 0)
    assert "fails its CRC" in found["detail"]


def test_a_dry_run_reads_nothing(bucket: Bucket) -> None:
    objects(bucket)[0].unlink()
    report = report_of(bucket, is_dry_run=True)
    assert (report.outcome, report.counts) == (JobOutcome.DONE, {"tasks": 4, "offsets": 40})


def test_segment_deleted_before_its_read_is_looked_up_again(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction has replaced the segment, or retention has deleted it."""
    run = SealedTask.run

    def run_late(task: SealedTask) -> Any:
        if task.segment.base == 10 and task.segment.end == 20:
            bucket.shed(20)
            bucket.path(str(task.segment.key)).unlink(missing_ok=True)
        return run(task)

    monkeypatch.setattr(SealedTask, "run", run_late)
    report = report_of(bucket)
    assert (report.outcome, report.findings) == (JobOutcome.DONE, [])
    assert report.counts["objects"] == 3


# --- files


def sealed_file(directory: Path, log: Log) -> Segment:
    """A segment file with its footer, as in a log dir."""
    tally = Tally()
    for one in log.batches:
        tally.add(parse_header(memoryview(one)))
    content = b"".join(log.batches)
    footer = tally.footer(Place(TOPIC_ID, TOPIC, 0), 0, len(content))
    path = directory / f"{0:020d}.log"
    path.write_bytes(content)
    path.with_suffix(".footer").write_bytes(encode(footer))
    known = 0, log.end, len(content), footer.max_timestamp_ms, footer.digest.hex()
    return Segment(*known, (), (), None, str(path), records=footer.records)


def test_correct_segment_file_has_no_findings_and_a_flipped_bit_is_found(tmp_path: Path) -> None:
    log = log_of(VALUES)
    task = SealedTask(PLACE, sealed_file(tmp_path, log), None, has_records=True)
    found = cloudpickle.loads(cloudpickle.dumps(task)).run()
    assert (found.findings.kept, found.records, found.batches) == ([], 40, 8)
    assert task.location() == {"segment": 0, "file": task.segment.path}
    flip(Path(str(task.segment.path)), 90)
    assert [one.kind for one in task.run().findings.kept] == [ProblemKind.BATCH]


@pytest.mark.parametrize("suffix", [".log", ".footer"])
def test_segment_without_its_log_file_or_its_footer_counts_as_gone(tmp_path: Path, suffix: str) -> None:
    task = SealedTask(PLACE, sealed_file(tmp_path, log_of(VALUES)), None, has_records=False)
    Path(str(task.segment.path)).with_suffix(suffix).unlink()
    assert task.run().gone is not None


class Told:
    """Catalogue with a file and an object of the same segment."""

    def __init__(self, *segments: Segment) -> None:
        self._segments = segments

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        some = tuple(one for one in self._segments if one.base < end and one.end > start)
        return Sealed(place, topic_id, 0, max(one.end for one in self._segments), some, None)


def test_segment_file_and_object_are_audited(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = sealed_file(tmp_path, Log(0, 10, log_of(VALUES).batches[:2]))
    (entry, *_) = bucket.entries()
    monkeypatch.setattr(module, "catalogue_of", lambda _: Told(segment._replace(key=bucket.place().segment(entry))))
    options = options_of(bucket)
    report = Report("audit", {})
    with TopicLog(options) as log:
        planner = module._Planner(log, report, has_records=False)
        tasks = planner.tasks([Span(0, 0, 10)])
        assert [list(one.location()) for one in tasks] == [["segment", "file"], ["segment", "object"]]
        Path(str(segment.path)).write_bytes(b"short")
        assert planner.still_there([(task, str(task.run().gone)) for task in tasks[:1]]) == []
    (found,) = report.findings
    assert (found["kind"], found["file"]) == ("unreadable", segment.path)
    assert "has become shorter" in found["detail"]


# --- batches from a broker

Pieces = Callable[..., Iterator[Piece]]


def fetch_task() -> FetchTask:
    raw = {"kafka.bootstrap.servers": "one:9092", "subscribe": TOPIC}
    return FetchTask(source_options(raw, is_stream=False), OffsetRange(PLACE, TOPIC_ID, 3, 40), has_records=True)


def pieces_of(*batches: bytes, then: Exception | None = None) -> Pieces:
    def fetched(*_: object) -> Iterator[Piece]:
        for one in batches:
            yield Piece(0, memoryview(one), batches_of(one), ())
        if then is not None:
            raise then

    return fetched


def test_correct_fetched_batches_have_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fetched", pieces_of(*log_of(VALUES).batches))
    found = fetch_task().run()
    assert (found.findings.kept, found.records, found.batches) == ([], 40, 8)


@pytest.mark.parametrize(
    "error", [MalformedBatch("the CRC is wrong"), BrokerError(ErrorCode.CORRUPT_MESSAGE, "Fetch of orders-0")]
)
def test_damaged_fetched_batch_is_found_with_its_offset(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(module, "fetched", pieces_of(*log_of(VALUES).batches[:2], then=error))
    (found,) = fetch_task().run().findings.kept
    assert (found.kind, found.offset, found.position) == (ProblemKind.BATCH, 10, None)


def test_offsets_that_go_back_from_one_answer_to_the_next_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = log_of(VALUES).batches
    monkeypatch.setattr(module, "fetched", pieces_of(second, first))
    (found,) = fetch_task().run().findings.kept
    assert (found.kind, found.offset) == (ProblemKind.OFFSETS, 0)


def test_a_broker_that_does_not_answer_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "fetched", pieces_of(then=BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Fetch")))
    with pytest.raises(BrokerError):
        fetch_task().run()
