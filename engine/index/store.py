"""Access to LevelDB, an ordered map of bytes, for the index.

`IndexStore` is the interface; `engine.testing.simulated_index` has the simulated index. Calls block: they are for a
worker. Each failure is `IndexBroken`; then the store is dropped and built again from the segments
(docs/formats/index.md). This module knows neither keys nor segments.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

import plyvel

WRITE_BUFFER_BYTES = 1 << 20
CACHE_BYTES = 4 << 20
OPEN_FILES_MAX = 64

KeyValue = tuple[bytes, bytes]


class IndexBroken(Exception):
    """The store cannot be opened, read or written, so that its content cannot be trusted any more."""


class IndexStore(Protocol):
    """An open store. A crash keeps a prefix of the writes."""

    def write(self, puts: Sequence[KeyValue], deletes: Sequence[bytes] = (), *, sync: bool = False) -> None:
        """Write atomically. With `sync` this and all writes before are durable."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> list[KeyValue]:
        """Keys and values within [start, stop), in order; the first `limit` of them."""

    def close(self) -> None: ...


OpenIndex = Callable[[str], IndexStore]  # creates the directory if it is missing; raises IndexBroken


class LevelDbStore:
    """The index in LevelDB, with paranoid checks and checksums: damage raises IndexBroken."""

    def __init__(self, directory: str) -> None:
        try:
            self._database = plyvel.DB(
                directory,
                create_if_missing=True,
                paranoid_checks=True,
                write_buffer_size=WRITE_BUFFER_BYTES,
                lru_cache_size=CACHE_BYTES,
                max_open_files=OPEN_FILES_MAX,
            )
        except (plyvel.Error, OSError) as error:
            raise IndexBroken(str(error)) from error

    def write(self, puts: Sequence[KeyValue], deletes: Sequence[bytes] = (), *, sync: bool = False) -> None:
        try:
            with self._database.write_batch(sync=sync) as batch:
                for key in deletes:
                    batch.delete(key)
                for key, value in puts:
                    batch.put(key, value)
        except plyvel.Error as error:
            raise IndexBroken(str(error)) from error

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._database.get(key, verify_checksums=True)
        except plyvel.Error as error:
            raise IndexBroken(str(error)) from error
        return found

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> list[KeyValue]:
        try:
            with self._database.iterator(start=start, stop=stop, verify_checksums=True) as found:
                return list(islice(found, limit))
        except plyvel.Error as error:
            raise IndexBroken(str(error)) from error

    def close(self) -> None:
        self._database.close()
