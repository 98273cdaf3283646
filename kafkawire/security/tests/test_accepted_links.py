"""Peer connections that other brokers open to this one: authentication, and validity of the newest one only."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

import pytest

from coordinator.api import BrokerInfo, ClusterImage
from kafkawire.security.accepted_links import (
    AcceptedLinks,
    NotAuthenticated,
    Receiver,
    UnexpectedRequest,
    UnknownMechanism,
)
from kafkawire.security.link_claim import PURPOSE_MAX_CHARACTERS, LinkClaim, LinkNumber
from kafkawire.security.scram import MECHANISM, ScramClient, salted_by
from kafkawire.wire.connection_info import ConnectionInfo

SECRET = b"a secret of the brokers"
INCARNATION = bytes(range(16))
ME, SENDER = 1, 2


@dataclass
class World:
    """A broker to which others open peer connections."""

    incarnation: bytes = INCARNATION
    epochs: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = count()
        self.links = AcceptedLinks(
            Receiver(
                broker_id=ME,
                listener_name="BROKERS",
                secret=SECRET,
                incarnation=lambda: self.incarnation,
                image=self.image,
                random_bytes=lambda size: next(numbers).to_bytes(size, "big"),
            )
        )

    def image(self) -> ClusterImage:
        members = {one: BrokerInfo(one, (), epoch=epoch) for one, epoch in self.epochs.items()}
        return ClusterImage(1, "cluster", members=members)

    def open(self, claim: LinkClaim, secret: bytes = SECRET) -> ConnectionInfo:
        """Open a peer connection. Raises NotAuthenticated."""
        return self.authenticate(claim.user, claim.extensions(), secret)

    def authenticate(self, user: str, extensions: Mapping[str, str], secret: bytes = SECRET) -> ConnectionInfo:
        connection = connected()
        client = ScramClient(user, salted_by(secret), "nonce", extensions)
        self.links.begin(connection, MECHANISM)
        proof = client.final(self.links.answer(connection, client.first()))
        client.check(self.links.answer(connection, proof))
        return connection


def connected(listener: str = "BROKERS") -> ConnectionInfo:
    return ConnectionInfo(listener, "10.0.0.2", "10.0.0.1")


def claim(broker_epoch: int = 5, counter: int = 1, *, sender: int = SENDER, purpose: str = "control") -> LinkClaim:
    return LinkClaim(sender, purpose, LinkNumber(broker_epoch, counter), ME, INCARNATION)


def test_a_broker_that_knows_the_secret_is_let_in_by_its_name() -> None:
    connection = World().open(claim())
    assert (connection.principal, connection.is_peer, connection.ends_because) == ("Broker:2", True, None)


def test_client_without_the_secret_is_not_authenticated() -> None:
    world, connection = World(), connected()
    client = ScramClient("broker-2", salted_by(b"another secret of all"), "nonce", claim().extensions())
    world.links.begin(connection, MECHANISM)
    proof = client.final(world.links.answer(connection, client.first()))
    with pytest.raises(NotAuthenticated, match="does not know the secret"):
        world.links.answer(connection, proof)
    assert (connection.principal, connection.is_peer) == (None, False)
    world.open(claim())  # the number of the refused one is still free


def test_a_first_message_that_was_heard_before_leads_nowhere() -> None:
    """The recorded proof is for the nonce that the server chose then."""
    world, original, replayed = World(), connected(), connected()
    client = ScramClient("broker-2", salted_by(SECRET), "nonce", claim().extensions())
    world.links.begin(original, MECHANISM)
    proof = client.final(world.links.answer(original, client.first()))
    world.links.answer(original, proof)
    world.links.begin(replayed, MECHANISM)
    world.links.answer(replayed, client.first())
    with pytest.raises(NotAuthenticated, match="nonce"):
        world.links.answer(replayed, proof)
    assert (replayed.principal, original.ends_because) == (None, None)


@pytest.mark.parametrize("newer", [claim(5, 2), claim(6, 0)])
def test_a_newer_link_ends_the_older_one(newer: LinkClaim) -> None:
    world = World()
    older = world.open(claim(5, 1))
    newest = world.open(newer)
    assert older.ends_because == "broker-2 has a newer link"
    assert newest.ends_because is None


@pytest.mark.parametrize("late", [claim(5, 3), claim(5, 2), claim(4, 9)])
def test_a_link_that_is_not_newer_is_refused_even_when_the_newest_is_gone(late: LinkClaim) -> None:
    world = World()
    newest = world.open(claim(5, 3))
    with pytest.raises(NotAuthenticated, match="has a newer link"):
        world.open(late)
    assert newest.ends_because is None
    del newest
    gc.collect()
    with pytest.raises(NotAuthenticated, match="has a newer link"):
        world.open(late)


def test_other_senders_and_other_purposes_have_numbers_of_their_own() -> None:
    world = World()
    links = [world.open(claim(5, 9)), world.open(claim(5, 1, sender=3)), world.open(claim(5, 1, purpose="fetch-/d"))]
    assert [one.ends_because for one in links] == [None] * 3


def test_link_of_an_earlier_registration_of_its_sender_is_refused() -> None:
    world = World(epochs={SENDER: 6})
    with pytest.raises(NotAuthenticated, match="registered anew"):
        world.open(claim(5))
    world.open(claim(6))
    world.open(claim(7, sender=SENDER))  # the sender may have newer metadata


@pytest.mark.parametrize(
    "other",
    [
        claim()._replace(receiver=3),
        claim()._replace(incarnation=bytes(16)),
        claim(sender=ME),
    ],
)
def test_link_for_another_broker_or_registration_or_from_this_broker_is_refused(other: LinkClaim) -> None:
    with pytest.raises(NotAuthenticated):
        World().open(other)


def test_new_registration_of_this_broker_ends_all_links_and_keeps_their_numbers() -> None:
    world = World()
    before = world.open(claim(5, 2))
    world.links.end_all()
    world.incarnation = bytes(16)
    assert before.ends_because == "this broker has registered anew"
    with pytest.raises(NotAuthenticated, match="earlier registration"):
        world.open(claim(5, 3))
    with pytest.raises(NotAuthenticated, match="newer link"):
        world.open(claim(5, 2)._replace(incarnation=bytes(16)))
    world.open(claim(5, 3)._replace(incarnation=bytes(16)))


@pytest.mark.parametrize(
    ("user", "changes"),
    [
        ("broker-", {}),
        ("broker-02", {}),
        ("broker--2", {}),
        ("admin", {}),
        ("broker-" + "9" * 30, {}),
        ("broker-2", {"purpose": ""}),
        ("broker-2", {"purpose": "p" * (PURPOSE_MAX_CHARACTERS + 1)}),
        ("broker-2", {"epoch": "-1"}),
        ("broker-2", {"counter": "one"}),
        ("broker-2", {"incarnation": "00"}),
        ("broker-2", {"incarnation": "x" * 32}),
        ("broker-2", {"more": "1"}),
    ],
)
def test_malformed_claim_is_refused_although_its_proof_is_valid(user: str, changes: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        World().authenticate(user, {**claim().extensions(), **changes})


def test_authentication_is_refused_without_a_cluster_and_on_client_listeners() -> None:
    for links, connection in ((AcceptedLinks(), connected()), (World().links, connected("CLIENTS"))):
        with pytest.raises(UnexpectedRequest):
            links.begin(connection, MECHANISM)
        with pytest.raises(UnexpectedRequest):
            links.answer(connection, b"n,,n=broker-2,r=nonce")


def test_connection_authenticates_only_once_and_only_by_scram() -> None:
    world, connection = World(), connected()
    with pytest.raises(UnknownMechanism):
        world.links.begin(connection, "PLAIN")
    world.links.begin(connection, MECHANISM)
    with pytest.raises(UnexpectedRequest):
        world.links.begin(connection, MECHANISM)
    link = world.open(claim())
    with pytest.raises(UnexpectedRequest):
        world.links.begin(link, MECHANISM)
    with pytest.raises(UnexpectedRequest):
        world.links.answer(link, b"")
