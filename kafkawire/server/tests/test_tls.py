"""TLS on memory streams: the transport, handshakes with their limits, and sessions behind them."""

from __future__ import annotations

import ctypes
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.security.tls.listener_tls import ListenerTls
from kafkawire.security.tls.settings import (
    ClientAuth,
    ClientRefused,
    KeyStoreSettings,
    StoreType,
    TlsSettings,
    TrustStoreSettings,
)
from kafkawire.server.handshakes import (
    CROWDED_TIMEOUT_S,
    LOGGED_OF_A_CAUSE_MAX,
    LOGGED_PER_MINUTE_MAX,
    TIMEOUT_S,
    Slots,
    network_of,
)
from kafkawire.server.memory_transport import MemoryListener, MemoryStream
from kafkawire.server.reaper import INTERVAL_S
from kafkawire.server.server import ServerLimits, ServerTls, serve
from kafkawire.server.stats import ServerStats
from kafkawire.server.tests.test_server import EmptyFile, FakeDispatcher
from kafkawire.server.tls_transport import READS_MAX, RECORD_SIZE_BYTES, TURN_SIZE_BYTES, TlsTransport
from kafkawire.server.transport import FileTooShortError
from kafkawire.testing import soon
from kafkawire.wire.connection import CloseReason, ConnectionLimits
from testkit.certificates import HOST, Authority

REQUEST_SIZE_BYTES = 8
STEP_S = 0.001  # of a handshake, in the crypto thread
TLS_HELLO = bytes.fromhex("16030100c8010000c4")


def listener_tls(authority: Authority, client_auth: ClientAuth = ClientAuth.NONE) -> ListenerTls:
    key_store = KeyStoreSettings(StoreType.PEM, authority.key_file())
    trust_store = TrustStoreSettings(StoreType.PEM, authority.trust_file())
    return ListenerTls(TlsSettings(key_store, trust_store, client_auth=client_auth))


@dataclass
class GatedCrypto:
    """A crypto thread that waits before each job, but for the first `free` ones."""

    gate: trio.Event = field(default_factory=trio.Event)
    jobs: int = 0
    free: int = 0

    async def run(self, job: Callable[[], Any]) -> Any:
        self.jobs += 1
        if self.jobs <= self.free:
            return await soon(job)
        with trio.CancelScope(shield=True):  # a thread cannot be cancelled
            await self.gate.wait()
        return job()


@dataclass
class Running:
    authority: Authority
    tls: MemoryListener
    plain: MemoryListener
    dispatcher: FakeDispatcher
    stats: ServerStats
    stop: trio.Event

    async def connect(self, leaf: Any = None, peer_host: str = "10.0.0.1") -> trio.SSLStream[Any]:
        """A client whose handshake is done."""
        stream = self.stream(self.tls.connect(peer_host), leaf)
        await stream.do_handshake()
        return stream

    def stream(self, raw: trio.abc.Stream, leaf: Any = None) -> trio.SSLStream[Any]:
        return trio.SSLStream(raw, self.authority.client_context(leaf), server_hostname=HOST)


@asynccontextmanager
async def serving(
    authority: Authority,
    client_auth: ClientAuth = ClientAuth.NONE,
    crypto: Callable[[Callable[[], Any]], Awaitable[Any]] = soon,
    limits: ServerLimits | None = None,
) -> AsyncIterator[Running]:
    listeners = MemoryListener(), MemoryListener()
    running = Running(authority, *listeners, FakeDispatcher(), ServerStats(), trio.Event())
    tls = listener_tls(authority, client_auth)
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[None]) -> None:
            await serve(
                {"SSL": [running.tls], "PLAINTEXT": [running.plain]},
                running.dispatcher,
                limits or ServerLimits(),
                stop=running.stop,
                stats=running.stats,
                tls=ServerTls({"SSL": tls}, crypto),
                task_status=task_status,
            )

        await nursery.start(run)
        yield running
        running.stop.set()
    assert running.stats.connections_open == 0


def request(kind: str, name: int, size: int = REQUEST_SIZE_BYTES) -> bytes:
    payload = (kind.encode() + bytes([name])).ljust(size, b".")
    return struct.pack(">i", len(payload)) + payload


async def names(stream: trio.abc.ReceiveStream, count: int) -> list[int]:
    """The names of the next replies."""
    data = b""
    with trio.fail_after(60):
        while len(data) < count * (4 + REQUEST_SIZE_BYTES):
            piece = await stream.receive_some()
            assert piece, "closed"
            data += piece
    return [data[at + 5] for at in range(0, len(data), 4 + REQUEST_SIZE_BYTES)]


