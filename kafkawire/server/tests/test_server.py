"""The server on memory streams. The first byte of a request tells the dispatcher what to do."""

from __future__ import annotations

import errno
import math
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
import structlog.testing
import trio
import trio.testing

from engine.api import FileRange
from kafkawire.requests.started import Reply, Segment
from kafkawire.server.account import PEER_MAX_BYTES
from kafkawire.server.byte_budget import ByteBudget
from kafkawire.server.connection_log import printable
from kafkawire.server.hub import ENDS_PER_TURN, STARTS_PER_TURN, Hub
from kafkawire.server.memory_transport import MemoryAccepted, MemoryListener, MemoryStream
from kafkawire.server.poller import READ, WRITE, Poller, Watcher
from kafkawire.server.reaper import INTERVAL_S
from kafkawire.server.server import ServerLimits, serve
from kafkawire.server.session import LINGER_S, Session
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import SocketTransport, Transport
from kafkawire.wire.connection import CloseReason, ConnectionLimits, ProtocolViolation
from kafkawire.wire.connection_info import ConnectionInfo
from kafkawire.wire.framing import CHUNK_SIZE_BYTES, GROWTH


@dataclass
class Gate:
    event: trio.Event = field(default_factory=trio.Event)
    callback: Callable[[], None] | None = None
    released: Callable[[], None] | None = None
    is_abandoned: bool = False

    def release(self) -> None:
        assert self.released is not None
        self.released()

    def set(self) -> None:
        self.event.set()
        if self.callback is not None:
            self.callback()


@dataclass
class Started:
    """See `kafkawire.requests.started.StartedRequest`."""

    two_stage: bool
    handle: Callable[[], Reply]
    gate: Gate
    is_gated: bool
    cancelled: Callable[[], None]
    deadline_s: float = math.inf
    holds_frame: bool = True
    _outcome: Reply | Exception = None
    _is_done: bool = False

    @property
    def is_settled(self) -> bool:
        if self.two_stage:
            return not self.is_gated or self.gate.event.is_set()
        return self._is_done

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self.gate.callback = callback

    def call_when_released(self, callback: Callable[[], None]) -> None:
        self.gate.released = callback

    def abandon(self) -> None:
        self.gate.is_abandoned = True

    def begin(self) -> Coroutine[Any, Any, None] | None:
        if self.is_gated and not self.gate.event.is_set():
            return self._wait()
        self._finish()
        return None

    async def _wait(self) -> None:
        try:
            await self.gate.event.wait()
        except trio.Cancelled:
            self.cancelled()
            raise
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        try:
            self._outcome = self.handle()
        except Exception as error:
            self._outcome = error

    def reply(self) -> Reply:
        if self.two_stage:
            return self.handle()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@dataclass
class FakeDispatcher:
    """`frame[0]` chooses a handler, `frame[1]` names the request; the reply is the frame's first eight bytes."""

    order: list[int] = field(default_factory=list)  # names of requests in the order of their synchronous part
    cancelled: list[int] = field(default_factory=list)
    gates: dict[int, Gate] = field(default_factory=dict)
    infos: list[ConnectionInfo] = field(default_factory=list)
    holds_frame: bool = True

    def gate(self, name: int) -> Gate:
        return self.gates.setdefault(name, Gate())

    def dispatch(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> Started:
        kind, name = chr(frame[0]), frame[1]
        self.order.append(name)
        self.infos.append(connection)
        if kind == "v":
            raise ProtocolViolation("bad\nline\x1b[31m")
        if kind == "c":
            raise ZeroDivisionError("planted")
        if kind in "lg":
            connection.answer_early, connection.gives_way = self.gate(name).set, kind == "g"
        handler = {
            "0": self.no_reply,
            "V": self.late_violation,
            "x": self.late_violation,  # a violation when its gate opens
            "y": self.late_crash,  # a crash when its gate opens
            "C": self.late_crash,
            "f": self.short_file,
        }.get(kind, self.echo)
        return Started(
            kind in "pdxy0VC",  # the others are single-stage
            partial(handler, frame),
            self.gate(name),
            kind in "pdxywlg",  # the others are answered at once
            partial(self.cancelled.append, name),
            now_s + 0.5 if kind == "d" else math.inf,
            self.holds_frame,
        )

    def echo(self, frame: bytearray) -> Reply:
        return [frame[:4], b"", memoryview(frame)[4:8]]

    def no_reply(self, frame: bytearray) -> Reply:
        return None

    def late_violation(self, frame: bytearray) -> Reply:
        raise ProtocolViolation("acks=0 failed")

    def late_crash(self, frame: bytearray) -> Reply:
        raise OSError(errno.ENOENT, "planted, and not the network's fault")

    def short_file(self, frame: bytearray) -> Reply:
        return [frame[:4], FileRange(EmptyFile(), 0, 4)]


class EmptyFile:
    def fileno(self) -> int | None:
        return None

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return b""


@dataclass
class Client:
    stream: MemoryStream

    async def send(self, kind: str, name: int, size: int = 8) -> None:
        payload = (kind.encode() + bytes([name])).ljust(size, b".")
        await self.stream.send_all(struct.pack(">i", len(payload)) + payload)

    async def reply(self) -> tuple[str, int]:
        header = await self.exactly(4)
        payload = await self.exactly(struct.unpack(">i", header)[0])
        return chr(payload[0]), payload[1]

    async def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await self.stream.receive_some(count - len(data))
            assert piece, "closed"
            data += piece
        return data

    async def closed(self) -> bool:
        """Wait for the end of the stream; no bytes may come before it."""
        with trio.fail_after(3600):
            return await self.stream.receive_some() == b""


@dataclass
class Running:
    listener: MemoryListener
    dispatcher: FakeDispatcher
    stats: ServerStats
    stop: trio.Event

    def connect(self, peer_host: str = "127.0.0.1") -> Client:
        return Client(self.listener.connect(peer_host))


@asynccontextmanager
async def serving(limits: ServerLimits | None = None, listener: MemoryListener | None = None) -> AsyncIterator[Running]:
    running = Running(listener or MemoryListener(), FakeDispatcher(), ServerStats(), trio.Event())
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[None]) -> None:
            await serve(
                {"PLAINTEXT": [running.listener]},
                running.dispatcher,
                limits or ServerLimits(),
                stop=running.stop,
                stats=running.stats,
                task_status=task_status,
            )

        await nursery.start(run)
        yield running
        running.stop.set()
    assert running.stats.connections_open == 0
    assert running.stats.in_flight_size_bytes == 0


