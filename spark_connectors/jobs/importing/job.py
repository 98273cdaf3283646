"""Run of an import: looks up both sides, decides whether offsets can stay, and fills the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_connectors.jobs.importing import door, topics
from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.keeping import Filling, check_tail, fill
from spark_connectors.jobs.importing.mapping import Mapped, load_progress, relayed
from spark_connectors.jobs.importing.offset_map import MapFile, OffsetMap, Run
from spark_connectors.jobs.importing.performing import ImportSteps
from spark_connectors.jobs.importing.sides import Side, check_partitions, why_not_kept
from spark_connectors.jobs.importing.topics import Topic
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.progress.commits import commit
from spark_connectors.progress.committed import committed_of
from spark_connectors.progress.groups import Commit
from spark_connectors.sink.options import RECORD_TOPIC, TRANSACTION_TIMEOUT_MS
from spark_connectors.sink.requests import Requests, run
from spark_connectors.source.fetching import RangeFetch
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import Cluster, TopicPartition

NAME: Final = "import"

OffsetTranslation = Callable[[int, int], int | None]  # (partition, offset of the source) to the offset of the target


@dataclass(frozen=True)
class ImportRequest:
    """Request of an import. `urls`: HTTP listeners of the target. `map_path`: file of the offset map; None: offsets
    have to stay. `job` distinguishes imports into one topic.
    """

    source: SourceOptions
    topic: str
    target: SourceOptions
    to_topic: str
    urls: tuple[str, ...]
    groups: tuple[str, ...]
    map_path: str | None
    job: str


class Sides(NamedTuple):
    source: Topic
    target: Topic


class Import:
    """A run of an import."""

    def __init__(
        self, request: ImportRequest, source: Cluster, target: Cluster, session: Session, report: Report
    ) -> None:
        self._request = request
        self._source = source
        self._target = target
        self._session = session
        self._report = report

    def run(self) -> None:
        """Import. Raises ImportRefused, or WireError, Interrupted, Fenced: then another run may succeed."""
        request = self._request
        source = topics.look_up(self._source, request.source, request.topic)
        if source is None:
            raise ImportRefused(f"there is no topic {request.topic} to import")
        url = door.door_of(request.urls, request.to_topic)
        target = topics.look_up(self._target, request.target, request.to_topic)
        sides = None if target is None else Sides(source, target)
        reason = self._why_not_kept(sides, url)
        if reason is not None and request.map_path is None:
            raise ImportRefused(f"offsets cannot stay: {reason}; with --offset-map they change, and a file tells how")
        self._plan(source.side, reason)
        if not self._session.is_dry_run:
            self._fill(sides or Sides(source, self._create(source)), url if reason is None else None)

    def _plan(self, source: Side, reason: str | None) -> None:
        offsets = sum(span.end - span.start for span in source.spans.values())
        self._report.add(partitions=len(source.spans), offsets=offsets)
        self._report.asked = {**self._report.asked, "offsets": "stay" if reason is None else "change"}

    def _create(self, source: Topic) -> Topic:
        request = self._request
        left_out = topics.create(self._target, request.to_topic, len(source.side.spans), source.configs)
        self._report.add(topics_created=1, configs_left_out=len(left_out))
        self._target.count_partitions(request.to_topic)  # wait for the new topic
        created = topics.look_up(self._target, request.target, request.to_topic)
        if created is None:
            raise ImportRefused(f"topic {request.to_topic} is gone again")
        return created

    def _why_not_kept(self, sides: Sides | None, url: str | None) -> str | None:
        """Reason why offsets cannot stay; None: they can. `sides` is None if the target has to be created. Raises
        ImportRefused.
        """
        if sides is not None:
            check_partitions(sides.source.side, sides.target.side)
        if url is None:
            if sides is not None and self._has_kept(sides):
                raise ImportRefused(f"offsets stayed so far, and no kafkawire answers at {self._urls} to let them")
            return f"no kafkawire answers at {self._urls}, which --to-http may say"
        if sides is None:
            return None
        ours = sides.target.side
        if not door.knows(url, ours.topic, ours.topic_id):
            return f"{url} is of another cluster than {ours.topic} is in"
        return why_not_kept(sides.source.side, ours) or self._why_not_own(sides)

    @property
    def _urls(self) -> str:
        return " or ".join(self._request.urls)

    def _why_not_own(self, sides: Sides) -> str | None:
        try:
            self._compare(sides)
        except ImportRefused as error:
            return str(error)
        return None

    def _has_kept(self, sides: Sides) -> bool:
        """Whether the target looks like the result of an import with the same offsets."""
        if why_not_kept(sides.source.side, sides.target.side) is not None:
            return False
        try:
            return self._compare(sides)
        except ImportRefused:
            return False

    def _compare(self, sides: Sides) -> bool:
        """Whether both sides have common offsets, which are equal. Raises ImportRefused if they differ."""
        spans = sides.target.side.spans
        fillings = [one for one in self._fillings(sides, "") if not spans[one.place.partition].is_empty]
        compared = [check_tail(one, self._source, self._target, spans[one.place.partition]) for one in fillings]
        return any(compared)

    def _fill(self, sides: Sides, url: str | None) -> None:
        if url is None:
            maps = self._map(sides)
            self._copy_groups(sides, lambda number, offset: maps[number].translated(offset) if number in maps else None)
        else:
            self._keep(sides, url)
            spans = sides.source.side.spans
            self._copy_groups(sides, lambda number, offset: min(offset, spans[number].end))

    def _keep(self, sides: Sides, url: str) -> None:
        spans = sides.source.side.spans
        wanted = self._fillings(sides, url)
        total, done = sum(one.wanted.size for one in wanted), 0
        for filled in self._session.workers.map(fill, wanted):
            done += spans[filled.partition].end - spans[filled.partition].start
            self._report.add(records=filled.records, batches=filled.batches, bytes=filled.size_bytes)
            self._session.progress.update(NAME, done, total, self._report.counts["records"], is_last=done == total)

    def _fillings(self, sides: Sides, url: str) -> list[Filling]:
        ours, theirs = sides.target.side, sides.source.side
        is_compacted = sides.source.is_compacted or sides.target.is_compacted
        return [
            Filling(
                self._request.source,
                self._request.target,
                OffsetRange(TopicPartition(theirs.topic, number), theirs.topic_id, *span),
                TopicPartition(ours.topic, number),
                ours.topic_id,
                url,
                is_compacted,
            )
            for number, span in theirs.spans.items()
        ]

    def _map(self, sides: Sides) -> dict[int, OffsetMap]:
        """Append all records in this process, with one producer. Returns the offset map of each partition, with the
        records of earlier runs.
        """
        assert self._request.map_path is not None
        ours, theirs = sides.target.side, sides.source.side
        file = MapFile(self._request.map_path, _titles(theirs, ours))
        name = f"kafkawire-import-{self._request.job}"
        requests = Requests(self._target, name, RECORD_TOPIC, TRANSACTION_TIMEOUT_MS)
        steps = ImportSteps(requests, file, ours.topic, len(ours.spans))
        mapped = run(load_progress(theirs.topic_id), steps)
        positions = mapped.positions
        runs = file.begin(
            {number: one.offset for number, one in positions.items()},
            {number: one.records for number, one in positions.items()},
        )
        for number, span in theirs.spans.items():
            known = positions.get(number)
            start = span.start if known is None else known.offset
            left = OffsetRange(TopicPartition(theirs.topic, number), theirs.topic_id, start, span.end, known is None)
            runs += self._relay(mapped, steps, left, TopicPartition(ours.topic, number))
        self._report.add(records=mapped.records, batches=mapped.batches, bytes=mapped.size_bytes)
        by_partition: dict[int, list[Run]] = {}
        for one in runs:
            by_partition.setdefault(one.partition, []).append(one)
        return {number: OffsetMap(its) for number, its in by_partition.items()}

    def _relay(self, mapped: Mapped, steps: ImportSteps, left: OffsetRange, place: TopicPartition) -> list[Run]:
        runs: list[Run] = []
        if left.start >= left.end:
            return runs
        for piece in RangeFetch(self._source, self._request.source, left).pieces():
            runs += run(relayed(mapped, place, left.topic_id, piece), steps)
            reached = mapped.positions[place.partition].offset
            self._session.progress.update(f"{NAME} {place}", reached - left.start, left.size, mapped.records)
        return runs

    def _copy_groups(self, sides: Sides, translate: OffsetTranslation) -> None:
        """Commit the offsets of groups in the target, at most up to the last imported offset."""
        theirs, ours = sides.source.side, sides.target.side
        for group in self._request.groups:
            found = committed_of(self._source, group, theirs.topic, theirs.spans)
            translated = {number: translate(number, one.offset) for number, one in found.items()}
            positions = {
                TopicPartition(ours.topic, at): offset for at, offset in translated.items() if offset is not None
            }
            if not positions:
                continue
            outcome = commit(self._target, Commit(group, positions))
            self._report.add(groups=1, offsets_committed=len(outcome.committed))
            if outcome.refusal is not None:
                self._report.found(group=group, refusal=outcome.refusal)


def _titles(theirs: Side, ours: Side) -> dict[str, str]:
    return {
        "source": theirs.topic,
        "source_id": theirs.topic_id.hex(),
        "target": ours.topic,
        "target_id": ours.topic_id.hex(),
    }
