"""Records without their values, for code that needs only keys, and batches built again from some of them. Pure."""

from engine.batches.batch import HEADER_SIZE_BYTES, BatchHeader, get_varint, seal_batch
from engine.batches.codecs import decompress
from engine.errors import CorruptMessage

# A record for compaction: offset delta, key, whether it has a value, and its start and end in the records section. This
# is no class: creating an object for each record would cost more than reading the log.
Keyed = tuple[int, bytes | None, bool, int, int]


def keys_of(body: bytes, count: int) -> list[Keyed]:
    """Keys of the records of an uncompressed records section. Raises CorruptMessage if sizes are wrong.

    It skips values and headers, and calls no function while numbers have at most two bytes: compaction spends most of
    its time here.
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
    if wrong & 1 or position != len(body):  # zigzag: odd numbers are negative
        raise CorruptMessage("a record has a size or an offset that cannot be")
    return found


def records_of_batch(batch: memoryview, header: BatchHeader) -> tuple[bytes, list[Keyed]]:
    """The uncompressed records section of a batch, and its keys. Raises CorruptMessage."""
    body = bytes(decompress(header.codec_id, batch[HEADER_SIZE_BYTES:]))
    return body, keys_of(body, header.record_count)


def resealed(
    header: BatchHeader, section: bytes, count: int, attributes: int, timestamps_ms: tuple[int, int]
) -> bytearray:
    """Build a batch from a records section, with the offsets, leader epoch and producer of `header`."""
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