async def settle() -> None:
    """Let everything happen that can happen now. Only the reaper's timer may wait for time."""
    await trio.testing.wait_all_tasks_blocked()


async def test_replies_keep_the_order_of_requests_that_finish_in_reverse_order() -> None:
    async with serving() as broker:
        client = broker.connect()
        for name in (1, 2, 3):
            await client.send("p", name)
        await client.send("e", 4)
        await settle()
        assert broker.dispatcher.order == [1, 2, 3, 4]  # all were started before the first had finished
        for name in (3, 2, 1):
            broker.dispatcher.gate(name).set()
        assert [await client.reply() for _ in range(4)] == [("p", 1), ("p", 2), ("p", 3), ("e", 4)]
        await client.stream.aclose()


async def test_request_that_never_settles_is_answered_at_its_deadline() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("d", 1)
        await client.send("p", 2)
        broker.dispatcher.gate(2).set()
        with trio.fail_after(0.5 + INTERVAL_S + 0.1):
            assert [await client.reply() for _ in range(2)] == [("d", 1), ("p", 2)]


@dataclass(eq=False)
class FloodTransport:
    """Transport whose bytes have all arrived before the first receive. `room_bytes` is how much it can send at once."""

    rest: bytes
    room_bytes: int = 1 << 20
    visits: int = 0  # visits that received bytes
    sends: list[int] = field(default_factory=list)
    sent: bytearray = field(default_factory=bytearray)
    sent_size_bytes: int = 0
    holds_received: bool = False
    events: int = 0
    is_closed: bool = False
    is_watchable: bool = True

    def watch(self, poller: Poller, watcher: Watcher, events: int) -> None:
        if not self.is_watchable:
            raise OSError(errno.ENOSPC, "planted")
        self.events = events

    def receive(self, buffer: memoryview) -> int | None:
        piece, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece) or None

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        if self.room_bytes < 0:
            raise BrokenPipeError(errno.EPIPE, "planted")
        data = b"".join(cast("Sequence[bytes]", segments))
        taken = data[: self.room_bytes]
        self.sent += taken
        self.sent_size_bytes += len(taken)
        self.sends.append(len(taken))
        return (data[self.room_bytes :],) if len(data) > self.room_bytes else ()

    def finish(self) -> None:
        self.rest = b""

    def close(self) -> None:
        self.is_closed = True


def frames(kinds: str, size_bytes: int = 8) -> bytes:
    """A request of each kind, named 0, 1 ..."""
    payloads = [(kind.encode() + bytes([name])).ljust(size_bytes, b".") for name, kind in enumerate(kinds)]
    return b"".join(struct.pack(">i", size_bytes) + payload for payload in payloads)


@dataclass
class FakeHost:
    """Host that starts no tasks."""

    ended: list[CloseReason | None] = field(default_factory=list)

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        raise AssertionError("nothing waits")

    def note_busy(self, session: Session) -> None:
        """Do nothing: no reaper runs."""

    def note_ended(self, session: Session) -> None:
        self.ended.append(session.close_reason)


@dataclass
class Alone:
    """A session on a transport that is always ready, with its hub."""

    session: Session
    hub: Hub
    transport: FloodTransport

    def turn(self) -> None:
        if self.transport.events:
            self.hub.poller.note(self.session, self.transport.events)
        self.hub.turn()


def session_on(transport: FloodTransport, dispatcher: FakeDispatcher) -> Alone:
    """A session on this transport, visited once."""
    limits = ConnectionLimits(max_in_flight_requests=30)
    info = ConnectionInfo("PLAINTEXT", "127.0.0.1", "127.0.0.1")
    hub = Hub(ByteBudget(1 << 30), ServerStats())
    session = Session(transport, info, dispatcher, limits, hub, FakeHost())
    session.open()
    alone = Alone(session, hub, transport)
    alone.turn()
    return alone


@pytest.mark.parametrize(("count", "turns"), [(5, 1), (20, 4)])
async def test_turn_receives_all_arrived_input_up_to_a_limit(count: int, turns: int) -> None:
    transport, dispatcher = FloodTransport(frames("p" * count, 128 << 10)), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    for _ in range(turns - 1):
        assert len(dispatcher.order) < count
        alone.turn()
    assert len(dispatcher.order) == count


