"""Encoding of the aborted index: the aborted transactions of a segment, which read_committed consumers skip.

Pure; docs/formats/aborted-index.md. As in Kafka's TransactionIndex and AbortedTxn, each abort marker has an entry in
the segment of the marker. An entry too many is harmless. A missing entry shows records that were aborted.
"""

from collections.abc import Iterable
from struct import Struct

from engine.api import AbortedTransaction

SUFFIX = ".txnindex"
_ENTRY = Struct(">hqqqq")  # version, producer id, first, last, last stable offset
_VERSION = 0


class AbortedIndexDamaged(Exception):
    """The content differs from what was written, or has another version: read the log instead."""


def aborted_index_name(base_offset: int) -> str:
    """The file name of the aborted index of the segment that begins at `base_offset`."""
    return f"{base_offset:020d}{SUFFIX}"


def encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    """Encode aborted transactions, which are in the order of their markers."""
    return b"".join([_ENTRY.pack(_VERSION, *one) for one in aborted])


def aborted_below(aborted: Iterable[AbortedTransaction], end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions whose markers are below `end_offset`, where the log is truncated."""
    return [one for one in aborted if one.last_offset < end_offset]


def decode_aborted(content: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Decode the aborted index of the segment with offsets `base_offset` <= n < `end_offset`.

    Raises AbortedIndexDamaged. The file has no CRC, so each entry is checked for values that are impossible.
    """
    if len(content) % _ENTRY.size:
        raise AbortedIndexDamaged(f"{len(content)} bytes are no whole entries")
    found: list[AbortedTransaction] = []
    before = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(content):
        one = AbortedTransaction(*fields)
        if version != _VERSION:
            raise AbortedIndexDamaged(f"format version {version}")
        if not before < one.last_offset < end_offset:
            raise AbortedIndexDamaged(f"a marker at {one.last_offset} is not behind {before} and below {end_offset}")
        if not 0 <= one.first_offset < one.last_offset or one.producer_id < 0:
            raise AbortedIndexDamaged(f"a transaction of producer {one.producer_id} from {one.first_offset} on")
        if not 0 <= one.last_stable_offset <= one.last_offset + 1:
            raise AbortedIndexDamaged(f"stable to {one.last_stable_offset} behind a marker at {one.last_offset}")
        found.append(one)
        before = one.last_offset
    return found
