"""Markers: the control batches with which a coordinator ends a transaction in a partition (docs/formats/segment.md).

Pure. A marker is a batch of its own, transactional and control, of the producer whose transaction it ends, without a
sequence, with one record. Behaviour: Kafka's EndTransactionMarker, ControlRecordType and
MemoryRecords.withEndTransactionMarker.
"""

import struct

from engine.api import Marker, Outcome
from engine.batches.batch import (
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    build_batch,
    walk_records,
)
from engine.errors import CorruptMessage

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = 0


def build_marker(marker: Marker, now_ms: int) -> bytearray:
    """Build the batch of a marker, without an offset."""
    record = Record(_KEY.pack(_VERSION, marker.outcome), _VALUE.pack(_VERSION, marker.coordinator_epoch), now_ms)
    return build_batch(
        [record],
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer=(marker.producer_id, marker.producer_epoch, NO_SEQUENCE),
    )


def parse_marker(header: BatchHeader, batch: bytes | bytearray | memoryview) -> Marker | None:
    """Parse a control batch. None: it is no marker, since compaction has removed its record, or it is of another type
    (Kafka's own logs have such).

    Newer versions only append fields. Raises CorruptMessage.
    """
    if not header.record_count:
        return None
    record = next(iter(walk_records(header, memoryview(batch)[HEADER_SIZE_BYTES:])), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptMessage("a control batch without a type")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptMessage(f"a control record of version {version}")
    if not header.is_transactional or kind not in (Outcome.ABORT, Outcome.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptMessage("a marker without the epoch of its coordinator")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptMessage(f"a marker of version {version}")
    return Marker(header.producer_id, header.producer_epoch, coordinator_epoch, Outcome(kind))
