"""What is to be committed for which group, and when: a pure machine, told of Spark's events and of what became of
commits.

Only where a query is now counts: what was not committed yet gives way to what is newer, so nothing piles up, however
long the cluster is away. Of queries that share a group and a partition the slowest counts. A group that refuses is
asked again when there is something new to say, a cluster that is away after a pause, too; of either one line is said,
not one for each attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_connectors.progress.options import QUERY, ReportOptions
from spark_connectors.progress.positions import Positions, lowest

REFRESH_S: Final = 600.0  # brokers forget offsets that nobody commits for long (offsets.retention.minutes)
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
GROUPS_MAX: Final = 1000  # that are remembered; those of running queries are in any case


@dataclass(frozen=True)
class Query:
    """A run of a query. Its id is the checkpoint's and outlives runs."""

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
class Outcome:
    """What a group has taken of a commit, and what it said of the rest."""

    committed: Positions
    refusal: str | None = None


@dataclass(frozen=True)
class Metrics:
    """How a reporter is doing."""

    commits: int  # that were taken, if only in part
    failures: int  # attempts that were refused, if only in part, or came to nothing
    last_error: str | None  # of the newest failure, even if all is well since
    refused: Mapping[str, str]  # of groups whose last commit was refused, why
    committed: Mapping[str, Positions]  # each group's last


@dataclass
class _Run:
    run_id: str
    positions: Positions
    has_ended: bool = False


@dataclass
class _Group:
    """Ended runs are kept until their last positions are committed."""

    runs: dict[str, _Run] = field(default_factory=dict)  # by the query's id
    committed: Positions = field(default_factory=dict)
    refusal: str | None = None
    asked_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return all(run.has_ended for run in self.runs.values())


class Groups:
    """Of one reporter. Not for several threads at once."""

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

    # --- what Spark tells

    def started(self, query: Query) -> None:
        """Before its first micro-batch."""
        if self._options.queries is None or query.name in self._options.queries:
            self._running[query.run_id] = query

    def progressed(self, query: Query, positions: Positions) -> None:
        """A micro-batch is committed. The listener may have come later than the query."""
        self.started(query)
        topics = self._options.topics
        wanted = {place: offset for place, offset in positions.items() if topics is None or place.topic in topics}
        if query.run_id in self._running and wanted:
            name = self.group_of(query)
            self._group(name).runs[query.id] = _Run(query.run_id, wanted)
            self._await(name)

    def idled(self, run_id: str, now_s: float) -> None:
        """There is nothing to read; what was committed is committed again before brokers forget it."""
        query = self._running.get(run_id)
        if query is None or self._run_of(query) is None:
            return
        if now_s - self._groups[self.group_of(query)].asked_s >= REFRESH_S:
            self._await(self.group_of(query))

    def ended(self, run_id: str) -> None:
        """No more will be told of it."""
        query = self._running.pop(run_id, None)
        run = None if query is None else self._run_of(query)
        if query is not None and run is not None:
            run.has_ended = True
            self.hurry()
            self._settle(self.group_of(query))

    def hurry(self) -> None:
        """Somebody waits: a cluster that is away is tried again at once."""
        self._retry_at_s = 0.0
        self._pause_s = PAUSE_FIRST_S

    # --- what is to be done, and what became of it

    def take(self, now_s: float) -> Commit | None:
        """What is to be committed now, if anything; its `done` or `failed` comes before the next is taken."""
        if now_s < self._retry_at_s or not self._waiting:
            return None
        name = next(iter(self._waiting))
        del self._waiting[name]
        self._under_way = name
        self._groups[name].asked_s = now_s
        return Commit(name, lowest(run.positions for run in self._groups[name].runs.values()))

    def pause_s(self, now_s: float) -> float | None:
        """After how long there is something to take, if nothing is told until then; None for never."""
        return max(self._retry_at_s - now_s, 0.0) if self._waiting else None

    def done(self, commit: Commit, outcome: Outcome) -> str | None:
        """The group has answered. Returns what is worth a line, if something is."""
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
        """Nobody has answered: the offsets are committed later, unless newer ones take their place. Likewise."""
        was_well = self._trouble is None
        self._under_way = None
        self._trouble = self._last_error = trouble
        self._failures += 1
        self._waiting[commit.group] = None
        self._retry_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return f"offsets are not committed, and will be later: {trouble}" if was_well else None

    # --- what others ask

    def group_of(self, query: Query) -> str:
        """Whether there is one already or not."""
        return self._options.group_id.replace(QUERY, query.label)

    def unsettled(self, queries: Iterable[Query] | None = None) -> Iterator[str]:
        """What has yet to come of these, or of all: their end, and commits."""
        asked = None if queries is None else list(queries)
        for run_id, query in self._running.items():
            if asked is None or any(one.run_id == run_id for one in asked):
                yield f"query {query.label} has not ended"
        for name in self._waiting if self._under_way is None else {**self._waiting, self._under_way: None}:
            if asked is None or any(self.group_of(one) == name for one in asked):
                yield f"group {name} is not told{'' if self._trouble is None else f' ({self._trouble})'}"

    def refusals(self, queries: Iterable[Query] | None = None) -> dict[str, str]:
        """Of the groups of these, or of all, whose last commit was refused: why."""
        names = self._groups if queries is None else {self.group_of(one) for one in queries}
        return {
            name: group.refusal for name, group in self._groups.items() if name in names and group.refusal is not None
        }

    def metrics(self) -> Metrics:
        """As of now."""
        committed = {name: dict(group.committed) for name, group in self._groups.items()}
        return Metrics(self._commits, self._failures, self._last_error, self.refusals(), committed)

    def _run_of(self, query: Query) -> _Run | None:
        """What it has told, if it has, and no other run of the same query since."""
        group = self._groups.get(self.group_of(query))
        run = None if group is None else group.runs.get(query.id)
        return run if run is not None and run.run_id == query.run_id else None

    def _group(self, name: str) -> _Group:
        if name not in self._groups:
            self._make_room()
            self._groups[name] = _Group()
        return self._groups[name]

    def _make_room(self) -> None:
        """The oldest of those whose queries have ended go, committed or not."""
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