@pytest.mark.parametrize("room_bytes", [1 << 20, 36, 20])
async def test_settled_replies_are_sent_at_once_and_the_rest_when_there_is_room(room_bytes: int) -> None:
    requests = frames("ppppe")
    transport, dispatcher = FloodTransport(requests, room_bytes), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    for name in (0, 1, 2):
        dispatcher.gate(name).set()
    assert transport.sent == b""
    alone.turn()
    assert transport.sends == [min(36, room_bytes)]
    assert bool(transport.events & WRITE) is (room_bytes < 36)
    dispatcher.gate(3).set()
    for _ in range(4):
        alone.turn()
    assert transport.sent == requests
    assert transport.events == READ


async def test_handler_failure_of_a_request_that_starts_after_a_reply_closes_the_connection() -> None:
    transport, dispatcher = FloodTransport(frames("p" * 30 + "c")), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    dispatcher.gate(0).set()
    alone.turn()
    assert dispatcher.order[-1] == 30
    assert alone.session.close_reason is CloseReason.HANDLER_FAILED


@pytest.mark.parametrize("room_bytes", [1 << 20, 5])
async def test_a_violation_ends_the_connection_behind_the_replies_before_it(room_bytes: int) -> None:
    transport, dispatcher = FloodTransport(frames("pxp"), room_bytes), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    dispatcher.gate(1).set()
    dispatcher.gate(0).set()
    for _ in range(4):
        alone.turn()
    assert transport.sent == frames("p")
    await trio.sleep(LINGER_S + 1)
    alone.session.check(trio.current_time())
    assert alone.session.close_reason is CloseReason.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    ("kinds", "room_bytes", "reason"), [("p", -1, CloseReason.BROKEN), ("y", 99, CloseReason.HANDLER_FAILED)]
)
async def test_failed_send_or_handler_closes_the_connection(kinds: str, room_bytes: int, reason: CloseReason) -> None:
    transport, dispatcher = FloodTransport(frames(kinds), room_bytes), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    dispatcher.gate(0).set()
    alone.turn()
    assert alone.session.close_reason is reason
    assert transport.is_closed


async def test_draining_connection_sends_its_last_reply_and_then_closes() -> None:
    transport, dispatcher = FloodTransport(frames("p")), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    alone.session.drain()
    assert not transport.sent
    dispatcher.gate(0).set()
    alone.turn()
    assert transport.sent == frames("p")
    assert alone.session.close_reason is None  # the peer has some time to read
    await trio.sleep(LINGER_S + 1)
    alone.session.check(trio.current_time())
    assert alone.session.close_reason is CloseReason.SHUTDOWN


async def test_requests_beyond_the_limit_of_a_turn_start_in_the_next_turn_in_order() -> None:
    transport, dispatcher = FloodTransport(frames("0" * 250)), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    started = [len(dispatcher.order)]
    while started[-1] < 250:
        alone.hub.turn()
        started.append(len(dispatcher.order))
    assert started == [STARTS_PER_TURN, 250]
    assert dispatcher.order == list(range(250))


@dataclass(eq=False)
class Greedy:
    """A session that uses up the budget of every turn."""

    hub: Hub
    calls: list[str] = field(default_factory=list)

    def visit(self, events: int) -> None:
        self.calls.append("visit")
        self.hub.starts_left = 0

    def answer(self) -> None: ...

    def end_turn(self) -> None:
        self.calls.append("end_turn")


async def test_session_without_a_turn_is_visited_in_the_next_turn() -> None:
    hub = Hub(ByteBudget(1 << 30), ServerStats())
    first, second = Greedy(hub), Greedy(hub)
    for session in (first, second):
        hub.poller.note(session, READ)
    hub.turn()
    assert (first.calls, second.calls) == (["visit", "end_turn"], [])
    hub.poller.note(first, READ)
    hub.turn()
    assert (first.calls, second.calls) == (["visit", "end_turn"],) * 2


async def test_requests_received_before_the_budget_was_used_up_start_in_the_next_turn() -> None:
    """A request is late, and the poller reports input, while other sessions have used up the budget."""
    transport, dispatcher = FloodTransport(frames("0" * 200)), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    assert len(dispatcher.order) == STARTS_PER_TURN
    alone.hub.budget.held_size_bytes += 1 << 30
    alone.turn()
    assert len(dispatcher.order) == 200


async def test_a_poller_that_fails_ends_the_connection_alone() -> None:
    transport, dispatcher = FloodTransport(frames("p"), room_bytes=1), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    transport.is_watchable = False  # and a reply waits for room
    dispatcher.gate(0).set()
    alone.turn()
    assert alone.session.close_reason is CloseReason.HANDLER_FAILED


async def test_replies_that_settle_while_the_peer_does_not_read_are_sent_when_it_reads() -> None:
    transport, dispatcher = FloodTransport(frames("ppp"), room_bytes=5), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    dispatcher.gate(0).set()
    alone.hub.turn()
    assert transport.sent == frames("p")[:5]
    dispatcher.gate(1).set()
    alone.hub.turn()  # the reply cannot be sent now
    dispatcher.gate(2).set()
    alone.hub.turn()
    transport.room_bytes = 1 << 20
    alone.turn()
    assert transport.sent == frames("ppp")


@pytest.mark.sources
async def test_replies_beyond_the_limit_of_a_turn_are_sent_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkawire.server.hub.REPLIES_PER_TURN", 1)
    hub = Hub(ByteBudget(1 << 30), ServerStats())
    pairs = [(FloodTransport(frames("pp")), FakeDispatcher()) for _ in range(3)]
    for transport, dispatcher in pairs:
        info = ConnectionInfo("PLAINTEXT", "127.0.0.1", "127.0.0.1")
        session = Session(transport, info, dispatcher, ConnectionLimits(), hub, FakeHost())
        session.open()
        hub.poller.note(session, READ)
    hub.turn()
    for _, dispatcher in pairs:
        dispatcher.gate(0).set()
    sent = []
    for _ in range(3):
        hub.turn()
        sent.append(sum(bool(transport.sent) for transport, _ in pairs))
    assert sent == [1, 2, 3]


