"""What can be wrong with bytes that somebody calls record batches, and with rows that are to become some."""

from __future__ import annotations


class MalformedBatch(ValueError):
    """They are not what the format, their CRC or their own header says; no row was made of that batch."""


class RecordTooLarge(ValueError):
    """A record that no batch is made of. In the words of Kafka's RecordTooLargeException."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"the message is {self.size_bytes} bytes when serialized which is larger than {self.limit_bytes}, which is "
            f"the value of the max.request.size configuration (option kafka.max.request.size)"
        )
