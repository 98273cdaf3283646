"""SCRAM-SHA-256: the example of RFC 7677, wrong secrets, and malformed messages."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MESSAGE_MAX_BYTES,
    Credentials,
    ScramClient,
    ScramError,
    ScramServer,
    nonce_of,
    salted_by,
)

SECRET = b"a secret of the brokers"
SALT = bytes(range(16))
CREDENTIALS = Credentials.of(SECRET, SALT)
EXTENSIONS = {"to": "2", "purpose": "a, b = c"}


def client(secret: bytes = SECRET, nonce: str = "client") -> ScramClient:
    return ScramClient("broker-1", salted_by(secret), nonce, EXTENSIONS)


def server(nonce: str = "server") -> ScramServer:
    return ScramServer(CREDENTIALS, nonce)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client_side = ScramClient("user", salted_by(b"pencil"), "rOprNGfwEbeRWgbNEkqO", {})
    server_side = ScramServer(Credentials.of(b"pencil", salt), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client_side.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server_side.challenge(client_side.first())
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = client_side.final(challenge)
    assert proof == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    verifier = server_side.finish(proof)
    assert verifier == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client_side.check(verifier)


def test_exchange_with_the_same_secret_gives_the_server_the_user_and_extensions() -> None:
    client_side, server_side = client(), server()
    client_side.check(server_side.finish(client_side.final(server_side.challenge(client_side.first()))))
    assert (server_side.user, server_side.extensions) == ("broker-1", EXTENSIONS)


def test_client_without_the_secret_is_refused() -> None:
    client_side, server_side = client(b"another secret of all"), server()
    proof = client_side.final(server_side.challenge(client_side.first()))
    with pytest.raises(ScramError, match="client does not know"):
        server_side.finish(proof)


def test_a_server_that_does_not_know_the_secret_proves_nothing() -> None:
    client_side = client()
    impostor = ScramServer(Credentials.of(b"another secret of all", SALT), "server")
    client_side.final(impostor.challenge(client_side.first()))
    for verifier in (b"v=", b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"v=%", b""):
        with pytest.raises(ScramError):
            client_side.check(verifier)


def test_client_without_an_exchange_accepts_no_server_proof() -> None:
    with pytest.raises(ScramError, match="server does not know"):
        client().check(b"v=")


def test_extensions_that_were_changed_on_the_way_are_refused() -> None:
    client_side, server_side = client(), server()
    challenge = server_side.challenge(client_side.first().replace(b"to=2", b"to=3"))
    with pytest.raises(ScramError, match="client does not know"):
        server_side.finish(client_side.final(challenge))


def test_messages_of_an_earlier_exchange_are_worth_nothing() -> None:
    client_side, server_side = client(), server()
    first = client_side.first()
    proof = client_side.final(server_side.challenge(first))
    server_side.finish(proof)
    another = server("other")
    another.challenge(first)
    with pytest.raises(ScramError, match="nonce is not that"):
        another.finish(proof)
    with pytest.raises(ScramError, match="client does not know"):
        another.finish(proof.replace(b"r=clientserver", b"r=clientother"))


def test_a_proof_without_a_challenge_is_none() -> None:
    with pytest.raises(ScramError):
        server().finish(b"c=,r=server,p=")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=no nce",
        b"n,,n=user,r=nonce,",
        b"n,,n=user,r=nonce,x",
        b"n,,n=user,r=nonce,m=must",
        b"n,,n=user,r=nonce,to=1,to=2",
        b"n,,n=user,r=nonce,TO=1",
        b"n,,n=us=er,r=nonce",
        b"n,,n=user,r=nonce,to==3d",
        b"n,a=other,n=user,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,,m=x,n=user,r=nonce",
        b"\xff,,n=user,r=nonce",
        b"n,,n=\0,r=nonce",
        b"n,,n=user,r=" + b"x" * MESSAGE_MAX_BYTES,
    ],
)
def test_malformed_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        server().challenge(message)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda proof: b"",
        lambda proof: proof[:-1],
        lambda proof: proof + b",",
        lambda proof: proof + b",x=y",
        lambda proof: b"x=y," + proof,
        lambda proof: proof.replace(b"c=biws", b"c=eSws"),
        lambda proof: proof.replace(b"c=biws", b"c=%"),
        lambda proof: proof.replace(b"r=client", b"r=clientt"),
        lambda proof: proof[: proof.index(b"p=") + 2],
        lambda proof: proof[: proof.index(b"p=") + 2] + b"AAAA",
        lambda proof: proof[: proof.index(b"p=") + 2] + b"A" * 43 + b"=",
        lambda proof: proof[: proof.index(b"p=") + 2] + "ä".encode(),
        lambda proof: proof + b"\xff",
    ],
)
def test_spoiled_proofs_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    client_side, server_side = client(), server()
    proof = client_side.final(server_side.challenge(client_side.first()))
    with pytest.raises(ScramError):
        server_side.finish(spoil(proof))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=clientserver,s=AAAA",
        b"r=client,s=AAAA,i=4096",
        b"r=other,s=AAAA,i=4096",
        b"r=clientser ver,s=AAAA,i=4096",
        b"r=clientserver,s=%,i=4096",
        b"r=clientserver,s=AAAA,i=",
        b"r=clientserver,s=AAAA,i=-1",
        b"r=clientserver,s=AAAA,i=%d" % (ITERATIONS_MIN - 1),
        b"r=clientserver,s=AAAA,i=%d" % (ITERATIONS_MAX + 1),
        b"r=clientserver,s=AAAA,i=" + b"9" * 900,
        b"r=clientserver,s=AAAA,i=4096,x=y",
        b"e=other-error",
    ],
)
def test_challenges_that_are_none_are_refused(challenge: bytes) -> None:
    with pytest.raises(ScramError):
        client().final(challenge)


def test_a_nonce_fits_into_a_message() -> None:
    nonce = nonce_of(bytes(range(18)))
    client_side, server_side = client(nonce=nonce), server(nonce)
    client_side.check(server_side.finish(client_side.final(server_side.challenge(client_side.first()))))


@given(st.binary(max_size=MESSAGE_MAX_BYTES))
def test_no_message_does_anything_else_than_being_refused(message: bytes) -> None:
    server_side = server()
    with pytest.raises(ScramError):
        server_side.finish(message)
    client_side = client()
    for read in (client_side.final, client_side.check, server_side.challenge):
        with suppress(ScramError):
            read(message)


@given(st.text(alphabet="nrcpvsime=,biwsclientserver0123456789+/", max_size=80))
def test_text_that_looks_like_a_message_is_refused_as_a_proof(text: str) -> None:
    client_side, server_side = client(), server()
    proof = client_side.final(server_side.challenge(client_side.first()))
    if text.encode() != proof:
        with pytest.raises(ScramError):
            server_side.finish(text.encode())
    with suppress(ScramError):
        server().challenge(b"n,," + text.encode())