@dataclass
class GateRounds:
    """Commit batches that are written at the end of a turn; then the requests started in it are answered."""

    dispatcher: FakeDispatcher
    held: int = 0

    def hold_commit_batches(self) -> None:
        self.held += 1

    def write_commit_batches(self) -> None:
        for name in self.dispatcher.order:
            if not self.dispatcher.gate(name).event.is_set():
                self.dispatcher.gate(name).set()


async def test_requests_settled_by_the_commit_batch_of_a_turn_are_answered_in_that_turn() -> None:
    transport, dispatcher = FloodTransport(frames("pp")), FakeDispatcher()
    rounds = GateRounds(dispatcher)
    hub = Hub(ByteBudget(1 << 30), ServerStats(), rounds)
    info = ConnectionInfo("PLAINTEXT", "127.0.0.1", "127.0.0.1")
    session = Session(transport, info, dispatcher, ConnectionLimits(), hub, FakeHost())
    session.open()
    hub.poller.note(session, READ)
    hub.turn()
    assert (bytes(transport.sent), rounds.held) == (frames("pp"), 1)
    assert hub.budget.held_size_bytes == 0


async def test_replies_that_are_ready_together_leave_together() -> None:
    transport, dispatcher = FloodTransport(frames("ppppp")), FakeDispatcher()
    alone = session_on(transport, dispatcher)
    for name in (0, 1, 2, 4):
        dispatcher.gate(name).set()
    alone.hub.turn()
    assert transport.sends == [36]
    dispatcher.gate(3).set()
    alone.hub.turn()
    assert transport.sends == [36, 24]
    assert transport.sent == frames("ppppp")


async def test_next_request_starts_only_when_a_single_stage_request_is_answered() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("w", 1)
        await client.send("p", 2)
        await settle()
        assert broker.dispatcher.order == [1]
        broker.dispatcher.gate(1).set()
        await settle()
        assert broker.dispatcher.order == [1, 2]
        broker.dispatcher.gate(2).set()
        assert [await client.reply() for _ in range(2)] == [("w", 1), ("p", 2)]


async def test_the_17th_request_waits_for_a_reply_to_leave() -> None:
    async with serving() as broker:
        client = broker.connect()
        for name in range(20):
            await client.send("p", name)
        await settle()
        assert len(broker.dispatcher.order) == 16
        broker.dispatcher.gate(0).set()
        assert await client.reply() == ("p", 0)
        await settle()
        assert len(broker.dispatcher.order) == 17


async def test_32_mib_in_flight_stop_the_next_request() -> None:
    async with serving() as broker:
        client = broker.connect()
        for name in range(3):
            await client.send("p", name, size=16 * 1024 * 1024)
        await settle()
        assert broker.dispatcher.order == [0, 1]
        for name in range(3):
            broker.dispatcher.gate(name).set()
        assert [await client.reply() for _ in range(3)] == [("p", 0), ("p", 1), ("p", 2)]


async def test_acks_0_gets_no_reply_and_does_not_hold_up_others() -> None:
    async with serving() as broker:
        client = broker.connect()
        for number in range(40):
            await client.send("0", number)
        await client.send("e", 99)
        assert await client.reply() == ("e", 99)
        await client.send("e", 98)
        assert await client.reply() == ("e", 98)
        assert (broker.stats.requests, broker.stats.replies) == (42, 2)
        assert (broker.stats.received_size_bytes, broker.stats.sent_size_bytes) == (42 * 12, 2 * 12)


async def test_connection_info_tells_listener_peer_and_address() -> None:
    async with serving() as broker:
        client = broker.connect("10.1.2.3")
        await client.send("e", 1)
        await client.reply()
        (info,) = broker.dispatcher.infos
        assert (info.listener_name, info.peer_host, info.local_address) == ("PLAINTEXT", "10.1.2.3", "memory")
        assert (info.client_software_name, info.client_software_version) == ("unknown", "unknown")


# Closing: bad input


@pytest.mark.parametrize("size", [-1, 0, 7, 100 * 1024 * 1024 + 1])
async def test_a_hostile_size_closes_without_an_answer(size: int) -> None:
    async with serving() as broker:
        client = broker.connect()
        with structlog.testing.capture_logs() as lines:
            await client.stream.send_all(struct.pack(">i", size))
            assert await client.closed()
        assert broker.stats.closed[CloseReason.FRAME_SIZE] == 1
        assert [line["event"] for line in lines] == ["connection closed: impossible frame size"]


async def test_protocol_violation_closes_the_connection_after_the_replies_to_earlier_requests() -> None:
    async with serving() as broker:
        client = broker.connect()
        with structlog.testing.capture_logs() as lines:
            for kind, name in (("p", 1), ("v", 2), ("e", 3)):
                await client.send(kind, name)
            await settle()
            broker.dispatcher.gate(1).set()
            assert await client.reply() == ("p", 1)
            assert await client.closed()
        await client.stream.aclose()
        await settle()
        assert broker.dispatcher.order == [1, 2]
        assert broker.stats.closed[CloseReason.PROTOCOL_VIOLATION] == 1
        (line,) = lines
        assert line["detail"] == "bad\\nline\\x1b[31m"


async def test_protocol_violation_found_by_a_handler_closes_without_replies_to_later_requests() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.stream.send_all(frames("Vp"))
        assert await client.closed()
        assert broker.stats.closed[CloseReason.PROTOCOL_VIOLATION] == 1


