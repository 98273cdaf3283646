"""Batches whose header has a wrong maximum timestamp, and logs with them as version 0.1 wrote them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.batches.batch import NO_TIMESTAMP_MS, BatchHeader, parse_header, stamp_max_timestamp, varint
from engine.batches.record_checks import RecordRules


def with_max_timestamp(batch: bytearray, max_timestamp_ms: int = NO_TIMESTAMP_MS) -> memoryview:
    """The batch with that maximum timestamp, as sarama up to 1.45.0 sends it by default."""
    stamp_max_timestamp(memoryview(batch), parse_header(batch), max_timestamp_ms)
    return memoryview(batch)


def record_with_delta(delta_ms: int, key: bytes = b"key", number: int = 0) -> bytes:
    """The record `number` of a batch, without a value, whose timestamp differs so much from the base timestamp."""
    body = b"".join([b"\0", varint(delta_ms), varint(number), varint(len(key)), key, varint(-1), b"\0"])
    return varint(len(body)) + body


@contextmanager
def stored_as_sent() -> Iterator[None]:
    """Meanwhile, batches are stored as they are sent, and segments and indexes have the timestamps of the headers."""

    def of_header(_batch: memoryview, header: BatchHeader) -> int:
        return header.max_timestamp_ms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordRules, "validation", lambda *_: None)
        patch.setattr("engine.logs.log.newest_of_stored", of_header)
        patch.setattr("engine.commit.appends.newest_of_stored", of_header)
        yield