async def has_closed(stream: trio.abc.ReceiveStream) -> bool:
    with trio.fail_after(3600):
        try:
            while await stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass
    return True


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


# Sessions


async def test_requests_over_tls(authority: Authority) -> None:
    async with serving(authority) as broker:
        stream = await broker.connect()
        await stream.send_all(request("e", 1) + request("e", 2))
        assert await names(stream, 2) == [1, 2]
        (info, _) = broker.dispatcher.infos
        assert (info.listener_name, info.principal) == ("SSL", None)
        assert broker.stats.handshakes == 1


async def test_the_principal_of_a_certificate(authority: Authority) -> None:
    async with serving(authority, ClientAuth.REQUIRED) as broker:
        stream = await broker.connect(authority.issue("a@b.c", common_name="client"))
        await stream.send_all(request("e", 1))
        assert await names(stream, 1) == [1]
        assert str(broker.dispatcher.infos[0].principal).startswith("User:CN=client,OU=Tests,")


async def test_bytes_left_in_openssl_are_read(authority: Authority) -> None:
    """A whole record is in OpenSSL, while the connection may start no more requests: no poller reports the rest."""
    limits = ServerLimits(connection=ConnectionLimits(max_in_flight_requests=2))
    async with serving(authority, limits=limits) as broker:
        stream = await broker.connect()
        count = RECORD_SIZE_BYTES // (4 + REQUEST_SIZE_BYTES) // 100 * 100
        await stream.send_all(request("p", 0) + request("p", 1) + b"".join(request("e", 2) for _ in range(count)))
        await settle()
        assert broker.dispatcher.order == [0, 1]
        for name in (0, 1):
            broker.dispatcher.gate(name).set()
        assert await names(stream, count + 2) == [0, 1, *[2] * count]


async def test_a_request_in_the_last_flight_of_the_handshake(authority: Authority) -> None:
    async with serving(authority) as broker:
        raw = broker.tls.connect()
        end, to_client, to_server = client_end(authority)
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        await raw.send_all(to_server.read())
        to_client.write(await raw.receive_some())
        end.do_handshake()
        end.write(request("e", 7))
        await raw.send_all(to_server.read())
        to_client.write(await raw.receive_some())
        assert end.read(100)[5] == 7


def client_end(authority: Authority) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = authority.client_context()
    return context.wrap_bio(to_client, to_server, server_hostname=HOST), to_client, to_server


async def test_a_client_that_says_that_nothing_follows(authority: Authority) -> None:
    async with serving(authority) as broker:
        stream = await broker.connect()
        await stream.send_all(request("e", 1))
        assert await names(stream, 1) == [1]
        await stream.aclose()
        await settle()
        assert broker.stats.closed[CloseReason.CLOSED_BY_PEER] == 1


async def test_bytes_that_are_not_of_tls(authority: Authority) -> None:
    """The connection breaks, and nothing is executed."""
    async with serving(authority) as broker:
        raw = broker.tls.connect()
        stream = broker.stream(raw)
        await stream.do_handshake()
        await raw.send_all(request("e", 1))
        assert await has_closed(raw)
        assert broker.dispatcher.order == []


# Handshakes


@dataclass(eq=False)
class Dripping(trio.abc.HalfCloseableStream):
    """A stream that sends one byte at a time."""

    raw: MemoryStream

    async def send_all(self, data: Any) -> None:
        for byte in bytes(data):
            await self.raw.send_all(bytes([byte]))
            await settle()

    async def wait_send_all_might_not_block(self) -> None:
        await self.raw.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.raw.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self.raw.send_eof()

    async def aclose(self) -> None:
        await self.raw.aclose()


async def test_one_byte_a_step(authority: Authority) -> None:
    async with serving(authority) as broker:
        stream = broker.stream(Dripping(broker.tls.connect()))
        await stream.do_handshake()
        await stream.send_all(request("e", 1))
        assert await names(stream, 1) == [1]