@pytest.mark.parametrize("kind", ["c", "C"])
async def test_failing_handler_closes_only_its_connection_and_logs_a_traceback(kind: str) -> None:
    async with serving() as broker:
        client, other = broker.connect(), broker.connect()
        with structlog.testing.capture_logs() as lines:
            await client.send(kind, 1)
            assert await client.closed()
        (line,) = lines
        assert line["exc_info"]
        assert line["event"] == "connection closed: handler failed"
        assert broker.stats.closed[CloseReason.HANDLER_FAILED] == 1
        await other.send("e", 2)
        assert await other.reply() == ("e", 2)


async def test_a_file_shorter_than_promised_closes_instead_of_padding() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("f", 1)
        assert await client.exactly(8) == struct.pack(">i", 8) + b"f\x01.."
        assert await client.closed()
        assert broker.stats.closed[CloseReason.FILE_TOO_SHORT] == 1


# Closing: the peer leaves or is slow


async def test_requests_received_before_the_peer_closed_are_started_and_answered_in_order() -> None:
    async with serving() as broker:
        client = broker.connect()
        for kind, name in (("w", 1), ("0", 2), ("w", 3), ("0", 4), ("e", 5)):
            await client.send(kind, name)
        await client.stream.send_all(struct.pack(">i", 8) + b"e\x06")  # and the beginning of another request
        await client.stream.send_eof()
        await settle()
        assert broker.dispatcher.order == [1]
        broker.dispatcher.gate(1).set()
        assert await client.reply() == ("w", 1)
        broker.dispatcher.gate(3).set()
        assert [await client.reply() for _ in range(2)] == [("w", 3), ("e", 5)]
        assert await client.closed()
        assert broker.dispatcher.order == [1, 2, 3, 4, 5]
        assert broker.stats.connections_open == 0
        assert broker.stats.closed[CloseReason.CLOSED_BY_PEER] == 1


async def test_requests_received_before_the_connection_broke_are_started() -> None:
    async with serving() as broker:
        client = broker.connect()
        for kind, name in (("w", 1), ("0", 2), ("e", 3), ("0", 4)):
            await client.send(kind, name)
        await settle()
        client.stream.close()
        broker.dispatcher.gate(1).set()
        await settle()
        assert broker.dispatcher.order == [1, 2, 3, 4]
        assert broker.stats.closed[CloseReason.BROKEN] == 1


async def test_a_long_poll_of_a_peer_that_has_left_is_asked_to_answer_now() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("l", 1)
        await client.send("0", 2)
        await settle()
        await client.stream.aclose()
        await settle()
        assert broker.dispatcher.order == [1, 2]
        assert broker.stats.connections_open == 0


async def test_a_peer_that_has_left_is_not_waited_for_without_end() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("w", 1)
        await settle()
        await client.stream.aclose()
        await trio.sleep(29)
        assert broker.stats.connections_open == 1
        await trio.sleep(3)
        assert broker.dispatcher.cancelled == [1]
        assert broker.stats.closed[CloseReason.CLOSED_BY_PEER] == 1


async def test_a_peer_that_breaks_off_mid_reply_is_no_failure_of_a_handler() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("p", 1)
        await settle()
        client.stream.close_receiving()
        broker.dispatcher.gate(1).set()
        await settle()
        assert broker.stats.closed[CloseReason.BROKEN] == 1


async def test_an_idle_connection_is_closed() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("e", 1)
        await client.reply()
        start_s = trio.current_time()
        assert await client.closed()
        assert 600 <= trio.current_time() - start_s <= 602
        assert broker.stats.closed[CloseReason.IDLE] == 1


async def test_connection_with_an_incomplete_frame_is_closed_at_its_deadline() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.stream.send_all(struct.pack(">i", 50_000_000) + b"123456")
        start_s = trio.current_time()
        assert await client.closed()
        assert 30 <= trio.current_time() - start_s <= 32
        assert broker.stats.closed[CloseReason.HALF_FRAME] == 1


async def test_a_peer_that_does_not_read_its_replies_is_closed_at_its_deadline() -> None:
    async with serving() as broker:
        client = broker.connect()
        client.stream.room_bytes = 4
        await client.send("p", 1)
        start_s = trio.current_time()
        await trio.sleep(100)
        assert broker.stats.connections_open == 1
        broker.dispatcher.gate(1).set()
        assert await client.exactly(4) == struct.pack(">i", 8)
        assert await client.closed()
        assert 130 <= trio.current_time() - start_s <= 132
        assert broker.stats.closed[CloseReason.SLOW_READER] == 1


# Limits over all connections


async def test_connections_beyond_the_limits_are_closed_at_once_and_counted() -> None:
    async with serving(ServerLimits(max_connections=3, max_connections_per_ip=2)) as broker:
        clients = [broker.connect("10.0.0.1"), broker.connect("10.0.0.1")]
        assert await broker.connect("10.0.0.1").closed()
        clients.append(broker.connect("10.0.0.2"))
        assert await broker.connect("10.0.0.3").closed()
        assert (broker.stats.connections_refused_per_ip, broker.stats.connections_refused_total) == (1, 1)
        await clients[0].stream.aclose()
        await settle()
        again = broker.connect("10.0.0.1")
        await again.send("e", 1)
        assert await again.reply() == ("e", 1)
        assert broker.stats.connections_open == 3
        assert broker.stats.connections_accepted == 4


