"""The simulated index, on the simulated disk: a crash changes its file as any other file."""

import struct
from bisect import bisect_left, insort
from collections.abc import Sequence
from zlib import crc32

from engine.index.store import IndexBroken, KeyValue
from engine.testing.simulated_disk import SimulatedFileSystem

_FRAME = struct.Struct(">II")  # size and CRC of a batch of writes
_ENTRY = struct.Struct(">?II")  # put or delete, sizes of key and value


class SimulatedIndexStore:
    """Simulated `engine.index.store.LevelDbStore`: a file of checksummed batches, which is replayed when it is
    opened."""

    def __init__(self, filesystem: SimulatedFileSystem, directory: str) -> None:
        try:
            if not filesystem.exists(directory):
                filesystem.make_dir(directory)
            self._file = filesystem.open(f"{directory}/batches", create=True)
            stored = self._file.read_at(0, self._file.size())
        except OSError as error:
            raise IndexBroken(str(error)) from error
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._end = 0
        while (size_bytes := self._replay(stored[self._end :])) > 0:
            self._end += size_bytes
        if self._end < len(stored):
            self._file.truncate(self._end)  # a torn tail
        self._is_open = True

    def _replay(self, rest: bytes) -> int:
        """Apply the batch at the start of `rest`; returns its size, or 0 at the end or the torn tail of the file."""
        if len(rest) < _FRAME.size:
            return 0
        size_bytes: int
        size_bytes, crc = _FRAME.unpack_from(rest)
        body = rest[_FRAME.size : _FRAME.size + size_bytes]
        if len(body) < size_bytes or not size_bytes:
            return 0
        if crc32(body) != crc:
            if any(rest[_FRAME.size + size_bytes :]):
                raise IndexBroken("Corruption: checksum mismatch")
            return 0
        position = 0
        while position < len(body):
            kind, key_size_bytes, value_size_bytes = _ENTRY.unpack_from(body, position)
            position += _ENTRY.size
            key = body[position : position + key_size_bytes]
            position += key_size_bytes
            self._apply(key, body[position : position + value_size_bytes] if kind else None)
            position += value_size_bytes
        return _FRAME.size + size_bytes

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value

    def write(self, puts: Sequence[KeyValue], deletes: Sequence[bytes] = (), *, sync: bool = False) -> None:
        assert self._is_open
        changes: list[tuple[bytes, bytes | None]] = [*((key, None) for key in deletes), *puts]
        body = b"".join(
            _ENTRY.pack(value is not None, len(key), len(value or b"")) + key + (value or b"") for key, value in changes
        )
        try:
            self._file.write_at([_FRAME.pack(len(body), crc32(body)) + body], self._end)
            if sync:
                self._file.fdatasync()
        except OSError as error:
            raise IndexBroken(str(error)) from error
        self._end += _FRAME.size + len(body)
        for key, value in changes:
            self._apply(key, value)

    def get(self, key: bytes) -> bytes | None:
        self._read()
        return self._values.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> list[KeyValue]:
        self._read()
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)][:limit]
        return [(key, self._values[key]) for key in keys]

    def _read(self) -> None:
        assert self._is_open
        try:
            self._file.read_at(0, 1)
        except OSError as error:
            raise IndexBroken(str(error)) from error

    def close(self) -> None:
        self._is_open = False