async def test_plaintext_to_tls_and_back(authority: Authority) -> None:
    async with serving(authority) as broker:
        raw = broker.tls.connect()
        await raw.send_all(request("e", 1))
        assert await has_closed(raw)
        plain = broker.plain.connect()
        with structlog.testing.capture_logs() as logged:
            await plain.send_all(TLS_HELLO + bytes(200))
            assert await has_closed(plain)
        assert logged[0]["detail"].endswith("; the peer speaks TLS")
        assert broker.dispatcher.order == []
        assert broker.stats.closed[CloseReason.HANDSHAKE_FAILED] == 1
        await trio.sleep(3)
        assert broker.stats.closed[CloseReason.FRAME_SIZE] == 1


async def test_a_client_without_a_certificate(authority: Authority) -> None:
    async with serving(authority, ClientAuth.REQUIRED) as broker:
        with structlog.testing.capture_logs() as logged:
            stream = await broker.connect()  # with TLS 1.3 the client is done before it is refused
            with pytest.raises(trio.BrokenResourceError) as refused:
                await stream.receive_some()
        assert "certificate required" in str(refused.value.__cause__).lower()
        assert [one["event"] for one in logged] == ["connection closed: TLS handshake failed"]
        assert (logged[0]["listener"], logged[0]["peer"]) == ("SSL", "10.0.0.1")