async def test_bytes_in_flight_over_all_connections_stop_the_readers() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1000)) as broker:
        first, second = broker.connect(), broker.connect()
        await first.send("p", 1, size=1000)
        await settle()
        three = struct.pack(">i", 8) + b"e\x03......"
        await second.stream.send_all(struct.pack(">i", 8) + b"e\x02......" + three[:5])
        await settle()  # the reader had a receive under way; from now on it waits
        await second.stream.send_all(three[5:])
        await settle()
        assert 3 not in broker.dispatcher.order
        assert broker.stats.in_flight_size_bytes >= 1000
        await trio.sleep(300)  # not the second peer's fault
        broker.dispatcher.gate(1).set()
        assert await first.reply() == ("p", 1)
        assert [await second.reply() for _ in range(2)] == [("e", 2), ("e", 3)]


async def test_frame_that_is_released_before_its_reply_makes_room_for_other_connections() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1000)) as broker:
        first, second = broker.connect(), broker.connect()
        await first.send("p", 1, size=1000)
        await settle()
        await second.send("e", 2)
        await settle()
        await second.send("e", 3)
        await settle()
        assert 3 not in broker.dispatcher.order
        assert (broker.stats.connections_paused, broker.stats.pauses) == (1, 1)
        broker.dispatcher.gate(1).release()
        assert broker.stats.in_flight_size_bytes >= 1000  # as of the last turn
        assert [await second.reply() for _ in range(2)] == [("e", 2), ("e", 3)]
        assert (broker.stats.connections_paused, broker.stats.pauses) == (0, 1)
        assert broker.stats.in_flight_size_bytes == 0
        broker.dispatcher.gate(1).set()
        assert await first.reply() == ("p", 1)
        assert broker.stats.in_flight_size_bytes == 0


async def test_a_connection_counts_released_frames_until_their_replies_have_left() -> None:
    limits = ConnectionLimits(max_in_flight_size_bytes=1000)
    async with serving(ServerLimits(connection=limits)) as broker:
        client = broker.connect()
        await client.send("p", 1, size=1000)
        await client.send("p", 2)
        await settle()
        broker.dispatcher.gate(1).release()
        await settle()
        assert broker.dispatcher.order == [1]
        broker.dispatcher.gate(1).set()
        assert await client.reply() == ("p", 1)
        await settle()
        assert broker.dispatcher.order == [1, 2]


async def test_requests_of_a_closed_connection_are_abandoned() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("p", 1)
        await client.send("p", 2)
        await settle()
        await client.stream.aclose()
        await trio.sleep(ConnectionLimits().reply_timeout_ms / 1000 + 2 * INTERVAL_S)
        assert broker.stats.connections_open == 0
        assert broker.dispatcher.gate(1).is_abandoned
        assert broker.dispatcher.gate(2).is_abandoned
        broker.dispatcher.gate(1).release()  # the reply comes late, and changes nothing
        assert broker.stats.in_flight_size_bytes == 0


async def test_peers_are_read_although_the_requests_of_others_use_up_the_budget() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1000)) as broker:
        peer, client = broker.connect(), broker.connect()
        await peer.send("e", 1)
        assert await peer.reply() == ("e", 1)
        broker.dispatcher.infos[0].is_peer = True
        await client.send("p", 2, size=1000)
        await settle()
        for name in range(3, 6):
            await peer.send("e", name)
            assert await peer.reply() == ("e", name)


async def test_peer_connection_has_its_own_limit_of_bytes_in_flight() -> None:
    """Bytes of one peer connection count for no other connection, and stop that connection alone."""
    in_flight = ConnectionLimits(max_in_flight_size_bytes=1 << 30)
    async with serving(ServerLimits(connection=in_flight, queued_max_request_size_bytes=1000)) as broker:
        peer, other_purpose, client = broker.connect(), broker.connect(), broker.connect()
        for name, one in enumerate((peer, other_purpose)):
            await one.send("e", name)
            assert await one.reply() == ("e", name)
            broker.dispatcher.infos[name].is_peer = True
        for name in (2, 3):
            await peer.send("p", name, size=PEER_MAX_BYTES // 2)
        await settle()
        await peer.stream.send_all(struct.pack(">i", 8) + b"e\x04......")
        await settle()
        await peer.stream.send_all(struct.pack(">i", 8) + b"e\x05......")
        await settle()
        assert 5 not in broker.dispatcher.order
        assert broker.stats.in_flight_size_bytes == 0
        for name, one in ((6, other_purpose), (7, client)):
            await one.send("e", name)
            assert await one.reply() == ("e", name)
        for name in (2, 3):
            broker.dispatcher.gate(name).set()
        assert [(await peer.reply())[1] for _ in range(4)] == [2, 3, 4, 5]


LARGE_SIZE_BYTES = 2_000_000


def large(name: int) -> bytes:
    return struct.pack(">i", LARGE_SIZE_BYTES) + b"e" + bytes([name]) + bytes(LARGE_SIZE_BYTES - 2)


async def test_connections_that_announce_large_frames_and_send_little_do_not_block_others() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=10_000_000)) as broker:
        hostile = [broker.connect() for _ in range(20)]
        for client in hostile:
            await client.stream.send_all(struct.pack(">i", 100_000_000) + bytes(CHUNK_SIZE_BYTES))
        await settle()
        assert broker.stats.in_flight_size_bytes <= 20 * GROWTH * CHUNK_SIZE_BYTES
        client = broker.connect()
        for name in range(3):
            await client.send("e", name)
            assert await client.reply() == ("e", name)
        await client.stream.send_all(large(3))
        assert await client.reply() == ("e", 3)


