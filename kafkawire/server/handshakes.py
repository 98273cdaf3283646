"""TLS handshakes of new connections: steps in the crypto thread, in turns of addresses, within limits.

Why it exists: a step of a handshake costs a third of a millisecond and more, and every peer may ask for one. So steps
run in a thread of their own, one after the other. Addresses take turns: a peer with a thousand connections delays its
own. A connection that waits for its turn is not read, so it holds no bytes.

Each listener has slots for connections that have not finished. If more than half of them are taken, a handshake has
less time. One address gets a quarter of them. If all are taken, the listener does not accept.

The crypto thread has a connection's TLS object to itself during a step. The session of the connection begins when the
handshake is done; nothing else knows of handshakes.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from kafkawire.requests.line_limit import LineLimits
from kafkawire.security.tls.settings import ClientRefused
from kafkawire.server.connection_log import log_close, log_failure
from kafkawire.server.hub import Hub
from kafkawire.server.poller import READ, WRITE
from kafkawire.server.reaper import Reaper
from kafkawire.server.tls_transport import TlsTransport
from kafkawire.server.transport import Transport
from kafkawire.wire.connection import CloseReason
from kafkawire.wire.connection_info import ConnectionInfo

if TYPE_CHECKING:  # loads a library that a broker without TLS does not need
    from kafkawire.requests.context import Elsewhere
    from kafkawire.security.tls.listener_tls import ListenerTls

TIMEOUT_S: Final = 30.0
CROWDED_TIMEOUT_S: Final = 5.0
SHARE_OF_ONE_ADDRESS: Final = 4  # a quarter of the slots
LOGGED_OF_A_CAUSE_MAX: Final = 3  # failed handshakes of an address for one reason, in a minute
LOGGED_PER_MINUTE_MAX: Final = 100  # failed handshakes
_IPV6_NETWORK_BITS: Final = 64


class Slots:
    """Slots of one listener for connections that have not finished their handshake."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_network: dict[str, int] = {}
        self._freed = trio.lowlevel.ParkingLot()
        self.taken = 0

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_S if self.taken * 2 <= self._limit else CROWDED_TIMEOUT_S

    async def available(self) -> None:
        """Wait for a slot."""
        while self.taken >= self._limit:
            await self._freed.park()

    def take(self, network: str) -> bool:
        """Take a slot; False: this network has its share."""
        of_network = self._by_network.get(network, 0)
        if of_network >= max(self._limit // SHARE_OF_ONE_ADDRESS, 1):
            return False
        self._by_network[network] = of_network + 1
        self.taken += 1
        return True

    def free(self, network: str) -> None:
        self.taken -= 1
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]
        self._freed.unpark_all()


class Handshake:
    """Connection during its handshake: a Watcher of the poller, and a WatchedConnection of the reaper."""

    __slots__ = (
        "_began_s",
        "_handshakes",
        "_is_stepping",
        "_raw",
        "has_ended",
        "idle_bucket",
        "info",
        "is_done",
        "is_watched",
        "network",
        "slots",
        "tls",
        "transport",
    )

    def __init__(
        self,
        handshakes: Handshakes,
        raw: Transport,
        info: ConnectionInfo,
        tls: ListenerTls,
        slots: Slots,
        network: str,
    ) -> None:
        self._handshakes = handshakes
        self._raw = raw
        self._began_s = trio.current_time()
        self._is_stepping = False
        self.info = info
        self.tls = tls
        self.slots = slots
        self.network = network
        self.transport = TlsTransport(raw, tls.current.context)
        self.has_ended = False
        self.is_done = False
        self.idle_bucket = -1
        self.is_watched = False

    # A Watcher

    def visit(self, events: int) -> None:
        """Send what is left of a step, or wait for the turn of the next one."""
        if self.has_ended or self._is_stepping:
            return
        try:
            if not self.transport.flush():
                self.watch(WRITE)
            elif self.is_done:
                self._handshakes.finish(self)
            elif events & READ:
                self.watch(0)
                self._handshakes.note_ready(self)
            else:
                self.watch(READ)
        except OSError as error:
            self.fail(str(error))

    def answer(self) -> None: ...
    def end_turn(self) -> None: ...

    def watch(self, events: int) -> None:
        self._raw.watch(self._handshakes.hub.poller, self, events)

    # A step

    async def step(self, crypto: Elsewhere) -> None:
        """Take the bytes that have arrived, and go on as far as they go."""
        try:
            self.transport.feed()
            self._is_stepping = True
            try:
                self.is_done = await crypto(self._step)
            finally:
                self._is_stepping = False
        except (OSError, ClientRefused) as error:
            self.fail(str(error))
        except Exception:  # a fault of ours must not end the handshakes of others
            log_failure(self.info)
            self.close(CloseReason.HANDLER_FAILED)
        else:
            self.visit(0)

    def _step(self) -> bool:
        """Go on in the crypto thread. The principal is found there too, because a certificate has to be read."""
        if not self.transport.step():
            return False
        principal = self.tls.principal_of(self.transport.peer_certificate)
        if principal is not None:
            self.info.principal = principal
        return True

    # The end

    @property
    def is_idle(self) -> bool:
        return False

    @property
    def idle_until_s(self) -> float:
        return self._began_s

    def check(self, now_s: float) -> None:
        """Close the connection if it takes too long. During a step it is closed after the step."""
        if not self._is_stepping and now_s - self._began_s > self.slots.timeout_s:
            self.close(CloseReason.SLOW_HANDSHAKE)

    def fail(self, reason: str) -> None:
        """Close the connection; the peer gets the alert of TLS, if there is one."""
        if not self.has_ended:
            with suppress(OSError):  # it may have left
                self.transport.flush()
            self.close(CloseReason.HANDSHAKE_FAILED, reason)

    def close(self, reason: CloseReason, detail: str = "") -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self.transport.close()
        self._handshakes.note_closed(self, reason, detail)