async def test_a_certificate_that_gives_no_name(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> str:
        raise ClientRefused("no rule is for it")

    monkeypatch.setattr(ListenerTls, "principal_of", refused)
    async with serving(authority) as broker:
        stream = await broker.connect()
        assert await has_closed(stream)
        assert broker.dispatcher.order == []
        assert broker.stats.closed[CloseReason.HANDSHAKE_FAILED] == 1


async def test_a_fault_in_a_step_ends_no_other_handshake(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(authority) as broker:
        with monkeypatch.context() as broken:
            broken.setattr(TlsTransport, "step", lambda _: 1 / 0)
            raw = broker.tls.connect()
            await raw.send_all(TLS_HELLO)
            assert await has_closed(raw)
        assert broker.stats.closed[CloseReason.HANDLER_FAILED] == 1
        await broker.connect()


async def test_the_peer_leaves_during_the_handshake(authority: Authority) -> None:
    async with serving(authority) as broker:
        await broker.tls.connect().aclose()
        await settle()
        assert broker.stats.closed[CloseReason.HANDSHAKE_FAILED] == 1
        assert broker.stats.connections_open == 0


@pytest.mark.parametrize("ends", ["by the peer", "by the broker"])
async def test_close_while_a_step_runs(authority: Authority, ends: str) -> None:
    crypto = GatedCrypto()
    async with serving(authority, crypto=crypto.run) as broker:
        raw = broker.tls.connect()
        await raw.send_all(TLS_HELLO + bytes(200))
        await settle()
        assert crypto.jobs == 1
        if ends == "by the peer":
            raw.close()
        else:
            broker.stop.set()
        await settle()
        crypto.gate.set()
        assert await has_closed(raw) if ends == "by the broker" else True
        await settle()
        assert broker.stats.connections_open == 0


async def test_a_handshake_that_takes_too_long(authority: Authority) -> None:
    async with serving(authority) as broker:
        raw = broker.tls.connect()
        began_s = trio.current_time()
        assert await has_closed(raw)
        assert TIMEOUT_S <= trio.current_time() - began_s <= TIMEOUT_S + 2 * INTERVAL_S
        assert broker.stats.closed[CloseReason.SLOW_HANDSHAKE] == 1


async def test_an_address_gets_a_quarter_of_the_slots(authority: Authority) -> None:
    async with serving(authority, limits=ServerLimits(max_unauthenticated=8)) as broker:
        streams = [broker.tls.connect() for _ in range(3)]
        await settle()
        assert broker.stats.connections_open == 2
        assert await has_closed(streams[2])
        assert broker.stats.closed[CloseReason.CROWDED_ADDRESS] == 1
        await broker.connect(peer_host="10.0.0.2")


async def test_less_time_when_half_of_the_slots_are_taken(authority: Authority) -> None:
    async with serving(authority, limits=ServerLimits(max_unauthenticated=4)) as broker:
        streams = [broker.tls.connect(f"10.0.1.{number}") for number in range(3)]
        began_s = trio.current_time()
        assert await has_closed(streams[0])
        assert trio.current_time() - began_s <= CROWDED_TIMEOUT_S + 2 * INTERVAL_S


async def test_accepts_wait_when_all_slots_are_taken(authority: Authority) -> None:
    async with serving(authority, limits=ServerLimits(max_unauthenticated=2)) as broker:
        for number in range(3):
            broker.tls.connect(f"10.0.1.{number}")
        await settle()
        assert broker.stats.connections_open == 2
        plain = broker.plain.connect()  # other listeners go on
        await plain.send_all(request("e", 1))
        assert await names(plain, 1) == [1]
        began_s = trio.current_time()
        await broker.connect(peer_host="10.0.0.2")
        assert trio.current_time() - began_s <= CROWDED_TIMEOUT_S + 2 * INTERVAL_S


async def test_thousand_half_handshakes_and_one_login(authority: Authority) -> None:
    """A thousand connections that say hello and nothing more, from four addresses: another one logs in at once."""

    async def slow(job: Callable[[], Any]) -> Any:
        await trio.sleep(STEP_S)
        return job()

    async with serving(authority, crypto=slow) as broker:
        end, _, to_server = client_end(authority)
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        hello = to_server.read()
        for number in range(996):
            raw = broker.tls.connect(f"10.0.1.{number % 4}")
            await raw.send_all(hello)
        await trio.lowlevel.checkpoint()
        began_s = trio.current_time()
        stream = await broker.connect()
        await stream.send_all(request("e", 1))
        assert await names(stream, 1) == [1]
        assert trio.current_time() - began_s <= 30 * STEP_S
        await trio.sleep(TIMEOUT_S + 2 * INTERVAL_S)
        assert broker.stats.closed[CloseReason.SLOW_HANDSHAKE] == 996


async def test_failed_handshakes_are_logged_within_a_limit(authority: Authority) -> None:
    async with serving(authority) as broker:
        with structlog.testing.capture_logs() as logged:
            for _ in range(LOGGED_OF_A_CAUSE_MAX + 5):
                await broker.tls.connect().aclose()
                await settle()
            assert len(logged) == LOGGED_OF_A_CAUSE_MAX
            await broker.tls.connect("10.0.0.2").aclose()  # another cause
            await settle()
            assert (logged[-1]["peer"], logged[-1]["unlogged"]) == ("10.0.0.2", 5)
            for number in range(LOGGED_PER_MINUTE_MAX):
                await broker.tls.connect(f"10.0.1.{number}").aclose()
                await settle()
            assert len(logged) == LOGGED_PER_MINUTE_MAX
            await trio.sleep(60)
            await broker.tls.connect().aclose()
            await settle()
        assert logged[-1]["unlogged"] == LOGGED_OF_A_CAUSE_MAX + 1


async def test_no_session_begins_when_the_broker_stops(authority: Authority) -> None:
    crypto = GatedCrypto(free=1)
    async with serving(authority, crypto=crypto.run) as broker:
        end, to_client, to_server = client_end(authority)
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        raw = broker.tls.connect()
        await raw.send_all(to_server.read())
        to_client.write(await raw.receive_some())
        end.do_handshake()
        await raw.send_all(to_server.read())  # the step behind it is the last one
        await settle()
        assert crypto.jobs == 2
        began_s = trio.current_time()
        broker.stop.set()
        await settle()
        crypto.gate.set()
        assert await has_closed(raw)
        await settle()
        assert trio.current_time() - began_s < 1


async def test_addresses_take_turns(authority: Authority) -> None:
    crypto = GatedCrypto()
    order: list[str] = []

    async def noted(job: Callable[[], Any]) -> Any:
        order.append(job.__self__.network)  # type: ignore[attr-defined]
        return await crypto.run(job)

    async with serving(authority, crypto=noted) as broker:
        for host in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"):
            raw = broker.tls.connect(host)
            await raw.send_all(TLS_HELLO)
            await settle()
        crypto.gate.set()
        await settle()
        assert order == ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("memory", "memory"),
    ],
)
def test_networks(host: str, network: str) -> None:
    assert network_of(host) == network


def test_one_slot_is_for_anybody() -> None:
    slots = Slots(1)
    assert slots.take("10.0.0.1")
    assert not slots.take("10.0.0.1")
    slots.free("10.0.0.1")
    assert slots.take("10.0.0.1")


# The transport


@dataclass
class Bytes:
    """A file in memory."""

    content: bytes

    def fileno(self) -> int | None:
        return None

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self.content[position : position + size_bytes]


