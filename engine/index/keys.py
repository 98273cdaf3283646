"""Keys of records, hashed for the stored index. All functions except `hash_of` run on a worker.

The work is divided into slices, so that memory and time of a job do not grow with the segment. A search checks the key
in the record itself.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from engine.api import ReadableFile
from engine.batches.batch import BatchHeader
from engine.batches.keyed import records_of_batch
from engine.errors import CorruptMessage
from engine.logs.recovery.loading import Part, position_of, stored_batch
from engine.logs.segments.segment import BatchAt, walk_headers

HASH_SIZE_BYTES = 8
SLICE_BYTES = 4 * 1024 * 1024


class KeyPlace(NamedTuple):
    """Position of a batch with a record whose key has that hash."""

    key_hash: bytes
    offset: int
    position: int


class KeySlice(NamedTuple):
    """The keys of the batches up to `end_offset`, each once per batch."""

    places: list[KeyPlace]
    end_offset: int


def hash_of(key: bytes) -> bytes:
    """The hash of a key in the index; two keys may have the same."""
    return blake2b(key, digest_size=HASH_SIZE_BYTES).digest()


def collect_keys(part: Part, offset: int) -> KeySlice:
    """Collect the keys of a slice, from the batch that holds `offset` on. Raises CorruptMessage and FileNotFoundError,
    as `loading.load` does."""
    places, end_offset = [], offset
    file = part.opened()
    for at in _slice(file, part, offset):
        header = at.header
        if not header.is_control:
            hashes = _hashes(stored_batch(file, at), header)
            places += [KeyPlace(key_hash, header.base_offset, at.position) for key_hash in hashes]
        end_offset = header.next_offset
    return KeySlice(places, end_offset)


def _hashes(batch: memoryview, header: BatchHeader) -> Iterable[bytes]:
    """Hashes of the keys of a batch; none if the records cannot be decoded, since no consumer can read them."""
    try:
        _, records = records_of_batch(batch, header)
    except CorruptMessage:
        return []
    keys = dict.fromkeys(key for _, key, *_ in records)
    return dict.fromkeys(hash_of(key) for key in keys if key is not None)


def _slice(file: ReadableFile, part: Part, offset: int) -> Iterator[BatchAt]:
    """The batches from the one that holds `offset`, until enough bytes of records were read."""
    read_bytes = 0
    for at in walk_headers(file, position_of(file, part, offset), part.end):
        yield at
        read_bytes += at.header.size_bytes
        if read_bytes >= SLICE_BYTES:
            return
