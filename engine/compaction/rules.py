"""The rules of compaction, batch by batch: which records, tombstones and markers stay. Pure.

The newest record of every key stays. Aborted records do not count, and go. The marker of a transaction stays until no
other record of the transaction is left, and then as long as a tombstone, so that a consumer that has read the beginning
of the transaction reads its end.

Semantics of Kafka's Cleaner, SkimpyOffsetMap and MemoryRecords.filterTo (KIP-534); docs/formats/compaction.md describes
the result. This module does not know files and segments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from engine.api import AbortedTransaction
from engine.batches.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP_MS,
    BatchHeader,
    Codec,
    get_varint,
    timestamp_of,
    varint,
)
from engine.batches.codecs import compress
from engine.batches.keyed import Keyed, records_of_batch, resealed
from engine.batches.markers import parse_marker
from engine.compaction.transactions import PassedTransactions

KEY_MAX_BYTES = 32  # longer keys are known by a digest of this size; no shorter key equals it
ENTRY_SIZE_BYTES = 160  # memory for a key: its bytes, an offset, and its part of the table


def table_key(key: bytes) -> bytes:
    """The key, or the digest of a long key, by which a table in memory knows it."""
    return key if len(key) < KEY_MAX_BYTES else blake2b(key, digest_size=KEY_MAX_BYTES).digest()


@dataclass(slots=True)
class NewestOffsets:
    """The newest offset of each key in the dirty records below `end_offset`, as far as they were read or fit into
    memory."""

    size_max_bytes: float
    first_dirty_offset: int
    transactions: PassedTransactions = field(default_factory=PassedTransactions)
    offsets: dict[bytes, int] = field(default_factory=dict)
    end_offset: int = 0

    @property
    def is_full(self) -> bool:
        return bool(self.offsets) and self.fill_ratio >= 1

    @property
    def fill_ratio(self) -> float:
        """The used part of the memory, 0 to 1; one key always fits."""
        return len(self.offsets) * ENTRY_SIZE_BYTES / self.size_max_bytes if self.size_max_bytes else 1.0

    def note(self, batch: memoryview, header: BatchHeader) -> None:
        """Note the next batch. Raises CorruptMessage."""
        first, base_offset, offsets = self.first_dirty_offset, header.base_offset, self.offsets
        if header.is_control:
            marker = parse_marker(header, batch)
            if marker is not None:
                self.transactions.end(header, marker)
        elif self.transactions.has_aborted(header):
            pass
        elif header.next_offset > first and header.record_count:
            for delta, key, _, _, _ in records_of_batch(batch, header)[1]:
                if key is not None and base_offset + delta >= first:
                    offsets[key if len(key) < KEY_MAX_BYTES else table_key(key)] = base_offset + delta
        self.end_offset = header.next_offset


@dataclass(slots=True)
class Rules:
    """The rules for one pass over a log.

    `last_offsets`: for each known producer, the end of its last batch, or the offset of its last marker. The other
    fields are of the current group of segments: `kept` has the remaining aborted transactions; `tombstones_to` and
    `markers_to` are behind the last tombstone and marker that were dropped, whose delete horizons were up to
    `dropped_ms`. Batches that got a delete horizon in this pass got `stamped_ms`.
    """

    newest: NewestOffsets
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int]
    transactions: PassedTransactions = field(default_factory=PassedTransactions)
    kept: list[AbortedTransaction] = field(default_factory=list)
    tombstones_to: int = 0
    markers_to: int = 0
    dropped_ms: int | None = None
    stamped_ms: int | None = None

    def begin_group(self) -> None:
        """Begin the next group of segments, of which one is made."""
        self.kept.clear()
        self.tombstones_to = self.markers_to = 0
        self.dropped_ms = self.stamped_ms = None

    def cleaned(self, batch: memoryview, header: BatchHeader, end_offset: int) -> memoryview | bytearray | None:
        """The rest of a batch in a segment that is to end at `end_offset`; the batch itself if nothing changes; None if
        it goes.

        Raises CorruptMessage.
        """
        if header.is_control:
            return self._cleaned_marker(batch, header, end_offset)
        is_aborted = self.transactions.has_aborted(header)
        if header.base_offset >= self.newest.end_offset:
            return batch
        if not header.record_count:
            return batch if self._must_stay(header, end_offset) else None
        if is_aborted:
            return _emptied(header) if self._must_stay(header, end_offset) else None
        body, records = records_of_batch(batch, header)
        kept = self._kept(records, header)
        if not kept:
            return _emptied(header) if self._must_stay(header, end_offset) else None
        if self._wants_horizon(header) and not all(has_value for _, _, has_value, _, _ in kept):
            return self._stamped(body, header, kept)
        if len(kept) == len(records):
            return batch
        return _rewritten(body, header, kept, header.base_timestamp_ms, header.attributes)

    def _cleaned_marker(self, batch: memoryview, header: BatchHeader, end_offset: int) -> memoryview | bytearray | None:
        """The rest of a marker, as in Kafka's Cleaner.

        A marker gets a delete horizon when no record of its transaction is left, and goes after that time. The marker
        may have come from the leader with a horizon, while records of the transaction are still in this log: then the
        horizon is removed.
        """
        marker = parse_marker(header, batch)
        if marker is None:
            is_empty = not header.record_count and header.base_offset < self.newest.end_offset
            return None if is_empty and not self._must_stay(header, end_offset) else batch
        ends_nothing, entry = self.transactions.end(header, marker)
        if not ends_nothing or header.base_offset >= self.newest.end_offset:
            if entry is not None:
                self.kept.append(entry)
            return batch if header.delete_horizon_ms is None else _without_horizon(batch, header)
        if self._wants_horizon(header):
            body, records = records_of_batch(batch, header)
            return self._stamped(body, header, records)
        if not self._is_past(header) or self._is_last_of_producer(header):
            return batch
        self.markers_to = header.next_offset
        self._note_dropped(header)
        return _emptied(header) if self._must_stay(header, end_offset) else None

    def _kept(self, records: Sequence[Keyed], header: BatchHeader) -> list[Keyed]:
        base_offset, end_offset = header.base_offset, self.newest.end_offset
        newest = self.newest.offsets.get
        drops_tombstones = not self._wants_horizon(header) and self._is_past(header)
        kept = []
        for record in records:
            delta, key, has_value, _, _ = record
            offset = base_offset + delta
            if offset < end_offset:  # the keys behind are not known
                if key is None or newest(key if len(key) < KEY_MAX_BYTES else table_key(key), -1) > offset:
                    continue
                if drops_tombstones and not has_value:
                    self.tombstones_to = offset + 1
                    self._note_dropped(header)
                    continue
            kept.append(record)
        return kept

    def _wants_horizon(self, header: BatchHeader) -> bool:
        """Whether a batch is to get a delete horizon.

        A batch that no pass here has seen may have the horizon of the leader, where the older records were gone
        already.
        """
        return header.delete_horizon_ms is None or header.next_offset > self.newest.first_dirty_offset

    def _is_past(self, header: BatchHeader) -> bool:
        return header.delete_horizon_ms is not None and header.delete_horizon_ms <= self.now_ms

    def _stamped(self, body: bytes, header: BatchHeader, kept: Sequence[Keyed]) -> bytearray:
        self.stamped_ms = self.now_ms + self.delete_retention_ms
        return _rewritten(body, header, kept, self.stamped_ms, header.attributes | DELETE_HORIZON_BIT)

    def _note_dropped(self, header: BatchHeader) -> None:
        assert header.delete_horizon_ms is not None
        self.dropped_ms = max(header.delete_horizon_ms, self.dropped_ms or 0)

    def _must_stay(self, header: BatchHeader, end_offset: int) -> bool:
        """Whether a batch without records must stay.

        The last batch of a producer has its sequence, and the last one of a segment shows where the segment ends.
        """
        return header.next_offset == end_offset or self._is_last_of_producer(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        return self.last_offsets.get(header.producer_id) == header.next_offset - 1


def _emptied(header: BatchHeader) -> bytearray:
    """The batch without its records, as DefaultRecordBatch.writeEmptyHeader."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return resealed(header, b"", 0, attributes, (NO_TIMESTAMP_MS, header.max_timestamp_ms))


