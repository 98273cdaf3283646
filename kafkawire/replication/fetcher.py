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
    PartitionReply,
    end_of,
    ends_request,
    fetch_request,
    partition_replies,
)
from kafkawire.replication.replica_events import ReplicaEvents, log_before
from kafkawire.replication.truncation import Truncation, by_kind, truncate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coordinator.api import Future
    from engine.api import PendingAppend, TopicIdPartition
    from engine.log_dirs.log_dir import LogDir
    from engine.partitions.partition import Partition
    from engine.replication.exchange import FollowerFetch
    from engine.replication.fetch_state import Action, FetchState
    from engine.store import SegmentStore
    from kafkawire.peers.peers import Peers
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttle
    from kafkawire.wire.message import Message

API_VERSIONS_VERSION: Final = 0


class FetchDeps(NamedTuple):
    """Dependencies of all fetchers of a broker. `me`: this broker's registration; `wait_for_image`: wait for another
    image; `give_up`: write into the metadata that a replica discards its log in that epoch; `note_away`: a leader is
    gone without an answer."""

    links: Peers
    store: SegmentStore
    me: Callable[[], ReplicaState]
    wait_for_image: Callable[[], Awaitable[None]]
    give_up: Callable[[TopicIdPartition, int, int], Awaitable[None]]
    note_away: Callable[[], None]
    limits: FetchLimits
    counters: ReplicationCounters
    throttle: Throttle


class _Followed(NamedTuple):
    """A followed partition. `is_in_sync`: this broker is in its ISR."""

    leader_epoch: int
    is_in_sync: bool


class _Appended(NamedTuple):
    """Records of an answer that were appended. `pending`: None if there were none, or the append failed."""

    log: Partition
    state: FetchState
    action: Append
    reply: PartitionReply
    pending: PendingAppend | None


