"""The greatest timestamp of a batch whose header has a wrong one. Pure.

sarama up to 1.45.0 always writes -1 there. Kafka's LogValidator takes the greatest timestamp of the
records for each produced batch; here only a header that is wrong costs a look at the records.
"""

from engine.batches.batch import HEADER_SIZE_BYTES, TIMESTAMP_MAX_MS, BatchHeader, get_varint
from engine.batches.codecs import decompress
from engine.errors import CorruptMessage

_LEAST_DELTA_MS = -(2**63)


def newest_timestamp_ms(header: BatchHeader, body: bytes | memoryview) -> int:
    """The greatest timestamp (ms) of the records in an uncompressed records section; -1 or more. Raises
    CorruptMessage if sizes are wrong, or the timestamp has more than 64 bits."""
    position, newest_delta_ms = 0, _LEAST_DELTA_MS
    try:
        for _ in range(header.record_count):
            size_bytes, position = get_varint(body, position)
            delta_ms, fields = get_varint(body, position + 1)  # behind the attributes
            newest_delta_ms = max(newest_delta_ms, delta_ms)
            position += size_bytes
            if fields > position:
                raise CorruptMessage("a record ends within a field")
    except IndexError:
        raise CorruptMessage("a record ends within a field") from None
    if position != len(body):
        raise CorruptMessage("the records do not fill their batch")
    newest_ms = header.base_timestamp_ms + newest_delta_ms
    if newest_ms > TIMESTAMP_MAX_MS:  # a varint has up to 70
        raise CorruptMessage(f"the timestamp {newest_ms} has more than 64 bits")
    return max(newest_ms, header.max_timestamp_ms)


def newest_of_stored(batch: memoryview, header: BatchHeader) -> int:
    """The greatest timestamp (ms) of a stored batch, from its records if its header is wrong. Records that cannot be
    decoded have the base timestamp."""
    if not header.has_wrong_max_timestamp:
        return header.max_timestamp_ms
    try:
        return newest_timestamp_ms(header, decompress(header.codec_id, batch[HEADER_SIZE_BYTES:]))
    except CorruptMessage:
        return header.base_timestamp_ms
