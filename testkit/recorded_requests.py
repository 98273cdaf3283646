"""Recorded requests of clients, byte for byte: the input of tests of the fast path.

`compat_tests/clients/frames/record.py` records them: a file for each client and version in `frames/`, xz over rows of
connection, size, and the frame without its size prefix, in the order of arrival.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

FRAMES: Final = Path(__file__).with_name("frames")
SUFFIX: Final = ".bin.xz"

_ROW: Final = Struct(">HI")  # connection, size
_START: Final = Struct(">hhi")  # api key, version, correlation id


class Recorded(NamedTuple):
    """A request of `client` on its n-th connection."""

    client: str
    connection: int
    frame: bytes

    @property
    def api_key(self) -> int:
        return int(_START.unpack_from(self.frame)[0])

    @property
    def version(self) -> int:
        return int(_START.unpack_from(self.frame)[1])


def recorded(*api_keys: int) -> Iterator[Recorded]:
    """All recorded requests, or those of some APIs."""
    for path in sorted(FRAMES.glob(f"*{SUFFIX}")):
        data = lzma.decompress(path.read_bytes())
        at = 0
        while at < len(data):
            connection, size = _ROW.unpack_from(data, at)
            at += _ROW.size + size
            row = Recorded(path.name.removesuffix(SUFFIX), connection, data[at - size : at])
            if not api_keys or row.api_key in api_keys:
                yield row


def keep(client: str, frames: Iterable[tuple[int, bytes]]) -> Path:
    """Write the requests of a client, by connection, in place of the earlier ones."""
    FRAMES.mkdir(exist_ok=True)
    path = FRAMES / f"{client}{SUFFIX}"
    rows = (_ROW.pack(connection, len(frame)) + frame for connection, frame in frames)
    path.write_bytes(lzma.compress(b"".join(rows), preset=9))
    return path
