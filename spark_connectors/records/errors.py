"""Errors of record batches and of rows that are encoded."""

from __future__ import annotations


class MalformedBatch(ValueError):
    """Bytes that contradict the format, their CRC or their header. No row was made of that batch."""


class RecordTooLarge(ValueError):
    """A record that is too large. The text is that of Kafka's RecordTooLargeException."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"the message is {self.size_bytes} bytes when serialized which is larger than {self.limit_bytes}, which is "
            f"the value of the max.request.size configuration (option kafka.max.request.size)"
        )