class Fetcher:
    """A fetcher; the caller runs `run` in a task."""

    def __init__(self, leader: int, purpose: str, log_dir: LogDir, deps: FetchDeps) -> None:
        self._leader = leader
        self._purpose = purpose
        self._log_dir = log_dir
        self._deps = deps
        self._followed: dict[TopicIdPartition, _Followed] = {}
        self._session = FollowerSession()
        self._unsettled: dict[TopicIdPartition, None] = {}  # their fetch positions may have changed
        self._role_changes = log_dir.role_changes
        self._pauses = Pauses(deps.limits.backoff_ms)
        self._events = ReplicaEvents(deps.counters)
        self._has_news = trio.Event()  # a fetch position may have changed, or there is an answer

    def follow(self, partition: TopicIdPartition, leader_epoch: int, *, is_in_sync: bool) -> None:
        """Fetch a partition from the next request on. If the partition is followed already, the epoch may be another
        one."""
        self._followed[partition] = _Followed(leader_epoch, is_in_sync)
        self._unsettled[partition] = None
        self._has_news.set()

    def leave(self, partition: TopicIdPartition) -> None:
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
                if self._session.positions:
                    await self._fetch(nursery)
                else:
                    with trio.move_on_after(self._deps.limits.backoff_ms / 1000):
                        await self._has_news.wait()

    def _settle(self) -> None:
        """Update the fetch positions of the partitions that may have changed. A partition that cannot be fetched yet is
        looked at again."""
        if self._role_changes != self._log_dir.role_changes:
            self._role_changes = self._log_dir.role_changes
            self._unsettled |= dict.fromkeys(self._session.positions)
        unsettled, self._unsettled = self._unsettled, {}
        for one in unsettled:
            log, position = self._log_of(one), self._session.positions.get(one)
            fetching = None if log is None else log.fetching
            is_followed = one in self._followed
            if is_followed and fetching is not None and position is not None and fetching.is_waiting_for(position):
                continue
            self._drop_position(one)
            if is_followed and not self._add_position(one, log):
                self._unsettled[one] = None

    def _add_position(self, partition: TopicIdPartition, log: Partition | None) -> bool:
        """Add the fetch position of a partition, and return whether it has one. Its role may change before the image
        tells the new leader."""
        followed = self._followed[partition]
        if log is None or (fetching := log.fetching) is None or fetching.epoch != followed.leader_epoch:
            return False
        if not followed.is_in_sync and self._is_throttled(log):
            return False
        position = fetching.ask(log.log_state)
        if position is not None:
            self._session.add(partition, position)
        return position is not None

    def _drop_position(self, partition: TopicIdPartition) -> None:
        """Drop the fetch position of a partition: the answer to it will not be used."""
        position, log = self._session.drop(partition), self._log_of(partition)
        if position is not None and log is not None and log.fetching is not None:
            log.fetching.lost(position)

    def _is_throttled(self, log: Partition) -> bool:
        """Whether throttling holds the partition back for now (Kafka's RemoteLeaderEndPoint.shouldFollowerThrottle)."""
        return self._deps.throttle.must_wait(log.config.follower_throttled_replicas, log.partition.partition)

    def _log_of(self, partition: TopicIdPartition) -> Partition | None:
        """The replica's log; None if it is offline or gone."""
        try:
            return self._deps.store.replica(partition)
        except EngineError:
            return None

    async def _fetch(self, nursery: trio.Nursery) -> None:
        deps = self._deps
        me = deps.me()
        contents = self._session.request(me)
        try:
            response = await self._send_fetch(fetch_request(me, contents, deps.limits))
        except CoordinatorError:
            deps.note_away()
            response = None
        if not isinstance(response, FetchResponse) or response.error_code:
            await self._restart_session(is_forgotten=contents.epoch != INITIAL_EPOCH and response is not None)
            return
        found = []
        for place, reply in partition_replies(response):
            if (fetched := self._session.take_answered(place)) is not None:
                self._unsettled[fetched[0]] = None
                found.append(self._act_on_reply(*fetched, reply, nursery))
        if not self._session.note_response(response.session_id):
            self._drop_all_positions()
        for together in by_kind(one for one in found if isinstance(one, Truncation)):
            nursery.start_soon(self._truncate, together, nursery)
        await self._finish([one for one in found if isinstance(one, _Appended)], nursery)

    async def _send_fetch(self, request: FetchRequest) -> Message:
        """Send a Fetch and return its answer. If another partition is to be fetched meanwhile, an ApiVersions request
        ends the leader's wait. Raises LinkFailed."""
        links, is_wait_ended = self._deps.links, False
        pending: Future[Message] = links.call(self._leader, request, FETCH_VERSION, purpose=self._purpose)
        pending.call_when_settled(self._note_news)
        while not pending.is_settled:
            await self._has_news.wait()
            self._has_news = trio.Event()
            if not (pending.is_settled or is_wait_ended):
                links.call(self._leader, ApiVersionsRequest(), API_VERSIONS_VERSION, purpose=self._purpose)
                is_wait_ended = True
        return pending.result()

    def _note_news(self) -> None:
        self._has_news.set()

    async def _restart_session(self, *, is_forgotten: bool) -> None:
        """Restart another fetch session: at once if the leader has forgotten the session, for example on another
        connection, else after a pause."""
        self._session.reset()
        self._drop_all_positions()
        if not is_forgotten:
            await trio.sleep(self._deps.limits.backoff_ms / 1000)

    def _drop_all_positions(self) -> None:
        for one in [*self._session.positions]:
            self._drop_position(one)
            self._unsettled[one] = None

    def _act_on_reply(
        self, partition: TopicIdPartition, position: FollowerFetch, reply: PartitionReply, nursery: trio.Nursery
    ) -> _Appended | Truncation | None:
        """Act on the answer for one partition. Records are appended in the same step in which that was allowed
        (RULES K15); truncations are returned, and other actions go on in tasks of their own."""
        log = self._log_of(partition)
        if log is None or (state := log.fetching) is None:
            return None
        action = state.answered(position, reply.answer, log.log_state)
        if isinstance(action, Append):
            try:
                return _Appended(log, state, action, reply, self._replicated(log, reply))
            except EngineError as error:
                nursery.start_soon(self._refused, _Appended(log, state, action, reply, None), error)
        elif isinstance(action, Truncate):
            return Truncation(log, state, action)
        elif action is not None:
            nursery.start_soon(self._carry_out, log, state, action)
        return None

    def _replicated(self, log: Partition, reply: PartitionReply) -> PendingAppend | None:
        records = reply.records
        self._count(log, len(records))
        if not records:
            return None
        return log.replicate(records, begins_segment=reply.begins_segment, compacted=reply.answer.compacted)

    def _count(self, log: Partition, size_bytes: int) -> None:
        self._deps.counters.bytes_in += size_bytes
        self._deps.throttle.count_copied(log.config.follower_throttled_replicas, log.partition.partition, size_bytes)

    async def _finish(self, taken: Sequence[_Appended], nursery: trio.Nursery) -> None:
        """Wait until the records are durable, adopt the leader's high watermark and log start, and allow the next fetch
        positions."""
        durable = [each for each in taken if await self._is_durable(each, nursery)]
        try:
            await self._adopt_leader_state(durable)
        except EngineError as error:
            for each in durable:
                nursery.start_soon(self._refused, each, error)
        else:
            for each in durable:
                each.state.done()

    async def _is_durable(self, taken: _Appended, nursery: trio.Nursery) -> bool:
        """Whether the records are durable. If not, a task handles the failure."""
        try:
            if taken.pending is not None:
                await taken.pending.wait()
        except OffsetOutOfRange:
            nursery.start_soon(self._append_discontinuous, taken)
        except EngineError as error:
            nursery.start_soon(self._refused, taken, error)
        else:
            return True
        return False

    async def _adopt_leader_state(self, taken: Sequence[_Appended]) -> None:
        """Adopt the leader's high watermarks and log starts, all at once because retention moves many log starts
        together. Raises StorageError."""
        followed = [(one.log, one.action) for one in taken if one.log.fetching is one.state]
        for log, action in followed:
            log.note_leader(action.high_watermark)
        moves = [log.leaders_log_start(action.log_start_offset) for log, action in followed]
        await move_log_starts(self._log_dir, [one for one in moves if one is not None])

    async def _append_discontinuous(self, taken: _Appended) -> None:
        """Append records that do not continue the log, after making way for them."""
        log, state = taken.log, taken.state
        try:
            if log.fetching is state:
                await self._prepare_log(log, state, taken.reply)
            if log.fetching is state and (pending := self._replicated(log, taken.reply)) is not None:
                await pending.wait()
            await self._adopt_leader_state([taken])
        except EngineError as error:
            await self._refused(taken, error)
        else:
            state.done()
            self._has_news.set()

    async def _prepare_log(self, log: Partition, state: FetchState, reply: PartitionReply) -> None:
        """Let the log begin within a batch, as the leader's may, if it is empty (Kafka's ReplicaFetcherThread:
        UnexpectedAppendOffsetException). Or expect compacted records (RULES K19)."""
        first_offset, store = parse_header(reply.records, 0).base_offset, self._deps.store
        if first_offset < log.log_end_offset:
            await store.reset_partition(log.partition, first_offset, expects_unused=True, follows_in=state.epoch)
        if log.fetching is state:
            await log.expect_compacted(reply.records, reply.answer.compacted)

    async def _refused(self, taken: _Appended, error: EngineError) -> None:
        """Note that this broker could not append the records, and fetch them again after a pause. If its disk is full,
        the leader's log start is adopted, which makes room."""
        if taken.log.fetching is taken.state:
            self._events.refused(taken.log.partition, error)
            if isinstance(error, StorageError):
                with suppress(EngineError):
                    await self._adopt_leader_state([taken])
        await self._pause(taken.state)

    async def _pause(self, state: FetchState) -> None:
        await trio.sleep(self._deps.limits.backoff_ms / 1000)
        state.done()
        self._has_news.set()

    async def _pause_after(self, log: Partition, state: FetchState, error: Exception) -> None:
        self._events.paused(log.partition, error)
        await self._pause(state)

    async def _truncate(self, wanted: Sequence[Truncation], nursery: trio.Nursery) -> None:
        for one, error in zip(wanted, await truncate(self._deps.store, wanted, self._events), strict=True):
            if error is None:
                one.state.done()
            else:
                nursery.start_soon(self._pause_after, one.log, one.state, error)
        self._has_news.set()

    async def _carry_out(self, log: Partition, state: FetchState, action: Action) -> None:
        try:
            await self._perform(log, state, action)
        except (EngineError, CoordinatorError) as error:
            await self._pause_after(log, state, error)
            return
        if not isinstance(action, Fail):
            state.done()
            self._has_news.set()

    async def _perform(self, log: Partition, state: FetchState, action: Action) -> None:
        """Carry out an action. Raises EngineError, CoordinatorError."""
        store, partition = self._deps.store, log.partition
        if isinstance(action, Truncate):
            [error] = await truncate(store, [Truncation(log, state, action)], self._events)
            if error is not None:
                raise error
        elif isinstance(action, Restart):
            # A log that ends before the leader's log start has no record that an election could count on.
            if action.offset <= log.log_end_offset or not log.is_sound:
                await self._deps.give_up(partition, state.epoch, action.offset)
            before = log_before(log)
            await store.reset_partition(partition, action.offset, follows_in=state.epoch)
            self._events.restarted(before, state.epoch, action.offset)
        elif isinstance(action, AskEnds):
            ends = [await self._end(partition, state, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
            if log.fetching is state:
                await self._perform(log, state, state.ends_received(ends[0], ends[1], log.log_state))
        elif isinstance(action, Backoff):
            await self._back_off(partition, state.epoch, action)
        elif isinstance(action, Fail):
            self._events.failed(partition, action.reason)
            log.put_offline(partial(LogsContradict, action.reason))

    async def _back_off(self, partition: TopicIdPartition, epoch: int, action: Backoff) -> None:
        if action.awaits_news:
            await self._deps.wait_for_image()
        else:
            await trio.sleep(self._pauses.next_ms(partition, epoch) / 1000)

    async def _end(self, partition: TopicIdPartition, state: FetchState, spec: OffsetSpec) -> int:
        request = ends_request(self._deps.me().replica_id, partition, state.epoch, spec)
        response = await self._call(request, LIST_OFFSETS_VERSION)
        assert isinstance(response, ListOffsetsResponse)
        return end_of(response)

    async def _call(self, request: Message, version: int) -> Message:
        """Send a request to the leader. Raises LinkFailed."""
        pending: Future[Message] = self._deps.links.call(self._leader, request, version, purpose=self._purpose)
        if not pending.is_settled:
            settled = trio.Event()
            pending.call_when_settled(settled.set)
            await settled.wait()
        return pending.result()
