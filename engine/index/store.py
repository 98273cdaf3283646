"""The only door to LevelDB: an ordered map of bytes that survives most things and is believed in none.

`IndexStore` is what the engine's index needs of it; `engine.index.twin` has its twin. Calls block: they are for a
worker. Whatever goes wrong is `IndexBroken`, and there is one answer to it: drop the store and build it anew from the
segments (docs/formats/index.md). Nothing here knows keys or segments.
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
    """The store cannot be opened, read or written. What it holds is not to be believed any more."""


class IndexStore(Protocol):
    """An open store. A crash keeps a prefix of the writes."""

    def write(self, puts: Sequence[KeyValue], deletes: Sequence[bytes] = (), *, sync: bool = False) -> None:
        """All of it or nothing; durable, with every write before it, only if `sync` says so."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> list[KeyValue]:
        """What lies within [start, stop), in order; the first `limit` of it."""

    def close(self) -> None: ...


OpenIndex = Callable[[str], IndexStore]  # makes the directory if need be; raises IndexBroken


class LevelDbStore:
    """LevelDB checks what it reads (paranoid checks, checksums) and tells instead of guessing."""

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