@dataclass
class Ends:
    """A transport whose handshake is done, and the client's end."""

    transport: TlsTransport
    stream: MemoryStream
    end: ssl.SSLObject
    to_client: ssl.MemoryBIO
    to_server: ssl.MemoryBIO

    async def received(self) -> bytes:
        """All bytes that have arrived, decrypted."""
        self.to_client.write(await self.stream.receive_some())
        found = b""
        with suppress(ssl.SSLWantReadError):
            while piece := self.end.read(1 << 20):
                found += piece
        return found

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        for position in range(0, len(view), RECORD_SIZE_BYTES):
            self.end.write(view[position : position + RECORD_SIZE_BYTES])
        await self.stream.send_all(self.to_server.read())


async def shaken(authority: Authority) -> Ends:
    stream = MemoryStream()
    transport = TlsTransport(stream.transport, listener_tls(authority).current.context)
    end, to_client, to_server = client_end(authority)
    is_done = False
    while not is_done:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
        await stream.send_all(to_server.read())
        transport.feed()
        is_done = transport.step()
        assert transport.flush()
        if not is_done:
            to_client.write(await stream.receive_some())
    return Ends(transport, stream, end, to_client, to_server)


async def test_what_the_handshake_has_chosen(authority: Authority) -> None:
    ends = await shaken(authority)
    assert ends.transport.version == "TLSv1.3"
    assert ends.transport.cipher.startswith("TLS_AES")
    assert ends.transport.peer_certificate is None


async def test_sending_memory_and_files_to_a_slow_peer(authority: Authority, tmp_path: Path) -> None:
    """Every byte arrives once and in order, for each size of the room at the peer."""
    ends = await shaken(authority)
    content = bytes(range(256)) * 4096
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        segments: Sequence[Segment] = [
            b"begin",
            b"",
            FileRange(Bytes(content), 100, 700_000),
            memoryview(content)[: TURN_SIZE_BYTES + 77],
            FileRange(Descriptor(file.fileno()), 300_000, 400_000),
            bytearray(b"end"),
        ]
        wanted = b"begin" + content[100:700_100] + content[: TURN_SIZE_BYTES + 77] + content[300_000:700_000] + b"end"
        found = b""
        for turn in range(1000):
            ends.stream.room_bytes = (1, 17, 5_000, 100_000, 1 << 20)[turn % 5]
            segments = ends.transport.send(segments)
            found += await ends.received()
            if not segments:
                break
    assert found == wanted
    assert ends.transport.sent_size_bytes > len(wanted)


@dataclass
class Descriptor:
    """A file of the system."""

    number: int

    def fileno(self) -> int | None:
        return self.number

    def read_at(self, position: int, size_bytes: int) -> bytes:
        raise AssertionError("it is read through its descriptor")


async def test_later_replies_come_behind_the_unsent_rest(authority: Authority) -> None:
    ends = await shaken(authority)
    ends.stream.room_bytes = 10
    rest = ends.transport.send([b"first"])
    assert rest
    ends.stream.room_bytes = 1 << 20
    assert not ends.transport.send([*rest, b"second"])
    assert await ends.received() == b"firstsecond"


@pytest.mark.parametrize("file", [EmptyFile(), Bytes(b"abc")])
async def test_a_file_that_is_too_short(authority: Authority, file: Any) -> None:
    ends = await shaken(authority)
    with pytest.raises(FileTooShortError):
        ends.transport.send([FileRange(file, 0, 10)])


async def test_a_file_of_the_system_that_is_too_short(authority: Authority, tmp_path: Path) -> None:
    ends = await shaken(authority)
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with path.open("rb") as file, pytest.raises(FileTooShortError):
        ends.transport.send([FileRange(Descriptor(file.fileno()), 0, 10)])


async def test_receiving_into_small_and_large_buffers(authority: Authority) -> None:
    ends = await shaken(authority)
    sent = bytes(range(256)) * 1000
    await ends.send(sent)
    small = bytearray(100)
    assert (ends.transport.receive(memoryview(small)), ends.transport.holds_received) == (100, True)
    large = bytearray(1 << 20)
    assert (ends.transport.receive(memoryview(large)), ends.transport.holds_received) == (len(sent) - 100, False)
    assert bytes(small) + large[: len(sent) - 100] == sent
    assert ends.transport.receive(memoryview(large)) is None


