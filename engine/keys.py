"""Keys of records, hashed for the stored index. For a worker, but for the hash.

Work is cut into slices, so that neither memory nor the time of a job grows with a segment. Nothing is answered that was
not read from the record itself.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from engine.api import ReadableFile
from engine.compaction import keys_of
from engine.filesystem import FileSystem
from engine.loading import Part, body_of, position_of
from engine.segment import BatchAt, walk_headers

HASH_SIZE_BYTES = 8
SLICE_BYTES = 4 * 1024 * 1024


class KeyPlace(NamedTuple):
    """A batch with a record of such a key."""

    key_hash: bytes
    offset: int
    position: int


class KeySlice(NamedTuple):
    """The keys of the batches up to `end_offset`, each once per batch."""

    places: list[KeyPlace]
    end_offset: int


def hash_of(key: bytes) -> bytes:
    """What stands for a key in the index; two keys may share it."""
    return blake2b(key, digest_size=HASH_SIZE_BYTES).digest()


def collect_keys(filesystem: FileSystem, part: Part, offset: int) -> KeySlice:
    """From the batch that holds `offset` on. CorruptMessage, FileNotFoundError: as `loading.load`."""
    places, end_offset = [], offset
    file = part.opened(filesystem)
    for at in _slice(file, part, offset):
        header = at.header
        if not header.is_control:
            keys = dict.fromkeys(key for _, key, *_ in keys_of(bytes(body_of(file, at)), header.record_count))
            hashes = dict.fromkeys(hash_of(key) for key in keys if key is not None)
            places += [KeyPlace(key_hash, header.base_offset, at.position) for key_hash in hashes]
        end_offset = header.next_offset
    return KeySlice(places, end_offset)


def _slice(file: ReadableFile, part: Part, offset: int) -> Iterator[BatchAt]:
    """The batches from the one that holds `offset`, until enough bytes of records were read."""
    read_bytes = 0
    for at in walk_headers(file, position_of(file, part, offset), part.end):
        yield at
        read_bytes += at.header.size_bytes
        if read_bytes >= SLICE_BYTES:
            return
