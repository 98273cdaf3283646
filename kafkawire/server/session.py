"""A connection of the server: receives, starts, answers and sends, around the machine of `kafkawire.wire.connection`.

Why it exists: bytes, requests and time meet here. A visit of the hub receives the bytes that have arrived, starts the
requests that may start, and sends the replies that are ready; none of that waits. A request that has to wait (a long
poll, the creation of a topic) is awaited by a task that lives as long as the wait. There is no other task, timer or
cancel scope. The server's reaper checks now and then whether the connection is overdue.

The session does not decode, and leaves all decisions to the machine. No error leaves it: an error on a connection ends
that connection and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from kafkawire.requests.started import RequestStarter, Segment
from kafkawire.server.account import Account
from kafkawire.server.connection_log import log_close, log_end, log_failure
from kafkawire.server.hub import Host, Hub
from kafkawire.server.outgoing import Outgoing
from kafkawire.server.pipeline import Pipeline
from kafkawire.server.poller import READ, WRITE
from kafkawire.server.transport import FileTooShortError, Transport
from kafkawire.wire.connection import (
    CloseReason,
    ConnectionLimits,
    ConnectionMachine,
    HeldFrame,
    ProtocolViolation,
)
from kafkawire.wire.connection_info import ConnectionInfo
from kafkawire.wire.framing import FramingError

LINGER_S: Final = 1.0  # for the peer to read its last replies; a close with unread input could discard them

_DISCARDED: Final = memoryview(bytearray(64 * 1024))  # buffer for bytes that are ignored


class Session:
    """A connection from accept to close. No method raises an Exception."""

    __slots__ = (
        "_account",
        "_host",
        "_hub",
        "_is_broken",
        "_linger_until_s",
        "_machine",
        "_outgoing",
        "_pipeline",
        "_requests_sending",
        "_starter",
        "_transport",
        "_violation",
        "_watched_events",
        "close_reason",
        "idle_bucket",
        "info",
        "is_watched",
    )

    def __init__(
        self,
        transport: Transport,
        info: ConnectionInfo,
        starter: RequestStarter,
        limits: ConnectionLimits,
        hub: Hub,
        host: Host,
    ) -> None:
        self.info = info
        self.close_reason: CloseReason | None = None
        self.idle_bucket = -1
        self.is_watched = False
        self._transport = transport
        self._starter = starter
        self._hub = hub
        self._host = host
        self._machine = ConnectionMachine(limits, hub.now_s)
        self._pipeline = Pipeline(info, host.spawn, partial(hub.note_ready, self))
        self._outgoing = Outgoing(transport, hub.stats)
        self._watched_events = 0
        self._requests_sending = 0  # requests whose replies are being sent
        self._account = Account(hub, self._machine, info)
        self._violation: ProtocolViolation | None = None  # ends the connection behind the replies that leave
        self._is_broken = False  # sending has failed
        self._linger_until_s: float | None = None  # all is sent; later input is ignored

    # Called by the server

    def open(self) -> None:
        """Be visited from now on."""
        self._watch(READ)
        if self._transport.holds_received:
            self._hub.defer(self, READ)

    def visit(self, events: int) -> None:
        """Do all work that is possible now; `end_turn` follows."""
        if self.close_reason is not None:
            return
        try:
            if self._linger_until_s is not None:
                self._discard()
                return
            if events & WRITE and self._outgoing.is_blocked:
                self._send(None)
            is_late = bool(events & READ) and self._receive()
            if not is_late and self._machine.holds_bytes:
                is_late = self._start_requests()  # requests left by an earlier turn or a pause
            if self.info.gives_way and self._machine.holds_bytes:
                self.info.hurry()
            if not self._pipeline.is_quiet or self._machine.is_ending or events & WRITE:
                self._answer_all(is_late=is_late)
        except Exception:
            self._close_failed()

    def answer(self) -> None:
        """Send ready replies, and start requests that have room then; `end_turn` follows."""
        if self.close_reason is not None:
            return
        try:
            self._answer_all()
        except Exception:
            self._close_failed()

    def _answer_all(self, *, is_late: bool = False) -> None:
        """Answer and start in turns, as long as each enables the other."""
        machine = self._machine
        while self._answer():
            if machine.holds_bytes:
                is_late = self._start_requests()
            elif self._pipeline.is_empty:
                break
        if machine.is_ending and not is_late:
            self._end_if_done()

    def resume(self) -> bool:
        """Resume reading if the budget admits it. Return whether it does."""
        if not self._account.is_admitted():
            return False
        self._account.resume()
        self.visit(0)
        self.end_turn()
        return True

    def unmute(self) -> None:
        """Resume reading: the budget is not crowded, or the last reply has left."""
        self._account.resume()
        self._hub.defer(self, READ)

    def evict(self) -> None:
        """Close the connection, because its peer does not read its replies."""
        self.close(CloseReason.SLOW_READER, "others need the room that its replies take")

    def drain(self) -> None:
        """End the connection when its requests in flight are answered. A parked long poll is asked to answer now."""
        self._machine.refuse(CloseReason.SHUTDOWN, self._hub.now_s)
        self.info.end_long_poll()
        self.visit(0)
        self.end_turn()

    def check(self, now_s: float) -> None:
        """Check deadlines; called by the reaper."""
        if self._linger_until_s is not None:
            if now_s > self._linger_until_s:
                self.close(self._end_reason)
            return
        reason = self._machine.overdue(now_s, self._transport.sent_size_bytes)
        if reason is not None:
            self.close(reason)
        elif self._pipeline.is_late(now_s):
            self._hub.note_ready(self)

    @property
    def has_ended(self) -> bool:
        return self.close_reason is not None

    @property
    def is_idle(self) -> bool:
        return self._pipeline.is_empty and not (
            self._outgoing.is_blocked or self._machine.is_ending or self._machine.holds_bytes
        )

    @property
    def idle_until_s(self) -> float:
        return self._machine.idle_until_s

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """End the connection now, and give up unanswered requests. The first reason stays."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        log_end(self.info, reason, detail)
        self._transport.close()
        self._pipeline.clear()
        self._outgoing.drop()
        self._account.close()
        self._hub.hold_replies(self, 0)
        self._hub.forget(self)
        self._hub.stats.closed[reason] += 1
        self._host.note_ended(self)

    # Receiving

    def _receive(self) -> bool:
        """Receive bytes and start their requests. Return whether some may be left for another turn."""
        received = 0
        is_late = False
        room = self._hub.receive_max_size_bytes
        while self._may_receive():
            try:
                with self._machine.buffer() as view:
                    wanted = len(view)
                    size_bytes = self._transport.receive(view)
            except FramingError as error:
                self._refuse(error)
                break
            except OSError:
                size_bytes = 0
                self._is_broken = True
            if not size_bytes:
                if size_bytes == 0:
                    self._note_peer_left()
                break
            self._hub.stats.received_size_bytes += size_bytes
            self._machine.received(size_bytes, self._hub.now_s)
            is_late = self._start_requests()
            received += size_bytes
            if size_bytes < wanted or received >= room:
                break  # if there is more, the poller reports it again
        return is_late

    def _may_receive(self) -> bool:
        return self._machine.may_read and self._account.may_receive(self)

    def _note_peer_left(self) -> None:
        """Handle the end of the peer's stream. Its requests still count, as in Kafka."""
        self._machine.peer_left(self._hub.now_s)
        self.info.end_long_poll()
        if self._is_broken:
            self._pipeline.abandon()
            if self._outgoing.is_blocked:
                self._outgoing.drop()
                self._note_replies_sent()

    def _discard(self) -> None:
        """Receive and ignore bytes after the last request: if they stayed unread, the system would drop replies."""
        size_bytes: int | None = 0
        with suppress(OSError):
            size_bytes = self._transport.receive(_DISCARDED)
        if size_bytes == 0:
            self.close(self._end_reason)

    # Starting and answering

    def _start_requests(self) -> bool:
        """Start every request that may start, in order. Return whether some may be left for another turn."""
        hub, machine = self._hub, self._machine
        try:
            while hub.starts_left > 0:
                frame = machine.next_request(hub.now_s)
                if frame is None:
                    return False
                size_bytes = len(frame)
                hub.starts_left -= 1
                started = self._starter.dispatch(frame, self.info, hub.now_s)
                held = machine.started(size_bytes if started.holds_frame else 0, two_stage=started.two_stage)
                if held.size_bytes:
                    started.call_when_released(partial(self._release_frame, held))
                self._pipeline.add(started)
                hub.stats.requests += 1
        except (FramingError, ProtocolViolation) as error:
            self._refuse(error)
        if not (machine.holds_bytes and machine.may_start):
            return False
        hub.defer(self)
        return True

    def _release_frame(self, held: HeldFrame) -> None:
        """Count the frame of a request no longer, so that others may receive as much."""
        if self.close_reason is None:
            self._account.release(held)
            self._hub.note_room()

    def _answer(self) -> bool:
        """Send the ready replies together. Return whether a request may start that could not before."""
        if self._outgoing.is_blocked:
            return False
        answers = self._pipeline.answers(self._hub.now_s)
        if answers is None:
            return False
        self._requests_sending = answers.requests
        self._violation = answers.violation or self.info.violation
        self._hub.replies_left -= answers.replies
        self._hub.stats.replies += answers.replies
        if answers.segments and not self._is_broken:
            self._send(answers.segments)
        else:
            self._note_replies_sent()
        return not self._outgoing.is_blocked

    # Sending

    def _send(self, segments: Sequence[Segment] | None) -> None:
        """Send the segments, or the unsent rest, as far as the peer has room."""
        hub, outgoing = self._hub, self._outgoing
        was_blocked = outgoing.is_blocked
        try:
            if segments is None:
                outgoing.send_rest(hub.now_s)
            else:
                outgoing.send(segments, hub.now_s)
        except FileTooShortError as error:
            self.close(CloseReason.FILE_TOO_SHORT, str(error))
            return
        except OSError:
            outgoing.drop()
            self._is_broken = True
            self._machine.peer_left(hub.now_s)
            self._pipeline.abandon()
        if outgoing.is_blocked and not was_blocked:
            self._machine.sending(hub.now_s, self._transport.sent_size_bytes)
        if (outgoing.is_blocked or was_blocked) and not self.info.is_peer:
            hub.hold_replies(self, outgoing.held_size_bytes)
        if not outgoing.is_blocked:
            self._note_replies_sent()

    def _note_replies_sent(self) -> None:
        """Note that all replies on their way have left: as many requests have room."""
        self._machine.finished(self._hub.now_s, self._requests_sending)
        self._requests_sending = 0
        if self._account.is_muted and not self._machine.awaits_acks:
            self._hub.unmute(self)
        if self._violation is not None:
            self._refuse(self._violation)
            self._violation = None
            self._pipeline.clear()

    # The end

    @property
    def _end_reason(self) -> CloseReason:
        if self._machine.refusal is not None:
            return self._machine.refusal
        return CloseReason.BROKEN if self._is_broken else CloseReason.CLOSED_BY_PEER

    def _end_if_done(self) -> None:
        """End the connection if all counted requests are answered.

        A close with unread input would make the system discard replies that the peer has not read. So the stream is
        finished first, and the input is discarded for a while.
        """
        if self.has_ended or not self._pipeline.is_empty or self._outgoing.is_blocked:
            return
        if not self._hub.may_end():
            self._hub.defer(self)
        elif self._machine.has_left or self._hub.now_s >= self._outgoing.last_sent_s + LINGER_S:
            self.close(self._end_reason)
        else:
            self._linger_until_s = self._hub.now_s + LINGER_S
            try:
                self._transport.finish()
            except OSError:
                self.close(self._end_reason)

    def _refuse(self, error: FramingError | ProtocolViolation) -> None:
        """Refuse input that breaks the protocol. Earlier requests are answered, then the connection closes."""
        reason = CloseReason.FRAME_SIZE if isinstance(error, FramingError) else CloseReason.PROTOCOL_VIOLATION
        log_close(self.info, reason, str(error))
        self._machine.refuse(reason, self._hub.now_s)

    def _close_failed(self) -> None:
        log_failure(self.info)
        self.close(CloseReason.HANDLER_FAILED)

    # Accounts

    def end_turn(self) -> None:
        """Report held memory to the budget, wanted events to the poller, and work under way to the server."""
        if self.close_reason is None:
            try:
                self._end_turn()
            except Exception:
                self._close_failed()

    def _end_turn(self) -> None:
        self._account.recount()
        if self._linger_until_s is not None:
            events = READ
        else:
            events = READ if self._machine.may_read and not self._account.is_held_back else 0
            if self._outgoing.is_blocked:
                events |= WRITE
        if events != self._watched_events:
            self._watch(events)
        if events & READ and self._transport.holds_received:
            self._hub.defer(self, READ)
        if not (self.is_watched or self.is_idle):
            self._host.note_busy(self)

    def _watch(self, events: int) -> None:
        self._transport.watch(self._hub.poller, self, events)
        self._watched_events = events
