"""Planning of commits for groups: a pure state machine. Its inputs are Spark's events and the results of commits.

Only the current position of a query counts: newer offsets replace waiting ones, so nothing accumulates while the
cluster does not answer. If queries share a group and a partition, the lowest offset counts. After a refusal, a group is
tried again when there are new offsets. If the cluster does not answer, it is also tried again after a pause. Either is
reported in one line, not in one line for each attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_connectors.progress.options import QUERY, ReportOptions
from spark_connectors.progress.positions import Positions, lowest

REFRESH_S: Final = 600.0  # brokers expire offsets without new commits (offsets.retention.minutes)
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
GROUPS_MAX: Final = 1000  # groups in memory; groups of running queries stay in any case


@dataclass(frozen=True)
class Query:
    """A run of a query. The id belongs to the checkpoint and outlives runs."""

    id: str
    run_id: str
    name: str | None

    @property
    def label(self) -> str:
        return self.name or self.id


@dataclass(frozen=True)
class Commit:
    """Offsets to commit for a group."""

    group: str
    positions: Positions


@dataclass(frozen=True)
class CommitResult:
    """Result of a commit: the committed offsets, and the refusal of the others."""

    committed: Positions
    refusal: str | None = None


@dataclass(frozen=True)
class Metrics:
    """Counts and errors of a reporter."""

    commits: int  # successful ones, even if only in part
    failures: int  # attempts that were refused, even if only in part, or got no answer
    last_error: str | None  # of the newest failure, even if later commits succeeded
    refused: Mapping[str, str]  # the reason for each group whose last commit was refused
    committed: Mapping[str, Positions]  # last committed offsets of each group


@dataclass
class _Run:
    run_id: str
    positions: Positions
    has_ended: bool = False


@dataclass
class _Group:
    """A group and the runs that report to it. Ended runs stay until their last positions are committed."""

    runs: dict[str, _Run] = field(default_factory=dict)  # by the query's id
    committed: Positions = field(default_factory=dict)
    refusal: str | None = None
    asked_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return all(run.has_ended for run in self.runs.values())


class Groups:
    """The groups of one reporter. Not thread-safe."""

    def __init__(self, options: ReportOptions) -> None:
        self._options = options
        self._running: dict[str, Query] = {}  # by run id
        self._groups: dict[str, _Group] = {}
        self._waiting: dict[str, None] = {}  # groups in the order in which they are served
        self._under_way: str | None = None
        self._trouble: str | None = None
        self._retry_at_s = 0.0
        self._pause_s = PAUSE_FIRST_S
        self._commits = 0
        self._failures = 0
        self._last_error: str | None = None

    # --- events of Spark

    def started(self, query: Query) -> None:
        """A query has started, before its first micro-batch."""
        if self._options.queries is None or query.name in self._options.queries:
            self._running[query.run_id] = query

    def progressed(self, query: Query, positions: Positions) -> None:
        """A micro-batch is committed. The listener may have been added after the start of the query."""
        self.started(query)
        topics = self._options.topics
        wanted = {place: offset for place, offset in positions.items() if topics is None or place.topic in topics}
        if query.run_id in self._running and wanted:
            name = self.group_of(query)
            self._group(name).runs[query.id] = _Run(query.run_id, wanted)
            self._await(name)

    def idled(self, run_id: str, now_s: float) -> None:
        """There is nothing to read. Committed offsets are committed again before brokers expire them."""
        query = self._running.get(run_id)
        if query is None or self._run_of(query) is None:
            return
        if now_s - self._groups[self.group_of(query)].asked_s >= REFRESH_S:
            self._await(self.group_of(query))

    def ended(self, run_id: str) -> None:
        """A run has ended; no more events of it follow."""
        query = self._running.pop(run_id, None)
        run = None if query is None else self._run_of(query)
        if query is not None and run is not None:
            run.has_ended = True
            self.hurry()
            self._settle(self.group_of(query))

    def hurry(self) -> None:
        """Retry at once, because a caller waits."""
        self._retry_at_s = 0.0
        self._pause_s = PAUSE_FIRST_S

    # --- commits and their results

    def take(self, now_s: float) -> Commit | None:
        """The next commit, if there is one now. Call `done` or `failed` for it before the next `take`."""
        if now_s < self._retry_at_s or not self._waiting:
            return None
        name = next(iter(self._waiting))
        del self._waiting[name]
        self._under_way = name
        self._groups[name].asked_s = now_s
        return Commit(name, lowest(run.positions for run in self._groups[name].runs.values()))

    def pause_s(self, now_s: float) -> float | None:
        """Seconds until there is something to take, without further events; None: never."""
        return max(self._retry_at_s - now_s, 0.0) if self._waiting else None

    def done(self, commit: Commit, outcome: CommitResult) -> str | None:
        """Take the answer of a group. Returns a line to log, or None."""
        group = self._groups[commit.group]
        is_new = outcome.refusal not in (None, group.refusal)
        was_away = self._trouble is not None
        self._under_way = self._trouble = None
        self._pause_s = PAUSE_FIRST_S
        group.refusal = outcome.refusal
        if outcome.committed:
            self._commits += 1
            group.committed = outcome.committed
        if outcome.refusal is not None:
            self._failures += 1
            self._last_error = outcome.refusal
        self._settle(commit.group)
        if is_new:
            return outcome.refusal
        return "offsets are committed again" if was_away and outcome.refusal is None else None

    def failed(self, commit: Commit, trouble: str, now_s: float) -> str | None:
        """Take a failure without an answer. The offsets are committed later, unless newer ones replace them. Returns a
        line to log, or None.
        """
        was_well = self._trouble is None
        self._under_way = None
        self._trouble = self._last_error = trouble
        self._failures += 1
        self._waiting[commit.group] = None
        self._retry_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return f"offsets are not committed, and will be later: {trouble}" if was_well else None

    # --- queries of callers

    def group_of(self, query: Query) -> str:
        """Name of the query's group, whether the group exists here or not."""
        return self._options.group_id.replace(QUERY, query.label)

    def unsettled(self, queries: Iterable[Query] | None = None) -> Iterator[str]:
        """Missing ends and commits of these queries, or of all, as texts."""
        asked = None if queries is None else list(queries)
        for run_id, query in self._running.items():
            if asked is None or any(one.run_id == run_id for one in asked):
                yield f"query {query.label} has not ended"
        for name in self._waiting if self._under_way is None else {**self._waiting, self._under_way: None}:
            if asked is None or any(self.group_of(one) == name for one in asked):
                yield f"group {name} is not told{'' if self._trouble is None else f' ({self._trouble})'}"

    def refusals(self, queries: Iterable[Query] | None = None) -> dict[str, str]:
        """Reasons of the last refusals, by group, for these queries or for all."""
        names = self._groups if queries is None else {self.group_of(one) for one in queries}
        return {
            name: group.refusal for name, group in self._groups.items() if name in names and group.refusal is not None
        }

    def metrics(self) -> Metrics:
        """Current counts and errors."""
        committed = {name: dict(group.committed) for name, group in self._groups.items()}
        return Metrics(self._commits, self._failures, self._last_error, self.refusals(), committed)

    def _run_of(self, query: Query) -> _Run | None:
        """The run's last report, unless a later run of the same query has reported."""
        group = self._groups.get(self.group_of(query))
        run = None if group is None else group.runs.get(query.id)
        return run if run is not None and run.run_id == query.run_id else None

    def _group(self, name: str) -> _Group:
        if name not in self._groups:
            self._make_room()
            self._groups[name] = _Group()
        return self._groups[name]

    def _make_room(self) -> None:
        """Drop the oldest groups whose queries have ended, committed or not."""
        over = [name for name, group in self._groups.items() if group.is_over and name != self._under_way]
        for name in over[: max(len(self._groups) - GROUPS_MAX + 1, 0)]:
            del self._groups[name]
            self._waiting.pop(name, None)

    def _await(self, name: str) -> None:
        self._waiting[name] = None
        self._retry_at_s = 0.0

    def _settle(self, name: str) -> None:
        if name in self._waiting or name == self._under_way:
            return
        group = self._groups[name]
        group.runs = {id_: run for id_, run in group.runs.items() if not run.has_ended}
