"""Aborted transactions of a segment: what a reader of committed records has to leave out.

Pure; docs/formats/aborted-index.md. Kafka's TransactionIndex and AbortedTxn: an entry for each marker that aborts, in
the segment of the marker. An entry too many is harmless, one that is missing shows records that were taken back.
"""

from collections.abc import Iterable
from struct import Struct

from engine.api import AbortedTransaction

SUFFIX = ".txnindex"
_ENTRY = Struct(">hqqqq")  # version, producer id, first, last, last stable offset
_VERSION = 0


class AbortedIndexDamaged(Exception):
    """Not what was written, or of another version: it must come from the log."""


def aborted_index_name(base_offset: int) -> str:
    """Beside the segment of that name."""
    return f"{base_offset:020d}{SUFFIX}"


def encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    """In the order of their markers."""
    return b"".join([_ENTRY.pack(_VERSION, *one) for one in aborted])


def aborted_below(aborted: Iterable[AbortedTransaction], end_offset: int) -> list[AbortedTransaction]:
    """What is left of them where the log is cut."""
    return [one for one in aborted if one.last_offset < end_offset]


def decode_aborted(content: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Of a segment from one offset to below another. Raises AbortedIndexDamaged; there is no CRC, so what cannot be is
    looked for."""
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
