"""Records as far as what has to do with keys looks at them, and batches made anew from some of them. Pure."""

from engine.batches.batch import HEADER_SIZE_BYTES, BatchHeader, get_varint, seal_batch
from engine.batches.codecs import decompress
from engine.errors import CorruptMessage

# A record as far as compaction looks at it: offset delta, key, whether it has a value, and where it lies in the records
# section. No class: making one for each record of a log would cost more than reading it.
Keyed = tuple[int, bytes | None, bool, int, int]


def keys_of(body: bytes, count: int) -> list[Keyed]:
    """The records of an uncompressed records section; CorruptMessage when they do not add up.

    It looks at no value and no header, and calls nothing while numbers have two bytes at most: most of the time that
    compaction takes is spent here.
    """
    found: list[Keyed] = []
    position = wrong = 0
    try:
        for _ in range(count):
            start, length, position = position, body[position], position + 1
            wrong |= length
            if length > 0x7F:
                length, position = length & 0x7F | body[position] << 7, position + 1
                if length > 0x3FFF:
                    length, position = get_varint(body, start)
                    length <<= 1
            end = position + (length >> 1)
            position += 1  # attributes: unused
            while body[position] > 0x7F:  # timestamp
                position += 1
            delta, position = body[position + 1], position + 2
            wrong |= delta
            if delta > 0x7F:
                delta, position = delta & 0x7F | body[position] << 7, position + 1
                if delta > 0x3FFF:
                    delta, position = get_varint(body, position - 2)
                    delta <<= 1
            size, position = body[position], position + 1
            if size > 0x7F:
                size, position = get_varint(body, position - 1)
                size = 1 if size < 0 else size << 1
            key = None if size & 1 else body[position : position + (size >> 1)]
            position += 0 if size & 1 else size >> 1
            found.append((delta >> 1, key, not body[position] & 1, start, end))
            wrong |= position >= end
            position = end
    except IndexError:
        raise CorruptMessage("a record ends within a field") from None
    if wrong & 1 or position != len(body):  # zigzag: what is odd is below zero
        raise CorruptMessage("a record has a size or an offset that cannot be")
    return found


def records_of_batch(batch: memoryview, header: BatchHeader) -> tuple[bytes, list[Keyed]]:
    """Its records section, uncompressed, and what is in it. CorruptMessage."""
    body = bytes(decompress(header.codec_id, batch[HEADER_SIZE_BYTES:]))
    return body, keys_of(body, header.record_count)


def resealed(
    header: BatchHeader, section: bytes, count: int, attributes: int, timestamps_ms: tuple[int, int]
) -> bytearray:
    """With offsets, epoch and producer as in `header`: what is derived from a log stays as it is."""
    return seal_batch(
        section,
        record_count=count,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        timestamps_ms=timestamps_ms,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        last_offset_delta=header.last_offset_delta,
    )
