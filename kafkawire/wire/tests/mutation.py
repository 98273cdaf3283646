"""Mutated frames: valid requests of every API and version with bytes flipped, cut, doubled or enlarged."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache

from kio.static.constants import EntityType

from kafkawire.messages import MODULES
from kafkawire.requests.headers import request_class
from kafkawire.wire.tests.kio_values import Maker, kio_class, known_versions, oracle_bytes

HOSTILE = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff", b"\x80" * 6, b"\xff\xfe")


@cache
def seeds(keys: tuple[int, ...]) -> list[bytes]:
    """Whole requests of each API and version, without their size."""
    frames = []
    for key in keys:
        message = request_class(key)
        for version in range(message.VERSIONS[0], min(message.VERSIONS[1], known_versions(MODULES[key])[-1]) + 1):
            body = oracle_bytes(
                Maker(f"f/{key}/{version}", "random").make(kio_class(MODULES[key], version, EntityType.request))
            )
            tags = b"\0" if version >= message.FLEXIBLE_FROM else b""
            frames.append(struct.pack(">hhih", key, version, 7, 2) + b"me" + tags + body)
    return frames


def mutated_frames(seed: int, count: int, keys: tuple[int, ...] = tuple(MODULES)) -> Iterator[bytearray]:
    """`count` frames from a seed; each has one to four mutations."""
    draw = random.Random(seed)
    sources = seeds(keys)
    for _ in range(count):
        frame = bytearray(draw.choice(sources))
        for _ in range(draw.randint(1, 4)):
            wound(frame, draw)
        yield frame


def wound(frame: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(frame)) if frame else 0
    kind = draw.randrange(6)
    if kind == 0 and frame:
        frame[at] ^= 1 << draw.randrange(8)
    elif kind == 1 and frame:
        frame[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif kind == 2:
        del frame[at:]
    elif kind == 3:
        del frame[at : at + draw.randint(1, 8)]
    elif kind == 4:
        frame[at:at] = frame[at : at + draw.randint(1, 16)]
    else:
        hostile = draw.choice(HOSTILE)
        frame[at : at + len(hostile)] = hostile
