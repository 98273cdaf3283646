"""Batches that keep their offsets."""

from engine.batches.batch import (
    Codec,
    seal_batch,
)
from engine.batches.codecs import compress
from testkit.logs import (
    NOW_MS,
    batch,
)


def kept(
    base_offset: int,
    *values: bytes,
    last_delta: int | None = None,
    attributes: int = 0,
    times_ms: tuple[int, int] = (NOW_MS, NOW_MS),
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch of these values from `base_offset` on; without values it has no record, and is not compressed."""
    attributes = attributes if values else 0
    body = bytes(batch(*values)[61:]) if values else b""
    return seal_batch(
        compress(Codec(attributes & 7), body) if values and attributes & 7 in set(Codec) else body,
        record_count=len(values),
        base_offset=base_offset,
        leader_epoch=77,
        attributes=attributes,
        timestamps_ms=times_ms if values else (-1, -1),
        producer=producer,
        last_offset_delta=last_delta,
    )
