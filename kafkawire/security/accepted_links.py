"""Peer connections that other brokers have opened to this one: their authentication and their validity (RULES K23).

Late bytes of a broken connection may arrive when they do harm: a marker, say, when the producer's next transaction is
open. So peer connections are numbered, and an accepted one makes all older ones of its broker and purpose void for
good: none of their requests begins from then on, whatever is still on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

from kafkawire.security.link_claim import LinkClaim, LinkNumber
from kafkawire.security.scram import (
    MECHANISM,
    NONCE_SIZE_BYTES,
    SALT_SIZE_BYTES,
    Credentials,
    ScramError,
    ScramServer,
    nonce_of,
)

if TYPE_CHECKING:
    from coordinator.api import ClusterImage
    from kafkawire.wire.connection_info import ConnectionInfo

PRINCIPAL_OF_BROKERS: Final = "Broker:"  # followed by the broker id; no login of a client gives this type


class SaslRefused(Exception):
    """Base of the refusals; the text is for the log."""


class UnexpectedRequest(SaslRefused):
    """Authentication over the wrong listener, or at the wrong time (Kafka: ILLEGAL_SASL_STATE)."""


class UnknownMechanism(SaslRefused):
    """A mechanism other than the supported one."""


class NotAuthenticated(SaslRefused):
    """A wrong proof, or a void peer connection: the connection has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The receiving broker. `incarnation` returns that of its present registration.

    `listener_name` is inter.broker.listener.name. `random_bytes` returns the given number of unpredictable bytes.
    """

    broker_id: int
    listener_name: str
    secret: bytes
    incarnation: Callable[[], bytes]
    image: Callable[[], ClusterImage]
    random_bytes: Callable[[int], bytes]


@dataclass(slots=True)
class _Newest:
    """Newest peer connection of one sender and purpose. The number outlives its connection."""

    number: LinkNumber
    connection: ref[ConnectionInfo]


class AcceptedLinks:
    """Accepted peer connections of one broker. Without a receiver, all are refused."""

    def __init__(self, receiver: Receiver | None = None) -> None:
        self._receiver = receiver
        self._exchanges: WeakKeyDictionary[ConnectionInfo, ScramServer] = WeakKeyDictionary()
        self._newest: dict[tuple[int, str], _Newest] = {}
        if receiver is not None:
            self._credentials = Credentials.of(receiver.secret, receiver.random_bytes(SALT_SIZE_BYTES))

    def begin(self, connection: ConnectionInfo, mechanism: str) -> None:
        """Begin an exchange (SaslHandshake). Raises UnexpectedRequest, UnknownMechanism."""
        receiver = self._receiver
        if receiver is None or connection.listener_name != receiver.listener_name:
            raise UnexpectedRequest("this listener has no authentication")
        if connection.principal is not None or connection in self._exchanges:
            raise UnexpectedRequest("the connection has authenticated, or begun to")
        if mechanism != MECHANISM:
            raise UnknownMechanism(mechanism)
        self._exchanges[connection] = ScramServer(self._credentials, nonce_of(receiver.random_bytes(NONCE_SIZE_BYTES)))

    def answer(self, connection: ConnectionInfo, message: bytes) -> bytes:
        """Answer a message (SaslAuthenticate). After the second answer the connection is a peer connection.

        Raises UnexpectedRequest, NotAuthenticated.
        """
        exchange = self._exchanges.get(connection)
        if exchange is None:
            raise UnexpectedRequest("the connection has sent no SaslHandshake")
        try:
            if not exchange.has_challenged:
                return exchange.challenge(message)
            verifier = exchange.finish(message)
            self._accept(connection, LinkClaim.read(exchange.user, exchange.extensions))
        except (ScramError, ValueError) as error:
            raise NotAuthenticated(str(error)) from error
        del self._exchanges[connection]
        return verifier

    def end_all(self) -> None:
        """Make all peer connections void, before this broker registers again with another `incarnation`."""
        for one in self._newest.values():
            _end(one, "this broker has registered anew")

    def _accept(self, connection: ConnectionInfo, claim: LinkClaim) -> None:
        self._check(claim)
        place = claim.sender, claim.purpose
        before = self._newest.get(place)
        if before is not None:
            if claim.number <= before.number:
                raise NotAuthenticated(f"{claim.user} has a newer link")
            _end(before, f"{claim.user} has a newer link")
        self._newest[place] = _Newest(claim.number, ref(connection))
        connection.principal = f"{PRINCIPAL_OF_BROKERS}{claim.sender}"
        connection.is_peer = True

    def _check(self, claim: LinkClaim) -> None:
        """Check that the claim names this broker's present registration, and no outdated one of another broker."""
        receiver = self._receiver
        assert receiver is not None
        if claim.receiver != receiver.broker_id or claim.incarnation != receiver.incarnation():
            raise NotAuthenticated("the link is for another broker, or for an earlier registration of this one")
        if claim.sender == receiver.broker_id:
            raise NotAuthenticated("no broker has links to itself")
        known = receiver.image().members.get(claim.sender)
        if known is not None and known.epoch > claim.number.broker_epoch:
            raise NotAuthenticated(f"{claim.user} has registered anew")


def _end(link: _Newest, why: str) -> None:
    connection = link.connection()
    if connection is not None and connection.ends_because is None:
        connection.ends_because = why
