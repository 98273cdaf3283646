"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as two pure state machines: both sides prove that they know a secret.

Four messages are exchanged; they contain neither the secret nor an equivalent of it. Both sides add fresh random text
to each exchange, so that recorded messages are worthless in another one. The proof covers the client's name and its
*extensions* (as in Kafka): they cannot be changed on the way.

This module knows no connection, clock or source of randomness.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Self

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384  # the maximum that a client accepts from a server: some milliseconds
MESSAGE_MAX_BYTES: Final = 1024
NONCE_SIZE_BYTES: Final = 18
SALT_SIZE_BYTES: Final = 16
SALTS_KEPT: Final = 256  # with their results: at least the number of servers

_GS2_HEADER: Final = "n,,"  # no channel binding, no authorization id
_ATTRIBUTE: Final = re.compile(r"([A-Za-z]+)=([^,\x00]*)")
_EXTENSION: Final = re.compile(r"[a-z]{2,}")  # single letters belong to RFC 5802
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")

Salted = Callable[[bytes, int], bytes]  # from a salt and a number of iterations


class ScramError(Exception):
    """The other side breaks the protocol, or does not know the secret. The text is for people."""


def salted_by(secret: bytes) -> Salted:
    """A client's salted secret, by salt. Results are cached, as each takes milliseconds."""
    return lru_cache(maxsize=SALTS_KEPT)(partial(hashlib.pbkdf2_hmac, "sha256", secret))


def nonce_of(random_bytes: bytes) -> str:
    """Random bytes as text that fits into a message."""
    return _encoded(random_bytes)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A server's data about a secret."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, secret: bytes, salt: bytes, iterations: int = ITERATIONS_MIN) -> Self:
        """Derive the credentials, which takes some milliseconds."""
        salted = hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)
        return cls(salt, iterations, _hash(_client_key(salted)), _server_key(salted))


