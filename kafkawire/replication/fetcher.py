"""The fetcher of one leader and one log dir (RULES K21): it fetches the followed partitions and acts on the answers.

Each request is for all partitions, and the records of the answer are durable before the next request (RULES K16).
Longer work, such as a truncation or a pause, goes on in tasks of its own and delays no other partition. The cost of a
request depends only on the partitions that have changed, here or on the leader.
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
from engine.replication.fetch_state import Append, AskEnds, Backoff, Fail, Restart, Truncate
from kafkawire.fetching.sessions import INITIAL_EPOCH
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from kafkawire.messages.list_offsets import ListOffsetsResponse
from kafkawire.replication.fetch_session import FollowerSession
from kafkawire.replication.pauses import Pauses
from kafkawire.replication.questions import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    FetchLimits,
    LeaderReplies,
    end_of,
    ends_request,
    fetch_request,
    told,
)
from kafkawire.replication.replica_events import ReplicaEvents, held
from kafkawire.replication.truncation import Truncation, by_kind, truncate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coordinator.api import Pending
    from engine.api import PendingAppend, TopicPartition
    from engine.log_dirs.log_dir import LogDir
    from engine.partitions.partition import Partition
    from engine.replication.exchange import FollowerFetch
    from engine.replication.fetch_state import Action, FetchState
    from engine.store import SegmentStore
    from kafkawire.peers.peers import Peers
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttle
    from kafkawire.wire.message import Message

ASK_ON_VERSION: Final = 0


class FetchDeps(NamedTuple):
    """Dependencies of all fetchers of a broker. `me`: this broker's registration; `until_news`: wait for another image;
    `give_up`: write into the metadata that a replica discards its log in that epoch; `note_away`: a leader is gone
    without an answer."""

    links: Peers
    store: SegmentStore
    me: Callable[[], ReplicaState]
    until_news: Callable[[], Awaitable[None]]
    give_up: Callable[[TopicPartition, int, int], Awaitable[None]]
    note_away: Callable[[], None]
    limits: FetchLimits
    counters: ReplicationCounters
    throttle: Throttle


class _Followed(NamedTuple):
    """A followed partition. `is_in_sync`: this broker is in its ISR."""

    leader_epoch: int
    is_in_sync: bool


class _Taken(NamedTuple):
    """Records of an answer that were appended. `pending`: None if there were none, or the append failed."""

    log: Partition
    state: FetchState
    action: Append
    told: LeaderReplies
    pending: PendingAppend | None


class Fetcher:
    """A fetcher; the caller runs `run` in a task."""

    def __init__(self, leader: int, purpose: str, log_dir: LogDir, world: FetchDeps) -> None:
        self._leader = leader
        self._purpose = purpose
        self._log_dir = log_dir
        self._world = world
        self._followed: dict[TopicPartition, _Followed] = {}
        self._asking = FollowerSession()
        self._unsettled: dict[TopicPartition, None] = {}  # their fetch positions may have changed
        self._role_changes = log_dir.role_changes
        self._pauses = Pauses(world.limits.backoff_ms)
        self._events = ReplicaEvents(world.counters)
        self._has_news = trio.Event()  # a fetch position may have changed, or there is an answer

    def follow(self, partition: TopicPartition, leader_epoch: int, *, is_in_sync: bool) -> None:
        """Fetch a partition from the next request on. If the partition is followed already, the epoch may be another
        one."""
        self._followed[partition] = _Followed(leader_epoch, is_in_sync)
        self._unsettled[partition] = None
        self._has_news.set()

    def leave(self, partition: TopicPartition) -> None:
        """Stop fetching a partition, because it has another leader or none."""
        self._followed.pop(partition, None)
        self._unsettled[partition] = None
        self._pauses.forget(partition)

    async def run(self) -> None:
        """Fetch until cancelled."""
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
        """Update the fetch positions of the partitions that may have changed. A partition that cannot be fetched yet is
        looked at again."""
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
        """Add the fetch position of a partition, and return whether it has one. Its role may change before the image
        tells the new leader."""
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
        """Drop the fetch position of a partition: the answer to it will not be used."""
        question, log = self._asking.drop(partition), self._log_of(partition)
        if question is not None and log is not None and log.fetching is not None:
            log.fetching.lost(question)

    def _is_held(self, log: Partition) -> bool:
        """Whether throttling holds the partition back for now (Kafka's RemoteLeaderEndPoint.shouldFollowerThrottle)."""
        return self._world.throttle.holds(log.config.follower_throttled_replicas, log.partition.partition)

    def _log_of(self, partition: TopicPartition) -> Partition | None:
        """The replica's log; None if it is offline or gone."""
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
        for together in by_kind(one for one in found if isinstance(one, Truncation)):
            nursery.start_soon(self._truncate, together, nursery)
        await self._finish([one for one in found if isinstance(one, _Taken)], nursery)

    async def _answer_to(self, request: FetchRequest) -> Message:
        """Send a Fetch and return its answer. If another partition is to be fetched meanwhile, an ApiVersions request
        ends the leader's wait. Raises LinkFailed."""
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
        """Restart another fetch session: at once if the leader has forgotten the session, for example on another
        connection, else after a pause."""
        self._asking.reset()
        self._lose_all()
        if not is_forgotten:
            await trio.sleep(self._world.limits.backoff_ms / 1000)

    def _lose_all(self) -> None:
        for one in [*self._asking.standing]:
            self._lose(one)
            self._unsettled[one] = None

    def _answered(
        self, partition: TopicPartition, question: FollowerFetch, answer: LeaderReplies, nursery: trio.Nursery
    ) -> _Taken | Truncation | None:
        """Act on the answer for one partition. Records are appended in the same step in which that was allowed
        (RULES K15); truncations are returned, and other actions go on in tasks of their own."""
        log = self._log_of(partition)
        if log is None or (state := log.fetching) is None:
            return None
        action = log.answered(question, answer.answer)
        if isinstance(action, Append):
            try:
                return _Taken(log, state, action, answer, self._replicated(log, answer))
            except EngineError as error:
                nursery.start_soon(self._refused, _Taken(log, state, action, answer, None), error)
        elif isinstance(action, Truncate):
            return Truncation(log, state, action)
        elif action is not None:
            nursery.start_soon(self._carry_out, log, state, action)
        return None

    def _replicated(self, log: Partition, answer: LeaderReplies) -> PendingAppend | None:
        records = answer.records
        self._count(log, len(records))
        if not records:
            return None
        return log.replicate(records, begins_segment=answer.begins_segment, compacted=answer.answer.compacted)

    def _count(self, log: Partition, size_bytes: int) -> None:
        self._world.counters.bytes_in += size_bytes
        self._world.throttle.copied(log.config.follower_throttled_replicas, log.partition.partition, size_bytes)

    async def _finish(self, taken: Sequence[_Taken], nursery: trio.Nursery) -> None:
        """Wait until the records are durable, adopt the leader's high watermark and log start, and allow the next fetch
        positions."""
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
        """Whether the records are durable. If not, a task handles the failure."""
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
        """Adopt the leader's high watermarks and log starts, all at once because retention moves many log starts
        together. Raises StorageError."""
        followed = [(one.log, one.action) for one in taken if one.log.fetching is one.state]
        for log, action in followed:
            log.note_leader(action.high_watermark)
        moves = [log.leaders_log_start(action.log_start_offset) for log, action in followed]
        await move_log_starts(self._log_dir, [one for one in moves if one is not None])

    async def _take_otherwise(self, taken: _Taken) -> None:
        """Append records that do not continue the log, after making way for them."""
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

    async def _make_way(self, log: Partition, state: FetchState, answer: LeaderReplies) -> None:
        """Let the log begin within a batch, as the leader's may, if it is empty (Kafka's ReplicaFetcherThread:
        UnexpectedAppendOffsetException). Or expect compacted records (RULES K19)."""
        first_offset, store = parse_header(answer.records, 0).base_offset, self._world.store
        if first_offset < log.log_end_offset:
            await store.reset_partition(log.partition, first_offset, expects_unused=True, follows_in=state.epoch)
        if log.fetching is state:
            await log.expect_compacted(answer.records, answer.answer.compacted)

    async def _refused(self, taken: _Taken, error: EngineError) -> None:
        """Note that this broker could not append the records, and fetch them again after a pause. If its disk is full,
        the leader's log start is adopted, which makes room."""
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

    async def _truncate(self, wanted: Sequence[Truncation], nursery: trio.Nursery) -> None:
        for one, error in zip(wanted, await truncate(self._world.store, wanted, self._events), strict=True):
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
        """Carry out an action. Raises EngineError, CoordinatorError."""
        store, partition = self._world.store, log.partition
        if isinstance(action, Truncate):
            [error] = await truncate(store, [Truncation(log, state, action)], self._events)
            if error is not None:
                raise error
        elif isinstance(action, Restart):
            # A log that ends before the leader's log start has no record that an election could count on.
            if action.offset <= log.log_end_offset or not log.is_sound:
                await self._world.give_up(partition, state.epoch, action.offset)
            before = held(log)
            await store.reset_partition(partition, action.offset, follows_in=state.epoch)
            self._events.restarted(before, state.epoch, action.offset)
        elif isinstance(action, AskEnds):
            ends = [await self._end(partition, state, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
            if log.fetching is state:
                await self._do(log, state, state.told(ends[0], ends[1], log.log_state))
        elif isinstance(action, Backoff):
            await self._hold(partition, state.epoch, action)
        elif isinstance(action, Fail):
            self._events.failed(partition, action.reason)
            log.put_offline(partial(LogsContradict, action.reason))

    async def _hold(self, partition: TopicPartition, epoch: int, action: Backoff) -> None:
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
        """Send a request to the leader. Raises LinkFailed."""
        pending: Pending[Message] = self._world.links.call(self._leader, request, version, purpose=self._purpose)
        if not pending.is_settled:
            settled = trio.Event()
            pending.call_when_settled(settled.set)
            await settled.wait()
        return pending.result()
