"""Fetches from one leader what this broker follows in one log dir (RULES K21), and does what its answers ask for.

All partitions are asked for at once, and what they get is durable before the next request (RULES K16). What takes
longer, as a cut or a pause, goes on beside it, and concerns nobody else. A request costs as much as there are
partitions of which something has changed, here or there: the others go on asking what they asked.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from coordinator.errors import CoordinatorError
from engine.api import OffsetSpec
from engine.batches.batch import parse_header
from engine.errors import EngineError, LogsContradict, OffsetOutOfRange, StorageError
from engine.log_dirs.log_starts import move_log_starts
from engine.replication.fetch_state import AskEnds, Begin, Cut, Fail, Hold, Take
from kafkawire.fetching.sessions import INITIAL_EPOCH
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from kafkawire.messages.list_offsets import ListOffsetsResponse
from kafkawire.replication.asking import Asking
from kafkawire.replication.cutting import Cutting, by_kind, cut
from kafkawire.replication.pauses import Pauses
from kafkawire.replication.questions import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    FetchLimits,
    Told,
    end_of,
    ends_request,
    fetch_request,
    told,
)
from kafkawire.replication.replica_events import ReplicaEvents, held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coordinator.api import Pending
    from engine.api import PendingAppend, TopicPartition
    from engine.log_dirs.log_dir import LogDir
    from engine.partitions.partition import Partition
    from engine.replication.exchange import Asked
    from engine.replication.fetch_state import Action, FetchState
    from engine.store import SegmentStore
    from kafkawire.links.links import Links
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttle
    from kafkawire.wire.message import Message

ASK_ON_VERSION: Final = 0


class FetchWorld(NamedTuple):
    """What is around all fetchers of a broker. `me`: as it is registered now; `until_news`: there is another image;
    `give_up`: what is followed in that epoch begins anew there; `note_away`: a leader has gone without an answer."""

    links: Links
    store: SegmentStore
    me: Callable[[], ReplicaState]
    until_news: Callable[[], Awaitable[None]]
    give_up: Callable[[TopicPartition, int, int], Awaitable[None]]
    note_away: Callable[[], None]
    limits: FetchLimits
    counters: ReplicationCounters
    throttle: Throttle


class _Followed(NamedTuple):
    """`is_in_sync`: this broker is."""

    leader_epoch: int
    is_in_sync: bool


class _Taken(NamedTuple):
    """What was taken of an answer; `pending`: on its way to the disk."""

    log: Partition
    state: FetchState
    action: Take
    told: Told
    pending: PendingAppend | None


class Fetcher:
    """Life: `run` in a task."""

    def __init__(self, leader: int, purpose: str, log_dir: LogDir, world: FetchWorld) -> None:
        self._leader = leader
        self._purpose = purpose
        self._log_dir = log_dir
        self._world = world
        self._followed: dict[TopicPartition, _Followed] = {}
        self._asking = Asking()
        self._unsettled: dict[TopicPartition, None] = {}  # what is to be asked of it may have changed
        self._role_changes = log_dir.role_changes
        self._pauses = Pauses(world.limits.backoff_ms)
        self._events = ReplicaEvents(world.counters)
        self._has_news = trio.Event()  # there may be something else to ask, or an answer

    def follow(self, partition: TopicPartition, leader_epoch: int, *, is_in_sync: bool) -> None:
        """From the next request on. One that is followed already may have another epoch."""
        self._followed[partition] = _Followed(leader_epoch, is_in_sync)
        self._unsettled[partition] = None
        self._has_news.set()

    def leave(self, partition: TopicPartition) -> None:
        """It follows another leader, or nobody."""
        self._followed.pop(partition, None)
        self._unsettled[partition] = None
        self._pauses.forget(partition)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._has_news = trio.Event()
                self._settle()
                if self._asking.standing:
                    await self._fetch(nursery)
                else:
                    with trio.move_on_after(self._world.limits.backoff_ms / 1000):
                        await self._has_news.wait()

    def _settle(self) -> None:
        """What is asked from now on: of each partition what its replica asks for in the role that it has now. Until it
        can ask it is looked at again."""
        if self._role_changes != self._log_dir.role_changes:
            self._role_changes = self._log_dir.role_changes
            self._unsettled |= dict.fromkeys(self._asking.standing)
        unsettled, self._unsettled = self._unsettled, {}
        for one in unsettled:
            log, standing = self._log_of(one), self._asking.standing.get(one)
            fetching = None if log is None else log.fetching
            is_followed = one in self._followed
            if is_followed and fetching is not None and standing is not None and fetching.stands_by(standing):
                continue
            self._lose(one)
            if is_followed and not self._ask(one, log):
                self._unsettled[one] = None

    def _ask(self, partition: TopicPartition, log: Partition | None) -> bool:
        """Whether it could. A role changes before the image is there that tells who leads now."""
        followed = self._followed[partition]
        if log is None or log.fetching is None or log.fetching.epoch != followed.leader_epoch:
            return False
        if not followed.is_in_sync and self._is_held(log):
            return False
        question = log.ask()
        if question is not None:
            self._asking.ask(partition, question)
        return question is not None

    def _lose(self, partition: TopicPartition) -> None:
        """What is asked of it gets no answer."""
        question, log = self._asking.drop(partition), self._log_of(partition)
        if question is not None and log is not None and log.fetching is not None:
            log.fetching.lost(question)

    def _is_held(self, log: Partition) -> bool:
        """Whether nothing is fetched of it for now (RemoteLeaderEndPoint.shouldFollowerThrottle)."""
        return self._world.throttle.holds(log.config.follower_throttled_replicas, log.partition.partition)

    def _log_of(self, partition: TopicPartition) -> Partition | None:
        """None: it is offline, or gone."""
        try:
            return self._world.store.replica(partition)
        except EngineError:
            return None

    async def _fetch(self, nursery: trio.Nursery) -> None:
        world = self._world
        me = world.me()
        made = self._asking.request(me)
        try:
            response = await self._answer_to(fetch_request(me, made, world.limits))
        except CoordinatorError:
            world.note_away()
            response = None
        if not isinstance(response, FetchResponse) or response.error_code:
            await self._begin_anew(is_forgotten=made.epoch != INITIAL_EPOCH and response is not None)
            return
        found = []
        for place, answer in told(response):
            if (asked := self._asking.answered(place)) is not None:
                self._unsettled[asked[0]] = None
                found.append(self._answered(*asked, answer, nursery))
        if not self._asking.responded(response.session_id):
            self._lose_all()
        for together in by_kind(one for one in found if isinstance(one, Cutting)):
            nursery.start_soon(self._cut, together, nursery)
        await self._finish([one for one in found if isinstance(one, _Taken)], nursery)

    async def _answer_to(self, request: FetchRequest) -> Message:
        """What is to be asked next need not wait as long as the leader would: that there is another request, of no
        matter what, ends its wait. Raises LinkFailed."""
        links, asked_on = self._world.links, False
        pending: Pending[Message] = links.call(self._leader, request, FETCH_VERSION, purpose=self._purpose)
        pending.call_when_settled(self._note_news)
        while not pending.is_settled:
            await self._has_news.wait()
            self._has_news = trio.Event()
            if not (pending.is_settled or asked_on):
                links.call(self._leader, ApiVersionsRequest(), ASK_ON_VERSION, purpose=self._purpose)
                asked_on = True
        return pending.result()

    def _note_news(self) -> None:
        self._has_news.set()

    async def _begin_anew(self, *, is_forgotten: bool) -> None:
        """At once if the leader has forgotten what it was asked, as over another link."""
        self._asking.reset()
        self._lose_all()
        if not is_forgotten:
            await trio.sleep(self._world.limits.backoff_ms / 1000)

    def _lose_all(self) -> None:
        for one in [*self._asking.standing]:
            self._lose(one)
            self._unsettled[one] = None

    def _answered(
        self, partition: TopicPartition, question: Asked, answer: Told, nursery: trio.Nursery
    ) -> _Taken | Cutting | None:
        """What was taken, in the step in which it was allowed (RULES K15), or is to be cut; the rest goes on beside."""
        log = self._log_of(partition)
        if log is None or (state := log.fetching) is None:
            return None
        action = log.answered(question, answer.answer)
        if isinstance(action, Take):
            try:
                return _Taken(log, state, action, answer, self._replicated(log, answer))
            except EngineError as error:
                nursery.start_soon(self._refused, _Taken(log, state, action, answer, None), error)
        elif isinstance(action, Cut):
            return Cutting(log, state, action)
        elif action is not None:
            nursery.start_soon(self._carry_out, log, state, action)
        return None

    def _replicated(self, log: Partition, answer: Told) -> PendingAppend | None:
        records = answer.records
        self._count(log, len(records))
        if not records:
            return None
        return log.replicate(records, begins_segment=answer.begins_segment, compacted=answer.answer.compacted)

    def _count(self, log: Partition, size_bytes: int) -> None:
        self._world.counters.bytes_in += size_bytes
        self._world.throttle.copied(log.config.follower_throttled_replicas, log.partition.partition, size_bytes)

    async def _finish(self, taken: Sequence[_Taken], nursery: trio.Nursery) -> None:
        """Once it is durable the leader's word counts, and the next question may be asked."""
        there = [each for each in taken if await self._is_there(each, nursery)]
        try:
            await self._heed(there)
        except EngineError as error:
            for each in there:
                nursery.start_soon(self._refused, each, error)
        else:
            for each in there:
                each.state.done()

    async def _is_there(self, taken: _Taken, nursery: trio.Nursery) -> bool:
        """Whether it is durable; what is not is seen to beside."""
        try:
            if taken.pending is not None:
                await taken.pending.wait()
        except OffsetOutOfRange:
            nursery.start_soon(self._take_otherwise, taken)
        except EngineError as error:
            nursery.start_soon(self._refused, taken, error)
        else:
            return True
        return False

    async def _heed(self, taken: Sequence[_Taken]) -> None:
        """How much of them counts, and where the leader's logs begin by now: all at once, as its retention moves many.
        Raises StorageError."""
        followed = [(one.log, one.action) for one in taken if one.log.fetching is one.state]
        for log, action in followed:
            log.note_leader(action.high_watermark)
        moves = [log.leaders_log_start(action.log_start_offset) for log, action in followed]
        await move_log_starts(self._log_dir, [one for one in moves if one is not None])

    async def _take_otherwise(self, taken: _Taken) -> None:
        """It does not continue the log as it is."""
        log, state = taken.log, taken.state
        try:
            if log.fetching is state:
                await self._make_way(log, state, taken.told)
            if log.fetching is state and (pending := self._replicated(log, taken.told)) is not None:
                await pending.wait()
            await self._heed([taken])
        except EngineError as error:
            await self._refused(taken, error)
        else:
            state.done()
            self._has_news.set()

    async def _make_way(self, log: Partition, state: FetchState, answer: Told) -> None:
        """The leader's log may begin within a batch: so has this one, if it has nothing yet (ReplicaFetcherThread's
        UnexpectedAppendOffsetException), until it takes over the log start. Or it is compacted (RULES K19)."""
        first_offset, store = parse_header(answer.records, 0).base_offset, self._world.store
        if first_offset < log.log_end_offset:
            await store.reset_partition(log.partition, first_offset, expects_unused=True, follows_in=state.epoch)
        if log.fetching is state:
            await log.expect_compacted(answer.records, answer.answer.compacted)

    async def _refused(self, taken: _Taken, error: EngineError) -> None:
        """By this broker: it is asked for again in a while. Where there is no room, there is some when the leader's log
        begins later by now."""
        if taken.log.fetching is taken.state:
            self._events.refused(taken.log.partition, error)
            if isinstance(error, StorageError):
                with suppress(EngineError):
                    await self._heed([taken])
        await self._pause(taken.state)

    async def _pause(self, state: FetchState) -> None:
        await trio.sleep(self._world.limits.backoff_ms / 1000)
        state.done()
        self._has_news.set()

    async def _pause_after(self, log: Partition, state: FetchState, error: Exception) -> None:
        self._events.paused(log.partition, error)
        await self._pause(state)

    async def _cut(self, cuts: Sequence[Cutting], nursery: trio.Nursery) -> None:
        for one, error in zip(cuts, await cut(self._world.store, cuts, self._events), strict=True):
            if error is None:
                one.state.done()
            else:
                nursery.start_soon(self._pause_after, one.log, one.state, error)
        self._has_news.set()

    async def _carry_out(self, log: Partition, state: FetchState, action: Action) -> None:
        try:
            await self._do(log, state, action)
        except (EngineError, CoordinatorError) as error:
            await self._pause_after(log, state, error)
            return
        if not isinstance(action, Fail):
            state.done()
            self._has_news.set()

    async def _do(self, log: Partition, state: FetchState, action: Action) -> None:
        """Raises EngineError, CoordinatorError."""
        store, partition = self._world.store, log.partition
        if isinstance(action, Cut):
            [error] = await cut(store, [Cutting(log, state, action)], self._events)
            if error is not None:
                raise error
        elif isinstance(action, Begin):
            if action.offset <= log.log_end_offset or not log.is_sound:  # else nobody counts on what it has
                await self._world.give_up(partition, state.epoch, action.offset)
            before = held(log)
            await store.reset_partition(partition, action.offset, follows_in=state.epoch)
            self._events.restarted(before, state.epoch, action.offset)
        elif isinstance(action, AskEnds):
            ends = [await self._end(partition, state, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
            if log.fetching is state:
                await self._do(log, state, state.told(ends[0], ends[1], log.log_state))
        elif isinstance(action, Hold):
            await self._hold(partition, state.epoch, action)
        elif isinstance(action, Fail):
            self._events.failed(partition, action.reason)
            log.put_offline(partial(LogsContradict, action.reason))

    async def _hold(self, partition: TopicPartition, epoch: int, action: Hold) -> None:
        if action.awaits_news:
            await self._world.until_news()
        else:
            await trio.sleep(self._pauses.next_ms(partition, epoch) / 1000)

    async def _end(self, partition: TopicPartition, state: FetchState, spec: OffsetSpec) -> int:
        request = ends_request(self._world.me().replica_id, partition, state.epoch, spec)
        response = await self._call(request, LIST_OFFSETS_VERSION)
        assert isinstance(response, ListOffsetsResponse)
        return end_of(response)

    async def _call(self, request: Message, version: int) -> Message:
        """Raises LinkFailed."""
        pending: Pending[Message] = self._world.links.call(self._leader, request, version, purpose=self._purpose)
        if not pending.is_settled:
            settled = trio.Event()
            pending.call_when_settled(settled.set)
            await settled.wait()
        return pending.result()