class ScramClient:
    """The client's side of one exchange: call `first`, `final` and `check`, each with the server's last message."""

    def __init__(self, user: str, salted: Salted, nonce: str, extensions: Mapping[str, str]) -> None:
        """`nonce` must be fresh. Names of `extensions` have two lower-case letters or more."""
        self._salted = salted
        self._nonce = nonce
        attributes = [f"{name}={_escaped(value)}" for name, value in extensions.items()]
        self._first_bare = ",".join([f"n={_escaped(user)}", f"r={nonce}", *attributes])
        self._signature = b""

    def first(self) -> bytes:
        """The first message, with the client's name."""
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The final message, with the proof. Raises ScramError."""
        text = _text(server_first)
        nonce, salt, iterations = _values(text, "r", "s", "i")
        if not _NONCE.fullmatch(nonce) or not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the nonce is not that of this exchange")
        if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations[:9]) <= ITERATIONS_MAX:
            raise ScramError(f"not {ITERATIONS_MIN} to {ITERATIONS_MAX} iterations")
        without_proof = f"c={_encoded(_GS2_HEADER.encode())},r={nonce}"
        salted = self._salted(_decoded(salt), int(iterations))
        message = _auth_message(self._first_bare, text, without_proof)
        client_key = _client_key(salted)
        self._signature = _signed(_server_key(salted), message)
        proof = _xor(client_key, _signed(_hash(client_key), message))
        return f"{without_proof},p={_encoded(proof)}".encode()

    def check(self, server_final: bytes) -> None:
        """Check that the server knows the secret as well. Raises ScramError."""
        (verifier,) = _values(_text(server_final), "v")
        if not self._signature or not hmac.compare_digest(_decoded(verifier), self._signature):
            raise ScramError("the server does not know the secret")


class ScramServer:
    """The server's side of one exchange: call `challenge`, then `finish`, once each."""

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        """`nonce` must be fresh."""
        self._credentials = credentials
        self._nonce = nonce
        self._first_bare = ""
        self._challenge = ""
        self._gs2_header = ""
        self.user = ""
        self.extensions: Mapping[str, str] = {}

    @property
    def has_challenged(self) -> bool:
        """Whether the proof is the next message."""
        return bool(self._challenge)

    def challenge(self, client_first: bytes) -> bytes:
        """The challenge. It sets `user` and `extensions`, which are not proved yet. Raises ScramError."""
        text = _text(client_first)
        binding, _, rest = text.partition(",")
        authorization_id, _, bare = rest.partition(",")
        if binding not in ("n", "y") or authorization_id:
            raise ScramError("channel binding and authorization ids are not supported")
        user, nonce, *extensions = _pairs(bare)
        if (user[0], nonce[0]) != ("n", "r") or not _NONCE.fullmatch(nonce[1]):
            raise ScramError("a first message has a name and a nonce")
        if not all(_EXTENSION.fullmatch(name) for name, _ in extensions):
            raise ScramError("an attribute that is not known here")
        self.user = _unescaped(user[1])
        self.extensions = {name: _unescaped(value) for name, value in extensions}
        if len(self.extensions) != len(extensions):
            raise ScramError("an attribute is there twice")
        self._nonce = nonce[1] + self._nonce
        self._gs2_header, self._first_bare = f"{binding},,", bare
        self._challenge = f"r={self._nonce},s={_encoded(self._credentials.salt)},i={self._credentials.iterations}"
        return self._challenge.encode()

    def finish(self, client_final: bytes) -> bytes:
        """Check the proof, and return the server's own proof. Raises ScramError."""
        text = _text(client_final)
        binding, nonce, proof = _values(text, "c", "r", "p")
        if _decoded(binding) != self._gs2_header.encode():
            raise ScramError("the first message began otherwise")
        if not self.has_challenged or not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("the nonce is not that of this exchange")
        message = _auth_message(self._first_bare, self._challenge, text.rpartition(",p=")[0])
        signature = _signed(self._credentials.stored_key, message)
        client_key = _xor(_decoded(proof), signature)
        if not hmac.compare_digest(_hash(client_key), self._credentials.stored_key):
            raise ScramError("the client does not know the secret")
        return f"v={_encoded(_signed(self._credentials.server_key, message))}".encode()


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_MAX_BYTES:
        raise ScramError("a message that is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is no text") from None


def _pairs(text: str) -> list[tuple[str, str]]:
    """The attributes of a message, two or more."""
    found = [_ATTRIBUTE.fullmatch(part) for part in text.split(",")]
    pairs = [(one[1], one[2]) for one in found if one is not None]
    if len(pairs) != len(found) or len(pairs) < 2:
        raise ScramError("a message that is malformed")
    return pairs


def _values(text: str, *names: str) -> list[str]:
    """Values of the attributes; the text must have exactly these, in this order. Raises ScramError."""
    found = [_ATTRIBUTE.fullmatch(part) for part in text.split(",")]
    values = [one[2] for one, name in zip(found, names, strict=False) if one is not None and one[1] == name]
    if len(values) != len(names) or len(found) != len(names):
        raise ScramError("a message that is malformed")
    return values


def _escaped(name: str) -> str:
    """Escape a name (RFC 5802's saslname)."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    if re.search("=(?!3D|2C)", name):
        raise ScramError("a name that is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ScramError("a message that is malformed") from None


def _auth_message(first_bare: str, server_first: str, without_proof: str) -> bytes:
    return f"{first_bare},{server_first},{without_proof}".encode()


def _client_key(salted: bytes) -> bytes:
    return _signed(salted, b"Client Key")


def _server_key(salted: bytes) -> bytes:
    return _signed(salted, b"Server Key")


def _signed(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    """XOR of two byte strings. Raises ScramError if their lengths differ."""
    if len(one) != len(other):
        raise ScramError("a proof that is malformed")
    return bytes(each ^ mask for each, mask in zip(one, other, strict=True))
