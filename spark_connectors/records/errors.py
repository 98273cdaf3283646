"""What can be wrong with bytes that somebody calls record batches."""

from __future__ import annotations


class MalformedBatch(ValueError):
    """They are not what the format, their CRC or their own header says; no row was made of that batch."""
