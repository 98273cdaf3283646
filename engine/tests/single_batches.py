"""Batches of one record, valid or wrong in one place, for tests of header checks."""

import struct

from engine.batches.batch import Record, build_batch, seal_batch

NOW_MS = 1_700_000_000_000


def one(**fields: int) -> bytearray:
    """A batch of one record with these header fields and a right CRC."""
    arguments: dict[str, int] = {"record_count": 1, "base_offset": 0, "leader_epoch": -1, "attributes": 0}
    arguments.update((name, value) for name, value in fields.items() if name in arguments)
    timestamp_ms = fields.get("timestamp_ms", NOW_MS)
    producer = (fields.get("producer_id", -1), fields.get("producer_epoch", -1), fields.get("base_sequence", -1))
    body = build_batch([Record(b"k", b"v", timestamp_ms)])[61:]
    return seal_batch(body, timestamps_ms=(timestamp_ms, timestamp_ms), producer=producer, **arguments)


def patched(position: int, layout: str, value: int) -> bytearray:
    """A valid batch with overwritten bytes, and the CRC from before."""
    batch = one()
    struct.pack_into(layout, batch, position, value)
    return batch