async def test_large_frames_that_reach_the_limit_half_way_go_on_one_at_a_time() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1_000_000)) as broker:
        clients = [broker.connect() for _ in range(5)]
        half = LARGE_SIZE_BYTES // 2
        for name, client in enumerate(clients):
            await client.stream.send_all(large(name)[:half])
        await settle()
        assert broker.stats.in_flight_size_bytes < 1_000_000 + LARGE_SIZE_BYTES
        for name, client in enumerate(clients):
            await client.stream.send_all(large(name)[half:])
        for name, client in enumerate(clients):
            assert await client.reply() == ("e", name)
        assert broker.stats.in_flight_size_bytes == 0


async def test_stalled_large_frame_is_closed_at_its_deadline_and_makes_room_for_another_frame() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1_000_000)) as broker:
        stalled, waiting = broker.connect(), broker.connect()
        await stalled.stream.send_all(large(1)[:-1])
        await settle()
        await waiting.stream.send_all(large(2))
        start_s = trio.current_time()
        assert await waiting.reply() == ("e", 2)
        assert 60 <= trio.current_time() - start_s <= 64  # 30 s, and the time its 2 MB take at 64 KiB/s
        assert broker.stats.closed[CloseReason.HALF_FRAME] == 1


async def test_connections_that_stall_within_large_frames_do_not_block_small_requests() -> None:
    """Nine connections announce 100 MB each and send a quarter. Small requests of others are served all the while."""
    async with serving(ServerLimits(queued_max_request_size_bytes=32 << 20)) as broker:
        hostile = [broker.connect() for _ in range(9)]
        for client in hostile:
            await client.stream.send_all(struct.pack(">i", 100_000_000) + bytes(6 << 20))
        await settle()
        client = broker.connect()
        for name in range(150):
            await client.send("e", name)
            assert await client.reply() == ("e", name)
            await trio.sleep(1)
        assert broker.stats.connections_open == 1
        assert broker.stats.closed[CloseReason.HALF_FRAME] + broker.stats.closed[CloseReason.NO_ROOM] == 9
        await client.stream.send_all(large(3))
        assert await client.reply() == ("e", 3)


async def test_request_that_released_its_frame_holds_no_bytes_while_it_waits() -> None:
    async with serving(ServerLimits(queued_max_request_size_bytes=1000)) as broker:
        waiting, other = broker.connect(), broker.connect()
        broker.dispatcher.holds_frame = False
        await waiting.send("w", 1, size=1000)
        await settle()
        assert broker.stats.in_flight_size_bytes == 0
        await other.send("e", 2)
        assert await other.reply() == ("e", 2)


async def test_unread_replies_are_bounded_over_all_connections() -> None:
    """The connection that has held unread replies longest is closed first."""
    async with serving(ServerLimits(queued_max_request_size_bytes=64)) as broker:
        clients = [broker.connect() for _ in range(4)]
        for name, client in enumerate(clients):
            client.stream.room_bytes = 4 if name < 3 else 1 << 20
            await client.send("e", name)
            await settle()
        assert broker.stats.closed[CloseReason.SLOW_READER] == 1
        assert await clients[0].exactly(4) == struct.pack(">i", 8)
        assert await clients[0].closed()
        assert await clients[3].reply() == ("e", 3)


