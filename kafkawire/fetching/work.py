"""The work of one fetch: its reads, its waits and its session.

A fetch that can be answered at once is, without a task of its own. This module knows neither the bytes of requests nor
of replies: the caller passes the decoded request, and gets the partitions to return.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, cast

import trio

from engine.api import Isolation
from kafkawire.fetching.link_session import LINK_SESSION_ID, LinkSession, PeerFetch
from kafkawire.fetching.reader import FetchReader
from kafkawire.fetching.replica_reader import ReplicaReader
from kafkawire.fetching.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    FetchTarget,
    TargetKey,
    TargetWatch,
)
from kafkawire.requests.errors import ErrorCode

if TYPE_CHECKING:
    from engine.api import ReadResult
    from engine.replica_log import ReplicaLog
    from kafkawire.messages.fetch import ReplicaState
    from kafkawire.requests.context import RequestContext

TARGETS_PER_TURN: Final = 500

Item = TypeVar("Item")


class FetchParameters(Protocol):
    """The fields of a request beside its partitions; a FetchRequest has them."""

    @property
    def max_wait_ms(self) -> int: ...
    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def isolation_level(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def session_epoch(self) -> int: ...


TargetOutcome = tuple[FetchTarget, "ReadResult | ErrorCode"]


class FetchResults(NamedTuple):
    """The session id, and the partitions that the client gets, in this order."""

    session_id: int
    outcomes: list[TargetOutcome]


def begin_fetch(
    context: RequestContext,
    request: FetchParameters,
    targets: list[FetchTarget],
    forgotten: Iterable[TargetKey],
    *,
    by_id: bool,
) -> FetchResults | Awaitable[FetchResults] | ErrorCode:
    """The partitions to return, if they are known at once, else an awaitable of them; or the error of the whole
    request. `targets`: each partition at most once."""
    session = _resume(context, request, targets, forgotten, by_id=by_id)
    if isinstance(session, ErrorCode):
        return session
    isolation = Isolation.READ_COMMITTED if request.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    reader = FetchReader(context, isolation, **_sizes(context, request))
    return _FetchWork(context, request, targets, session, reader, by_id=by_id).run()


def begin_replica_fetch(
    context: RequestContext,
    request: FetchParameters,
    targets: list[FetchTarget],
    forgotten: Iterable[TargetKey],
    replica: ReplicaState,
    link: PeerFetch,
) -> FetchResults | Awaitable[FetchResults] | ErrorCode:
    """The same for another broker, with the session of its connection. Without one it names all its partitions each
    time."""
    session = _resume_link(context, request, targets, forgotten, replica, link.session)
    if isinstance(session, ErrorCode):
        return session
    session_fetch = None if session is None else link.session.session_fetch
    reader = ReplicaReader(context, replica, link, session_fetch, **_sizes(context, request))
    return _FetchWork(context, request, targets, session, reader, by_id=True).run()


def _resume_link(
    context: RequestContext,
    request: FetchParameters,
    targets: list[FetchTarget],
    forgotten: Iterable[TargetKey],
    replica: ReplicaState,
    link: LinkSession,
) -> FetchSession | ErrorCode | None:
    if request.session_id != LINK_SESSION_ID:
        return None
    if request.session_epoch == INITIAL_EPOCH:
        return link.begin(targets, TargetWatch(context.broker.store.new_waiter()))
    session = link.resume(request.session_epoch)
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    gone = [*forgotten]
    for target in filter(None, map(session.targets.get, gone)):
        if target.log is not None:
            cast("ReplicaLog", target.log).followers.stopped_fetching(replica.replica_id, link.session_fetch)
    session.update(targets, gone)
    return session


def _sizes(context: RequestContext, request: FetchParameters) -> dict[str, int]:
    max_size_bytes = max(0, min(request.max_bytes, context.broker.config.max_fetch_size_bytes))
    return {"min_size_bytes": min(request.min_bytes, max_size_bytes), "max_size_bytes": max_size_bytes}


def _resume(
    context: RequestContext,
    request: FetchParameters,
    targets: list[FetchTarget],
    forgotten: Iterable[TargetKey],
    *,
    by_id: bool,
) -> FetchSession | ErrorCode | None:
    """Resume and update the session of an incremental fetch, or return its error; None if the fetch is a full one."""
    sessions = context.broker.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.remove(request.session_id)
        return None
    resumed = sessions.resume(request.session_id, request.session_epoch, by_id=by_id)
    if isinstance(resumed, ErrorCode):
        return resumed
    if not sessions.may_grow(resumed, targets):
        sessions.remove(request.session_id)  # the client starts over, if need be without a session
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    resumed.update(targets, forgotten)
    if resumed.targets:
        return resumed
    sessions.remove(request.session_id)
    return None


class _FetchWork:
    """The work of one request, after its session, if it has one, was resumed."""

    __slots__ = ("_by_id", "_context", "_reader", "_request", "_session", "_targets", "_unread", "_watch")

    def __init__(
        self,
        context: RequestContext,
        request: FetchParameters,
        targets: list[FetchTarget],
        session: FetchSession | None,
        reader: FetchReader,
        *,
        by_id: bool,
    ) -> None:
        self._context = context
        self._request = request
        self._by_id = by_id
        self._session = session
        self._targets = targets
        self._unread = targets if session is None else list(session.pending)
        self._watch = session.watch if session is not None else None
        self._reader = reader

    def run(self) -> FetchResults | Awaitable[FetchResults]:
        """The partitions to return, if they are known at once, else an awaitable of them. Call it once."""
        if self._session is not None:
            self._session.acquire()
        is_over = True
        try:
            if len(self._unread) <= TARGETS_PER_TURN:
                self._read_targets(self._unread)
                self._reader.note_all_read()
                if not self._reader.unloaded and self._is_answered():
                    self._reader.fill()
                    return self._results(self._news(self._reader.outcomes.items()))
                self._unread = []
            self._watch_targets()  # before other tasks run, so that no change is missed
            is_over = False
            return self._go_on()
        finally:
            if is_over:
                self._end()

    async def _go_on(self) -> FetchResults:
        reader = self._reader
        try:
            for number, turn in enumerate(_turns(self._unread)):
                if number:
                    await trio.lowlevel.checkpoint()
                if not self._read_targets(turn):
                    break
            if self._unread:
                reader.note_all_read()
            if reader.unloaded or not self._is_answered():
                await reader.load()
                if not self._is_answered():
                    await reader.wait(self._watch_targets(), self._request.max_wait_ms)
            reader.fill()
            news = []
            for number, part in enumerate(_turns(reader.outcomes.items())):
                if number:
                    await trio.lowlevel.checkpoint()
                news += self._news(part)
            return self._results(news)
        finally:
            self._end()

    def _end(self) -> None:
        self._reader.close()
        if self._session is not None:
            self._session.release()
        elif self._watch is not None:
            self._watch.close()  # no session took it over

    def _read_targets(self, targets: Iterable[FetchTarget]) -> bool:
        """Read the targets. Return whether there is room for more."""
        session, reader, watch = self._session, self._reader, self._watch
        for target in targets:
            if session is not None and reader.full and not reader.reads_all_targets:
                return False  # the rest keeps its place in the queue
            reader.read_target(target)
            if watch is not None:
                watch.follow(target)
        return True

    def _is_answered(self) -> bool:
        reader = self._reader
        if not self._has_logs():
            return True
        return (reader.enough or self._request.max_wait_ms <= 0) and not reader.awaits_tier

    def _has_logs(self) -> bool:
        if self._session is not None:
            return bool(self._session.watch)
        return any(target.log is not None for target in self._targets)

    def _watch_targets(self) -> TargetWatch:
        if self._watch is None:
            self._watch = TargetWatch(self._context.broker.store.new_waiter())
            for target in self._targets:
                self._watch.follow(target)
        return self._watch

    def _news(self, outcomes: Iterable[TargetOutcome]) -> list[TargetOutcome]:
        """All partitions without a session, only those with news in a session."""
        session = self._session
        return list(outcomes) if session is None else [one for one in outcomes if self._requeue(session, *one)]

    def _results(self, news: list[TargetOutcome]) -> FetchResults:
        if self._session is not None:
            return FetchResults(self._session.session_id, news)
        return FetchResults(
            self._open_session() if self._request.session_epoch == INITIAL_EPOCH else NO_SESSION_ID, news
        )

    def _requeue(self, session: FetchSession, target: FetchTarget, outcome: ReadResult | ErrorCode) -> bool:
        """Requeue the target in its session. Return whether the client gets it."""
        if isinstance(outcome, ErrorCode):
            target.note_error_sent()
            session.requeue(target, served=False, has_more=True)
            return True
        served = outcome.size_bytes > 0
        has_diverged = outcome.diverging is not None  # returned each time until it is gone, like an error
        session.requeue(target, served=served, has_more=has_diverged or self._reader.has_more(target, outcome))
        return target.note_sent(outcome.high_watermark, outcome.log_start_offset) or served or has_diverged

    def _open_session(self) -> int:
        sessions = self._context.broker.fetch_sessions
        if not sessions.has_room_for(sum(target.weight for target in self._targets)):
            return NO_SESSION_ID
        watch = self._watch_targets()
        self._watch = None
        session = sessions.create(self._targets, watch, by_id=self._by_id)
        for target in self._targets:
            self._requeue(session, target, self._reader.outcomes[target])
        return session.session_id


def _turns(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in parts of `TARGETS_PER_TURN`, between which other tasks run."""
    rest = iter(items)
    while turn := list(islice(rest, TARGETS_PER_TURN)):
        yield turn