def _without_horizon(batch: memoryview, header: BatchHeader) -> bytearray:
    """A marker without its delete horizon; a marker has one timestamp."""
    attributes = header.attributes & ~DELETE_HORIZON_BIT
    body, records = records_of_batch(batch, header)
    return _rewritten(body, header, records, header.max_timestamp_ms, attributes)


def _rewritten(body: bytes, header: BatchHeader, kept: Sequence[Keyed], base_ms: int, attributes: int) -> bytearray:
    """The batch with the `kept` records, relative to another base timestamp, which may be a delete horizon."""
    moved_ms = header.base_timestamp_ms - base_ms
    section, newest_delta_ms = bytearray(), -(2**63)
    for _, _, _, start, end in kept:
        fields = start + 1
        while body[fields - 1] > 0x7F:  # the record's size
            fields += 1
        delta_ms, rest = get_varint(body, fields + 1)
        newest_delta_ms = max(newest_delta_ms, delta_ms)
        section += _moved(body[fields:end], delta_ms + moved_ms, rest - fields) if moved_ms else body[start:end]
    newest_ms = header.max_timestamp_ms if header.is_log_append_time else timestamp_of(header, newest_delta_ms)
    packed = compress(Codec(header.codec_id), bytes(section))
    return resealed(header, packed, len(kept), attributes, (base_ms, newest_ms))


def _moved(fields: bytes, delta_ms: int, rest: int) -> bytes:
    """A record with another timestamp delta; `rest` is where the old delta ends."""
    timestamp = varint(delta_ms)
    return varint(1 + len(timestamp) + len(fields) - rest) + fields[:1] + timestamp + fields[rest:]