@pytest.mark.parametrize("says_so", [True, False])
async def test_the_end_of_the_stream(authority: Authority, says_so: bool) -> None:
    ends = await shaken(authority)
    await ends.send(b"last")
    if says_so:
        with suppress(ssl.SSLWantReadError):
            ends.end.unwrap()
        await ends.stream.send_all(ends.to_server.read())
    else:
        await ends.stream.send_eof()
    buffer = memoryview(bytearray(100))
    # The end has no event of the poller if it was in the same bytes as the data.
    assert (ends.transport.receive(buffer), ends.transport.holds_received) == (4, says_so)
    assert (ends.transport.receive(buffer), ends.transport.holds_received) == (0, False)


@cache
def key_update() -> Any:
    """OpenSSL's SSL_key_update, which Python does not offer."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    library = next((line.split()[-1] for line in mapped.splitlines() if "libssl" in line), None)
    if library is None:
        pytest.skip("this Python has no libssl of its own to renew keys with")
    found = ctypes.CDLL(library).SSL_key_update
    found.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return found


def renew_keys(end: ssl.SSLObject) -> None:
    """Have TLS 1.3 renew the keys of both ends, as Java's clients do now and then."""
    behind_the_socket = 3 * ctypes.sizeof(ctypes.c_void_p)  # in PySSLSocket: reference count, type, socket
    inner = end._sslobj  # type: ignore[attr-defined]
    pointer = ctypes.c_void_p.from_address(id(inner) + behind_the_socket)
    assert key_update()(pointer, 1) == 1


async def test_renewed_keys(authority: Authority) -> None:
    """The peer renews keys while a reply waits for room: the answer of TLS comes behind the rest of that reply."""
    ends = await shaken(authority)
    buffer = memoryview(bytearray(100))
    ends.stream.room_bytes = 10
    rest = ends.transport.send([b"first" * 100])
    renew_keys(ends.end)
    await ends.send(b"ask")
    ends.stream.room_bytes = 20
    assert ends.transport.receive(buffer) == 3
    ends.stream.room_bytes = 1 << 20
    assert not ends.transport.send([*rest, b"second"])
    assert await ends.received() == b"first" * 100 + b"second"
    await ends.send(b"again")
    assert bytes(buffer[: ends.transport.receive(buffer) or 0]) == b"again"


async def test_keys_that_are_renewed_without_end(authority: Authority) -> None:
    """Each renewal costs 40 us and 27 bytes: a call takes few of them, and then the connection ends."""
    ends = await shaken(authority)
    buffer, calls = memoryview(bytearray(1 << 20)), 0
    for _ in range(5_000):
        renew_keys(ends.end)
        with suppress(ssl.SSLWantReadError):
            ends.end.do_handshake()  # writes the record
    await ends.stream.send_all(ends.to_server.read())

    def receive_on() -> None:
        nonlocal calls
        while True:
            before = len(ends.stream._outgoing.data)
            assert ends.transport.receive(buffer) is None
            assert ends.transport.holds_received
            assert before - len(ends.stream._outgoing.data) <= 2 * RECORD_SIZE_BYTES
            calls += 1

    with pytest.raises(ConnectionAbortedError, match="the records of TLS carry no data"):
        receive_on()
    assert calls >= 2


async def test_records_of_one_byte(authority: Authority) -> None:
    ends = await shaken(authority)
    for _ in range(1000):
        ends.end.write(b"x")
    await ends.stream.send_all(ends.to_server.read())
    buffer, received, calls = memoryview(bytearray(1 << 20)), 0, 0
    while received < 1000:
        size_bytes = ends.transport.receive(buffer)
        assert size_bytes is not None
        assert size_bytes <= READS_MAX
        received, calls = received + size_bytes, calls + 1
    assert calls >= 1000 // READS_MAX


async def test_finish_with_bytes_that_nobody_reads(authority: Authority) -> None:
    """The peer still gets the replies and the end, and what it sends is taken without a look."""
    ends = await shaken(authority)
    await ends.send(bytes(300_000))
    small = memoryview(bytearray(100))
    assert ends.transport.receive(small) == 100
    assert not ends.transport.send([b"reply"])
    ends.transport.finish()
    ends.to_client.write(await ends.stream.receive_some())
    assert ends.end.read(100) == b"reply"
    assert ends.end.read(100) == b""
    discarded = 0
    while size_bytes := ends.transport.receive(small):
        discarded += size_bytes
    assert discarded > 100_000
    assert not ends.transport.holds_received


async def test_finish_tells_the_peer(authority: Authority) -> None:
    ends = await shaken(authority)
    ends.transport.finish()
    ends.to_client.write(await ends.stream.receive_some())
    assert ends.end.read(1) == b""