class Handshakes:
    """The handshakes of a server. `run` is its task."""

    def __init__(
        self,
        hub: Hub,
        reaper: Reaper,
        crypto: Elsewhere,
        on_done: Callable[[Transport, ConnectionInfo], None],
        on_failed: Callable[[ConnectionInfo], None],
    ) -> None:
        """`crypto` runs a job in the crypto thread.

        `on_done` begins the session of a connection, `on_failed` forgets a connection.
        """
        self.hub = hub
        self._reaper = reaper
        self._crypto = crypto
        self._on_done = on_done
        self._on_failed = on_failed
        self._open: dict[Handshake, None] = {}
        self._waiting: dict[str, deque[Handshake]] = {}  # for their turn, by network; the first network is next
        self._has_waiting = trio.lowlevel.ParkingLot()
        self._limits = LineLimits(LOGGED_OF_A_CAUSE_MAX, LOGGED_PER_MINUTE_MAX)

    def begin(self, raw: Transport, info: ConnectionInfo, tls: ListenerTls, slots: Slots) -> bool:
        """Begin a handshake; False: the address has too many. Raises OSError, for lack of descriptors."""
        network = network_of(info.peer_host)
        if not slots.take(network):
            self._log(info, network, CloseReason.CROWDED_ADDRESS)
            return False
        try:
            one = Handshake(self, raw, info, tls, slots, network)
        except OSError:
            slots.free(network)
            raw.close()
            self._on_failed(info)
            raise
        self._open[one] = None
        self._reaper.watch(one)
        try:
            one.watch(READ)
        except OSError:
            one.close(CloseReason.BROKEN)
            raise
        return True

    async def run(self) -> None:
        """Run steps until cancelled."""
        while True:
            while not self._waiting:
                await self._has_waiting.park()
            one = self._next()
            if not one.has_ended:
                await one.step(self._crypto)

    def close(self) -> None:
        """Close every connection that has not finished."""
        for one in [*self._open]:
            one.close(CloseReason.SHUTDOWN)

    # Called by handshakes

    def note_ready(self, one: Handshake) -> None:
        """Have the next step of a handshake run when its address has its turn."""
        self._waiting.setdefault(one.network, deque()).append(one)
        self._has_waiting.unpark_all()

    def finish(self, one: Handshake) -> None:
        """Begin the session of a connection whose handshake is done."""
        one.watch(0)
        one.has_ended = True
        self._forget(one)
        self.hub.stats.handshakes += 1
        self._on_done(one.transport, one.info)

    def note_closed(self, one: Handshake, reason: CloseReason, detail: str) -> None:
        self._forget(one)
        self.hub.stats.closed[reason] += 1
        if reason is not CloseReason.SHUTDOWN:
            self._log(one.info, one.network, reason, detail)
        self._on_failed(one.info)

    def _log(self, info: ConnectionInfo, network: str, reason: CloseReason, detail: str = "") -> None:
        unlogged = self._limits.admit((network, reason, detail), trio.current_time())
        if unlogged is not None:
            log_close(info, reason, detail, unlogged=unlogged)

    def _forget(self, one: Handshake) -> None:
        self._reaper.forget(one)
        self.hub.poller.forget(one)
        del self._open[one]
        one.slots.free(one.network)

    def _next(self) -> Handshake:
        """The handshake whose turn it is. Its network comes last afterwards."""
        network = next(iter(self._waiting))
        queue = self._waiting.pop(network)
        one = queue.popleft()
        if queue:
            self._waiting[network] = queue
        return one


def network_of(host: str) -> str:
    """The address, or the network of an IPv6 address: a peer may have as many addresses of it as it likes."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(ipaddress.ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))