async def test_input_after_a_violation_does_not_cost_the_peer_its_last_replies() -> None:
    """Sockets closed with unread input make the system reset the connection and lose the last replies."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.settimeout(0)
        async with serving(listener=SocketListenerFake(ours)) as broker:
            theirs.sendall(frames("e") + frames("v") + frames("e" * 100, 1000))
            while broker.stats.replies < 1:
                await trio.lowlevel.checkpoint()
            await trio.sleep(1)
            theirs.sendall(bytes(1000))  # not reset
            assert theirs.recv(100) == frames("e")
            assert theirs.recv(100) == b""
            theirs.shutdown(socket.SHUT_WR)
            await trio.sleep(0.1)
            assert broker.stats.closed[CloseReason.PROTOCOL_VIOLATION] == 1


async def test_peer_that_keeps_sending_after_a_violation_is_disconnected_after_the_linger_time() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("e", 1)
        await client.send("v", 2)
        assert await client.reply() == ("e", 1)
        assert await client.closed()
        for _ in range(5):
            await client.send("e", 3)
            await trio.sleep(0.25)
        await trio.sleep(LINGER_S)
        with pytest.raises(trio.BrokenResourceError):
            await client.send("e", 3)
        assert broker.stats.closed[CloseReason.PROTOCOL_VIOLATION] == 1
        assert broker.dispatcher.order == [1, 2]


class ExhaustedListener(MemoryListener):
    """Listener that has no descriptors for its first connections."""

    failures = 3

    async def accept(self) -> MemoryAccepted:
        if self.failures > 0:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return await super().accept()


class UnwatchedListener(MemoryListener):
    """Listener whose first connection finds no descriptor for the poller."""

    has_failed = False

    async def accept(self) -> MemoryAccepted:
        accepted = await super().accept()
        if self.has_failed:
            return accepted
        self.has_failed = True
        unwatched = cast("Transport", Unwatched(accepted.transport))
        return MemoryAccepted(unwatched, accepted.peer_host, accepted.local_address)


class Unwatched:
    """Transport that cannot be watched."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.sent_size_bytes = 0

    def watch(self, *arguments: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    def close(self) -> None:
        self._transport.close()


async def test_a_connection_that_cannot_be_watched_is_closed_and_the_next_one_served() -> None:
    async with serving(listener=UnwatchedListener()) as broker:
        assert await broker.connect().closed()
        client = broker.connect()
        await client.send("e", 1)
        assert await client.reply() == ("e", 1)
        assert broker.stats.accept_failures == 1
        assert broker.stats.connections_open == 1


async def test_running_out_of_descriptors_is_survived_with_a_pause() -> None:
    start_s = trio.current_time()
    async with serving(listener=ExhaustedListener()) as broker:
        client = broker.connect()
        with structlog.testing.capture_logs() as lines:
            await client.send("e", 1)
            assert await client.reply() == ("e", 1)
        assert len(lines) <= 1  # not one for each try
        assert broker.stats.accept_failures == 3
        assert trio.current_time() - start_s == pytest.approx(0.3, abs=0.01)


# Shutdown


async def test_shutdown_answers_requests_in_flight_and_starts_no_more_requests() -> None:
    async with serving() as broker:
        client, idle = broker.connect(), broker.connect()
        await client.send("p", 1)
        await client.send("w", 2)
        await client.send("e", 3)
        await settle()
        broker.stop.set()
        assert await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            broker.connect()
        for name in (1, 2):
            broker.dispatcher.gate(name).set()
        assert [await client.reply() for _ in range(2)] == [("p", 1), ("w", 2)]
        assert await client.closed()
        await client.stream.aclose()
        await settle()
        assert broker.dispatcher.order == [1, 2]
        assert broker.stats.closed[CloseReason.SHUTDOWN] == 2


@pytest.mark.parametrize("kind", ["l", "g"])
async def test_parked_long_poll_lets_the_next_request_start_only_if_it_gives_way(kind: str) -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send(kind, 1)
        await settle()
        await client.send("s", 2)
        await settle()
        assert broker.dispatcher.order == ([1, 2] if kind == "g" else [1])
        broker.dispatcher.gate(1).set()
        assert [await client.reply() for _ in range(2)] == [(kind, 1), ("s", 2)]


async def test_shutdown_asks_a_parked_long_poll_to_answer_now() -> None:
    async with serving() as broker:
        client = broker.connect()
        await client.send("l", 1)
        await settle()
        start_s = trio.current_time()
        broker.stop.set()
        assert await client.reply() == ("l", 1)
        assert await client.closed()
        assert trio.current_time() == pytest.approx(start_s)
        assert broker.dispatcher.infos[0].is_ending


async def test_shutdown_ends_many_idle_connections_at_once_though_only_some_end_in_a_turn() -> None:
    async with serving() as broker:
        clients = [broker.connect() for _ in range(2 * ENDS_PER_TURN + 1)]
        await settle()
        start_s = trio.current_time()
        broker.stop.set()
        for client in clients:
            assert await client.closed()
        assert trio.current_time() == pytest.approx(start_s)
        assert broker.stats.closed[CloseReason.SHUTDOWN] == len(clients)


async def test_shutdown_cancels_unfinished_requests_after_the_grace_period() -> None:
    async with serving(ServerLimits(shutdown_grace_ms=5_000)) as broker:
        client = broker.connect()
        await client.send("w", 1)
        await settle()
        start_s = trio.current_time()
        broker.stop.set()
        assert await client.closed()
        assert trio.current_time() - start_s == pytest.approx(5, abs=0.1)
        assert broker.dispatcher.cancelled == [1]


async def test_a_connection_accepted_in_the_moment_of_shutdown_is_closed_too() -> None:
    async with serving() as broker:
        client = broker.connect()
        broker.stop.set()
        assert await client.closed()


async def test_cancelling_the_server_closes_everything_at_once() -> None:
    listener, stats = MemoryListener(), ServerStats()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_forever, listener, stats)
        client = Client(listener.connect())
        await client.send("p", 1)
        await client.send("p", 2)
        await settle()
        nursery.cancel_scope.cancel()
    assert stats.connections_open == 0
    assert stats.requests == 2
    with pytest.raises(ConnectionRefusedError):
        listener.connect()


async def serve_forever(listener: MemoryListener, stats: ServerStats) -> None:
    await serve({"PLAINTEXT": [listener]}, FakeDispatcher(), ServerLimits(), stop=trio.Event(), stats=stats)


class SocketListenerFake(MemoryListener):
    """Listener with one connection, a socket. Sends on a memory stream would always let other tasks run."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._connected: Transport | None = SocketTransport(connected)

    async def accept(self) -> MemoryAccepted:
        if self._connected is None:
            return await super().accept()
        accepted, self._connected = MemoryAccepted(self._connected, "10.0.0.1", "10.0.0.2"), None
        return accepted


async def test_connection_with_1000_requests_is_served_in_many_turns() -> None:
    ours, theirs = socket.socketpair()
    limits = ServerLimits(connection=ConnectionLimits(max_in_flight_requests=1000))
    turns_in_between = set()
    with theirs:
        theirs.sendall((struct.pack(">i", 8) + b"e\x01......") * 1000)
        theirs.settimeout(0)
        async with serving(limits, SocketListenerFake(ours)) as broker:
            while broker.stats.replies < 1000:
                turns_in_between.add(broker.stats.replies)
                await trio.lowlevel.checkpoint()
                with suppress(BlockingIOError):
                    theirs.recv(1 << 20)
    assert len(turns_in_between) >= 1000 // (2 * STARTS_PER_TURN), "two tasks of the hub may each have a turn"


def test_a_line_of_the_log_holds_no_bytes_that_could_forge_another() -> None:
    assert printable("a\nb\x1b[1mc\u202e") == r"a\nb\x1b[1mc\u202e"
    assert len(printable("x" * 1000)) == 200
