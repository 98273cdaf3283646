"""Check of a topic's bytes: sealed segments in their files and in their objects, and all other offsets by Fetch.

A segment is compared with its description in the catalogue. If a segment is gone before it is read, that is no finding:
the driver looks up again which segments there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from spark_connectors.jobs.audit.segments import Findings, ProblemKind, SegmentAudit
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span, joined
from spark_connectors.jobs.topic_log import TASK_OFFSETS, TopicLog
from spark_connectors.jobs.workers import outcomes
from spark_connectors.locations import resolved
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.segments.access import catalogue_of
from spark_connectors.segments.files import SegmentFile
from spark_connectors.segments.object_trailer import decode_parts
from spark_connectors.segments.objects import SegmentObject, store_errors_as_gone
from spark_connectors.segments.plan import Part
from spark_connectors.segments.reading import BATCH_MAX_BYTES, CHUNK_BYTES, SegmentBytes, SegmentGone
from spark_connectors.segments.sealed import Catalogue, CatalogueUnavailable, Segment
from spark_connectors.segments.stores import ObjectDamaged, Store
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange, divided
from spark_connectors.source.reading import fetched
from spark_connectors.wire import BrokerError, ErrorCode, TopicPartition

PASSES_MAX: Final = 3  # over segments that retention deletes while they are read
_KEY_DIGEST_BYTES: Final = 16


class Audited(NamedTuple):
    """Result of a task. `gone`: why the task could not read its bytes to the end."""

    findings: Findings
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    gone: str | None = None


class Task(Protocol):
    @property
    def partition(self) -> int: ...
    @property
    def size(self) -> int:
        """Number of offsets, for progress."""

    def location(self) -> dict[str, object]:
        """The place that the task checks, as fields of a finding."""

    def run(self) -> Audited: ...


@dataclass(frozen=True)
class SealedTask:
    """Task that checks a segment in its file, or in its object in `store`."""

    place: TopicPartition
    segment: Segment
    store: str | None
    has_records: bool

    @property
    def partition(self) -> int:
        """See Task."""
        return self.place.partition

    @property
    def size(self) -> int:
        """See Task."""
        return self.segment.end - self.segment.base

    def location(self) -> dict[str, object]:
        """See Task."""
        where = {"file": self.segment.path} if self.segment.path is not None else {"object": self.segment.key}
        return {"segment": self.segment.base, **where}

    def run(self) -> Audited:
        """See Task."""
        findings = Findings()
        try:
            audit = self._audited(findings)
        except (SegmentGone, OSError) as error:
            return Audited(findings, gone=str(error))
        return Audited(findings, audit.batches, audit.records, audit.position)

    def _audited(self, findings: Findings) -> SegmentAudit:
        segment = self.segment
        aborted, positions = segment.aborted, segment.positions
        if segment.path is None:
            trailer = _checked_trailer(self._store(), segment, findings)
            if trailer is not None:
                aborted, positions = trailer.aborted, trailer.positions
        audit = SegmentAudit(segment, findings, aborted, positions, has_records=self.has_records)
        file = self._opened()
        try:
            _read(audit, file, segment.size_bytes)
        finally:
            file.close()
        return audit

    def _opened(self) -> SegmentBytes:
        segment = self.segment
        if segment.path is not None:
            return SegmentFile(segment)
        return SegmentObject(self._store(), str(segment.key), Part(segment, segment.base, 0, segment.size_bytes))

    def _store(self) -> Store:
        if self.store is None:
            raise SegmentGone("the location of the objects is not known")
        return Store(self.store)


class _TrailerContent(NamedTuple):
    """Aborted transactions and index positions, as the trailer of an object has them."""

    aborted: tuple[tuple[int, int, int], ...]
    positions: tuple[tuple[int, int], ...]


def _checked_trailer(store: Store, segment: Segment, findings: Findings) -> _TrailerContent | None:
    """Check the trailer of an object. None: it cannot be decoded, which is noted. Raises SegmentGone."""
    key = str(segment.key)
    with store_errors_as_gone(), store.open(key) as found:
        data = found.read_at(segment.size_bytes, max(found.size_bytes - segment.size_bytes, 0))
    try:
        footer, positions = decode_parts(data, key, segment.size_bytes, segment.digest)
    except ObjectDamaged as error:
        findings.add(ProblemKind.TRAILER, str(error), segment.size_bytes)
        return None
    digest = blake2b(bytes.fromhex(segment.digest) + data, digest_size=_KEY_DIGEST_BYTES).hexdigest()
    if not key.endswith(f"-{digest}"):
        findings.add(ProblemKind.TRAILER, f"its key lacks the digest of its content, {digest}", segment.size_bytes)
    if footer.base != segment.base:
        findings.add(ProblemKind.TRAILER, f"its footer is of the segment at {footer.base}", segment.size_bytes)
    if segment.aborted is not None and sorted(segment.aborted) != sorted(footer.aborted):
        findings.add(ProblemKind.ABORTED, f"{footer.aborted} are in its footer, and {segment.aborted} are told")
    missing = set(segment.positions) - set(positions)
    for offset, position in sorted(missing):
        findings.add(ProblemKind.POSITION, f"it is told, and not in its index, with offset {offset}", position, offset)
    return _TrailerContent(footer.aborted, positions)


def _read(audit: SegmentAudit, file: SegmentBytes, size_bytes: int) -> None:
    """Pass all bytes of a segment to the audit. Raises SegmentGone, OSError."""
    chunk_bytes = CHUNK_BYTES
    while (left := size_bytes - audit.position) > 0 and not audit.is_over:
        if audit.take(file.read(audit.position, min(chunk_bytes, left))):
            chunk_bytes = CHUNK_BYTES
        elif chunk_bytes >= min(left, BATCH_MAX_BYTES):
            break
        else:
            chunk_bytes *= 2
    audit.finish()


@dataclass(frozen=True)
class FetchTask:
    """Task that checks the batches that a broker sends for a range."""

    options: SourceOptions
    wanted: OffsetRange
    has_records: bool

    @property
    def partition(self) -> int:
        """See Task."""
        return self.wanted.place.partition

    @property
    def size(self) -> int:
        """See Task."""
        return self.wanted.size

    def location(self) -> dict[str, object]:
        """See Task."""
        return {"fetched": [self.wanted.start, self.wanted.end]}

    def run(self) -> Audited:
        """See Task. It ends at the first wrong batch, because the next batch cannot be found behind it. Raises
        WireError, DataLoss, TopicRecreated.
        """
        findings = Findings()
        audit = SegmentAudit(_ANYTHING, findings, None, has_records=self.has_records)
        reached = self.wanted.start
        try:
            for piece in fetched(self.options, self.wanted):
                audit.add(piece.batches, piece.records)
                reached = piece.batches[-1].next_offset
        except MalformedBatch as error:
            findings.add(ProblemKind.BATCH, str(error), offset=reached)
        except BrokerError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            findings.add(ProblemKind.BATCH, f"the broker says that it is damaged: {error}", offset=reached)
        return Audited(findings, audit.batches, audit.records, audit.position)


_ANYTHING: Final = Segment(0, (1 << 63) - 1, 0, (1 << 63) - 1, "")


def audit(log: TopicLog, report: Report, session: Session, *, has_records: bool = False) -> None:
    """Audit a topic and fill the report. With `has_records`, records are checked too, and not only their batches.
    Raises WireError, and the errors of tasks.
    """
    planner = _Planner(log, report, has_records=has_records)
    ends = log.ends()
    spans = [Span(partition, start, ends[partition]) for partition, start in sorted(log.starts().items())]
    for _ in range(PASSES_MAX):
        tasks = planner.tasks(spans)
        if session.is_dry_run:
            report.add(tasks=len(tasks), offsets=sum(one.size for one in tasks))
            return
        gone = _run(tasks, report, session)
        spans = planner.still_there(gone)
        if not spans:
            return
    report.add(gone=len(spans))


def _run(tasks: Sequence[Task], report: Report, session: Session) -> list[tuple[Task, str]]:
    """Run the tasks. Returns the tasks whose bytes are gone or cannot be read, each with the reason."""
    gone = []
    done, size, records = 0, sum(one.size for one in tasks), 0
    for task, found in outcomes(session.workers, _audited, tasks):
        done, records = done + task.size, records + found.records
        session.progress.update("audited", done, size, records)
        if found.gone is not None:
            gone.append((task, found.gone))
            continue
        (name,) = task.location().keys() - {"segment"}
        report.add(**{f"{name}s" if name != "fetched" else name: 1})
        report.add(batches=found.batches, records=found.records, bytes=found.size_bytes)
        _report_findings(task, found.findings, report)
    return gone


def _audited(task: Task) -> Audited:
    return task.run()


def _report_findings(task: Task, findings: Findings, report: Report) -> None:
    for one in findings.kept:
        report.found(
            kind=one.kind,
            partition=task.partition,
            **task.location(),
            position=one.position,
            offset=one.offset,
            detail=one.detail,
        )
    report.findings_left_out += findings.left_out


class _Planner:
    """Planner of the tasks. It reads the catalogue of sealed segments."""

    def __init__(self, log: TopicLog, report: Report, *, has_records: bool) -> None:
        """Raises ValueError for a store that cannot be used."""
        options = log.options.segments
        self._log = log
        self._report = report
        self._has_records = has_records
        self._catalogue: Catalogue | None = None if options is None else catalogue_of(options)
        self._store = None if options is None or options.brokers else options.store
        if options is not None and options.store is not None:
            self._store = resolved(options.store)

    def tasks(self, spans: Sequence[Span]) -> list[Task]:
        """Tasks for all offsets of these spans."""
        found: list[Task] = []
        rest: list[Span] = []
        for span in spans:
            sealed = list(self._sealed(span))
            found += sealed
            rest += _without(span, [Span(one.partition, one.segment.base, one.segment.end) for one in sealed])
        return [*found, *self._fetches(rest)]

    def still_there(self, gone: Sequence[tuple[Task, str]]) -> list[Span]:
        """Spans to look up again, because other segments may have these offsets now. If the catalogue still describes a
        segment that could not be read, that is a finding.
        """
        again: list[Span] = []
        starts = self._log.starts() if gone else {}
        for task, reason in gone:
            assert isinstance(task, SealedTask), "a fetched task cannot be gone"
            span = Span(task.partition, max(task.segment.base, starts.get(task.partition, 0)), task.segment.end)
            if span.size > 0 and task in self._sealed(span):
                self._report.found(kind="unreadable", partition=task.partition, **task.location(), detail=reason)
            elif span.size > 0:
                again.append(span)
        return list(joined(again))

    def _sealed(self, span: Span) -> Iterator[SealedTask]:
        """Tasks for the segments of a span, one for each place where a segment is stored."""
        if self._catalogue is None:
            return
        place = TopicPartition(self._log.topic, span.partition)
        try:
            found = self._catalogue.sealed(place, self._log.topic_id, span.start, span.end)
        except CatalogueUnavailable as error:
            self._report.found(kind="catalogue", partition=span.partition, detail=str(error))
            return
        if found is None:
            return
        store = self._store or (None if found.store is None else resolved(found.store))
        for one in found.segments:
            if one.path is not None:
                yield SealedTask(place, one._replace(key=None), None, self._has_records)
            if one.key is not None:
                yield SealedTask(place, one._replace(path=None), store, self._has_records)

    def _fetches(self, spans: Sequence[Span]) -> Sequence[Task]:
        options = self._log.options
        if not options.bootstrap:
            return []
        ranges = [
            OffsetRange(TopicPartition(self._log.topic, one.partition), self._log.topic_id, one.start, one.end, True)
            for one in spans
        ]
        most = options.max_records_per_partition or TASK_OFFSETS
        return [FetchTask(options, one, self._has_records) for one in divided(ranges, options.min_partitions, most)]


def _without(span: Span, covered: Sequence[Span]) -> Iterator[Span]:
    """Parts of the span that are not covered."""
    start = span.start
    for one in joined(covered):
        if one.start > start:
            yield span._replace(start=start, end=min(one.start, span.end))
        start = max(start, one.end)
    if start < span.end:
        yield span._replace(start=start)
