"""Serves one connection: a reader and a writer around the machine of `kafkawire.wire.connection`.

Why it exists: this is where bytes, requests and time meet. The reader receives and starts requests; the writer awaits
their outcomes in order and sends the replies, but for those that a round of the engine made ready: the server's one
task for them sends what can leave at once (`send_ready`). All three may start the next request (`_start_requests` is
synchronous), so the reader can stay in its receive while a long poll is parked and notices at once that the peer is
gone. There is no task, timer or cancel scope per request: the server's one reaper asks every session now and
then whether it is overdue.

It refuses to decode, to decide anything the machine decides, and to let an error out: whatever happens on a connection
ends that connection and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import NamedTuple

import structlog
import trio

from kafkawire.requests.started import Reply, RequestStarter, Segment, StartedRequest
from kafkawire.server.byte_budget import ByteBudget
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import FileTooShortError, Transport
from kafkawire.server.turnstile import Turnstile
from kafkawire.wire.connection import (
    CloseReason,
    ConnectionInfo,
    ConnectionLimits,
    ConnectionMachine,
    ProtocolViolation,
)
from kafkawire.wire.framing import FramingError

REPLIES_PER_TURN = 16  # sent at once, and before other tasks get their turn
RECEIVE_NOW_MAX_BYTES = 1024 * 1024  # before other tasks get their turn
MAX_LOGGED_CHARACTERS = 200

Replies = tuple[list[Reply], ProtocolViolation | None]

_SIZE = Struct(">i")
# What an operator wants a line for when it ends a connection; peers that leave are no news.
_LOGGED = frozenset(
    {CloseReason.HALF_FRAME, CloseReason.SLOW_READER, CloseReason.SLOW_DRAIN, CloseReason.FILE_TOO_SHORT}
)
_log = structlog.get_logger(__name__)


class _Leaving(NamedTuple):
    """The rest of so many replies, and the violation behind them that is to end the connection."""

    segments: Sequence[Segment]
    replies: int
    violation: ProtocolViolation | None


class Session:
    """One connection from accept to close. `run()` never raises an Exception."""

    def __init__(
        self,
        transport: Transport,
        info: ConnectionInfo,
        dispatcher: RequestStarter,
        limits: ConnectionLimits,
        budget: ByteBudget,
        stats: ServerStats,
        on_ready: Callable[[Session], None],
        turnstile: Turnstile,
    ) -> None:
        """`on_ready` is told that something may be answered; `send_ready` is to be called soon, from another task."""
        self.info = info
        self.close_reason: CloseReason | None = None
        self._transport = transport
        self._dispatcher = dispatcher
        self._budget = budget
        self._stats = stats
        self._on_ready = on_ready
        self._turnstile = turnstile
        self._machine = ConnectionMachine(limits, trio.current_time())
        self._scope = trio.CancelScope()
        self._pending: deque[StartedRequest] = deque()
        self._reader_parked = trio.lowlevel.ParkingLot()
        self._writer_parked = trio.lowlevel.ParkingLot()
        self._is_more_likely = False  # the last receive filled its buffer
        self._received_in_turn = 0  # bytes, since other tasks had theirs
        self._charged_size = 0  # what the budget counts for this connection
        self._leaving: _Leaving | None = None  # for the writer to go on with
        self._is_impatient = False  # the oldest may be late: its deadline counts from now on
        self._sent_before = 0  # all that was sent before the reply that is leaving now

    async def run(self) -> None:
        """Serves until the peer leaves, something fails, or `close()`."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guard, self._write_replies)
                    await self._guard(self._read_requests)
        except Exception:  # an error that came in one group with a cancellation: only the scope could untangle them
            self._handler_failed()
        finally:
            self._end()

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Ends the connection now: outcomes not yet awaited to their end are cancelled. The first reason stays."""
        if self.close_reason is None:
            self.close_reason = reason
            if reason in _LOGGED:
                self._log_line(reason, detail)
        self._scope.cancel()

    def drain(self) -> None:
        """Ends the connection when what is in flight is answered; a parked long poll is asked to answer now."""
        self._machine.refuse(CloseReason.SHUTDOWN, trio.current_time())
        self.info.is_shutting_down = True
        self.answer_long_poll()
        self._wake_writer()

    def answer_long_poll(self) -> None:
        """A parked long poll is asked to answer with what there is; any other request is left alone."""
        if self.info.answer_early is not None:
            try:
                self.info.answer_early()
            except Exception:
                self._handler_failed()

    def close_if_overdue(self, now_s: float) -> None:
        """Asked by the server's reaper."""
        reason = self._machine.overdue(now_s, self._transport.sent_size_bytes - self._sent_before)
        if reason is not None:
            self.close(reason)
        elif self._pending:
            self._is_impatient = True
            self._wake_writer()

    # The reader

    async def _read_requests(self) -> None:
        while True:
            await self._wait_until_may_read()
            with self._machine.buffer() as view:
                self._settle()  # a large frame's memory counts before it is filled
                try:
                    size_bytes = await self._receive(view)
                except OSError as error:
                    self.start_now()
                    self.close(CloseReason.BROKEN, str(error))
                    return
            if size_bytes == 0:
                self.start_now()  # what came before counts, answered or not
                await self._turnstile.wait_to_end()
                self.close(CloseReason.CLOSED_BY_PEER)
                return
            self._stats.received_size_bytes += size_bytes
            self._machine.received(size_bytes, trio.current_time())
            self._turnstile.start(self)

    async def _receive(self, view: memoryview) -> int:
        """Behind bytes that filled their buffer more are usually there: waiting for them would cost a turn, and what
        comes in one turn is written in one round and answered at once."""
        if self._is_more_likely and self._received_in_turn + len(view) <= RECEIVE_NOW_MAX_BYTES:
            received = self._transport.receive_now(view)
            if received is not None:
                self._received_in_turn += received
                self._is_more_likely = received == len(view)
                return received
        received = await self._transport.receive_into(view)
        self._received_in_turn = received
        self._is_more_likely = received == len(view)
        return received

    async def _wait_until_may_read(self) -> None:
        while True:
            if not self._machine.may_read:
                await self._reader_parked.park()
            elif self._budget.is_exhausted and not (self._machine.in_large_frame and self._budget.may_finish(self)):
                self._machine.reading_paused()
                await self._budget.wait()
                self._machine.reading_resumed(trio.current_time())
            else:
                return

    def start_now(self) -> int:
        """Starts every request that may start, in order, and returns how many. It never waits."""
        if self.close_reason is not None:
            return 0
        before = self._stats.requests
        self._start_requests(trio.current_time())
        return self._stats.requests - before

    def _start_requests(self, now_s: float) -> None:
        try:
            while (frame := self._machine.next_request(now_s)) is not None:
                size_bytes = len(frame)
                dispatched = self._dispatcher.dispatch(frame, self.info)
                self._machine.started(size_bytes, two_stage=dispatched.two_stage)
                self._pending.append(dispatched)
                self._stats.requests += 1
                if dispatched.is_under_way:
                    dispatched.call_when_ready(self._become_ready)
                else:
                    self._wake_writer()
        except (FramingError, ProtocolViolation) as error:
            self._refuse(error)
        except Exception:
            self._handler_failed()
        self._settle()

    # The writer

    def _wake_writer(self) -> None:
        if self._writer_parked:
            self._writer_parked.unpark_all()

    def _become_ready(self) -> None:
        self._on_ready(self)

    def send_ready(self) -> None:
        """Replies to what is ready, without the writer unless it has begun already, or has to wait."""
        if not self._writer_parked or not self._pending or not self._pending[0].is_ready:
            return
        try:
            replies, violation = self._take_ready([])
            segments = self._framed(replies)
        except Exception:
            self._handler_failed()
            return
        try:
            rest = self._transport.send_now(segments)
        except OSError as error:
            self.close(CloseReason.BROKEN, str(error))
            return
        self._count_sent()
        if rest or violation is not None:
            self._leaving = _Leaving(rest, len(replies), violation)
        else:
            self._have_left(len(replies))
        if self._leaving is not None or self._machine.refusal is not None or not self._has_nothing_to_answer():
            self._wake_writer()

    async def _write_replies(self) -> None:
        since_yield = 0
        while True:
            while self._leaving is None and self._has_nothing_to_answer():
                if not self._pending and self._machine.refusal is not None:
                    self.close(self._machine.refusal)
                    return
                await self._writer_parked.park()
            leaving, self._leaving = self._leaving, None
            if leaving is None:
                self._is_impatient = False
                replies, violation = await self._take_replies()
                leaving = _Leaving(self._framed(replies), len(replies), violation)
            if leaving.segments and not await self._send(leaving.segments):
                return
            if leaving.violation is not None:
                self._refuse(leaving.violation)
                self.close(CloseReason.PROTOCOL_VIOLATION)
                return
            self._have_left(leaving.replies)
            since_yield += leaving.replies
            if since_yield >= REPLIES_PER_TURN:
                since_yield = 0
                await trio.lowlevel.checkpoint()

    def _has_nothing_to_answer(self) -> bool:
        return not self._pending or (self._pending[0].is_under_way and not self._is_impatient)

    async def _take_replies(self) -> Replies:
        """The next reply, and with it those behind it that are ready."""
        try:
            first = await self._pending[0].outcome()
        except ProtocolViolation as error:
            return [], error
        self._pending.popleft()
        return self._take_ready([first])

    def _take_ready(self, replies: list[Reply]) -> Replies:
        """Those behind `replies` that are ready: one system call sends them all.

        A request may turn out, as with acks=0 and an error, to break the protocol: replies before it still leave.
        """
        while len(replies) < REPLIES_PER_TURN and self._pending and self._pending[0].is_ready:
            try:
                replies.append(self._pending[0].outcome_now())
            except ProtocolViolation as error:
                return replies, error
            self._pending.popleft()
        return replies, None

    def _framed(self, replies: Sequence[Reply]) -> list[Segment]:
        """What goes out: each reply behind its size."""
        segments: list[Segment] = []
        for reply in replies:
            if reply is not None:
                segments += (_SIZE.pack(sum(map(len, reply))), *reply)
                self._stats.replies += 1
        return segments

    async def _send(self, segments: Sequence[Segment]) -> bool:
        """True when they have left."""
        self._machine.sending(trio.current_time())
        try:
            await self._transport.send_segments(segments)
        except OSError as error:
            self.close(CloseReason.BROKEN, str(error))
            return False
        except FileTooShortError as error:
            self.close(CloseReason.FILE_TOO_SHORT, str(error))
            return False
        finally:
            self._count_sent()
        return True

    def _count_sent(self) -> None:
        self._stats.sent_size_bytes += self._transport.sent_size_bytes - self._sent_before
        self._sent_before = self._transport.sent_size_bytes

    def _have_left(self, count: int) -> None:
        """So many replies: there is room for as many requests."""
        now_s = trio.current_time()
        for _ in range(count):
            self._machine.finished(now_s)
        if self._machine.holds_bytes:
            self._start_requests(now_s)
        else:
            self._settle()
        if self._reader_parked:
            self._reader_parked.unpark_all()

    # Both

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Nothing but cancellation leaves a task of this connection."""
        try:
            await task()
        except FramingError as error:
            self._refuse(error)
        except Exception:
            self._handler_failed()

    def _refuse(self, error: FramingError | ProtocolViolation) -> None:
        """The peer broke the protocol: what came before is still answered, then the connection closes."""
        reason = CloseReason.FRAME_SIZE if isinstance(error, FramingError) else CloseReason.PROTOCOL_VIOLATION
        self._log_line(reason, str(error))
        self._machine.refuse(reason, trio.current_time())
        self._wake_writer()

    def _handler_failed(self) -> None:
        _log.exception("connection closed: handler failed", **self._identity())
        self.close(CloseReason.HANDLER_FAILED)

    def _settle(self) -> None:
        """Tells the budget when this connection holds more or less than before."""
        held_size = self._machine.held_size_bytes
        if held_size != self._charged_size:
            self._charge(held_size)
        if not self._machine.in_large_frame:
            self._budget.has_finished(self)

    def _charge(self, held_size: int) -> None:
        change, self._charged_size = held_size - self._charged_size, held_size
        self._budget.add(change)
        self._stats.in_flight_size_bytes = self._budget.held_size_bytes

    def _end(self) -> None:
        self._transport.close()
        self._pending.clear()
        self._charge(0)
        self._budget.has_finished(self)
        reason = self.close_reason or CloseReason.SHUTDOWN
        self._stats.closed[reason] += 1

    def _log_line(self, reason: CloseReason, detail: str) -> None:
        _log.info(f"connection closed: {reason.value}", detail=printable(detail), **self._identity())

    def _identity(self) -> dict[str, str]:
        return {"listener": self.info.listener_name, "peer": self.info.peer_host}


def printable(text: str) -> str:
    """Text that may hold bytes of a client, fit for one line of a log."""
    return text[:MAX_LOGGED_CHARACTERS].encode("unicode_escape").decode("ascii")
