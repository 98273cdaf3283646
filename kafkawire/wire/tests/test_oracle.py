"""Our codec against kio's on valid input, byte for byte: every API, version and direction."""

from __future__ import annotations

import os

import pytest
from kio.static.constants import EntityType

from kafkawire.messages import MODULES
from kafkawire.requests.headers import request_class, response_class
from kafkawire.wire.message import Message
from kafkawire.wire.primitives import DecodeError
from kafkawire.wire.tests.kio_values import Maker, Side, as_ours, kio_class, known_versions, matches, oracle_bytes

SEEDS = int(os.environ.get("KAFKAWIRE_ORACLE_SEEDS", "2"))
CUT_SIZE_BYTES = 1000
TRIES = 8

CASES = [
    pytest.param(key, kind, id=f"{name}-{kind.name}")
    for key, name in MODULES.items()
    for kind in (EntityType.request, EntityType.response)
]


def our_class(key: int, kind: Side) -> type[Message]:
    return request_class(key) if kind is EntityType.request else response_class(key)


def shared_versions(key: int, ours: type[Message]) -> list[int]:
    known = known_versions(MODULES[key])
    return [one for one in range(ours.VERSIONS[0], ours.VERSIONS[1] + 1) if one in known]


def joined(message: Message, version: int) -> bytes:
    return b"".join(bytes(segment) for segment in message.encode(version))


@pytest.mark.parametrize(("key", "kind"), CASES)
def test_same_values_and_same_bytes(key: int, kind: Side) -> None:
    ours = our_class(key, kind)
    for version in shared_versions(key, ours):
        theirs = kio_class(MODULES[key], version, kind)
        for style, seed in [("least", 0), *(("random", seed) for seed in range(SEEDS))]:
            value = Maker(f"{seed}/{key}/{version}/{kind.name}", style).make(theirs)
            encoded = oracle_bytes(value)
            decoded = ours.decode(encoded, version)
            assert matches(decoded, as_ours(value)), (version, seed)
            assert joined(decoded, version) == encoded, (version, seed)
            padded = bytearray(b"\xff" * 3 + encoded + b"\xff" * 3)
            assert joined(ours.decode(padded, version, 3, 3 + len(encoded)), version) == encoded


def body_to_cut(key: int, kind: Side, version: int, seed: int) -> bytes:
    """A random message, small enough (nearly always) to try all its truncations."""
    theirs = kio_class(MODULES[key], version, kind)
    bodies = (oracle_bytes(Maker(f"t{seed}.{n}/{key}/{version}", "random").make(theirs)) for n in range(TRIES))
    shortest = b""
    for body in bodies:
        shortest = min(shortest or body, body, key=len)
        if len(shortest) <= CUT_SIZE_BYTES:
            break
    return shortest


@pytest.mark.parametrize(("key", "kind"), CASES)
def test_every_truncation_is_refused_and_bytes_behind_are_ignored(key: int, kind: Side) -> None:
    ours = our_class(key, kind)
    for version in shared_versions(key, ours):
        for seed in range((SEEDS + 1) // 2):
            encoded = body_to_cut(key, kind, version, seed)
            longer = encoded + b"\xff" * 64
            for size in range(len(encoded)):
                with pytest.raises(DecodeError):
                    ours.decode(encoded[:size], version)
                with pytest.raises(DecodeError):
                    ours.decode(longer, version, 0, size)
            assert joined(ours.decode(longer, version), version) == encoded
