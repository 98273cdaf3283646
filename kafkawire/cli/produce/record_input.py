"""Lines of input as records, for `kafkawire produce`. Pure.

A line may come in several pieces, and a piece may have many lines. A line beyond `LINE_MAX_BYTES` is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from engine.batches.batch import NO_TIMESTAMP_MS, Record, RecordHeader
from kafkawire.cli.common.data_formats import decode_document, decode_text, load_json

LINE_MAX_BYTES: Final = 64 * 1024 * 1024  # brokers take requests of at most 100 MiB


class BadInput(Exception):
    """Bad input. The text names the line and the reason."""


class Lines:
    """Splits pieces into whole lines."""

    def __init__(self) -> None:
        self._partial_line = bytearray()  # the beginning of a line

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that end in this piece; an empty piece is the end of the input. Raises BadInput."""
        if not piece:
            last, self._partial_line = bytes(self._partial_line), bytearray()
            return [last] if last else []
        first, *others = piece.split(b"\n")
        if len(self._partial_line) + len(first) > LINE_MAX_BYTES:
            raise BadInput(f"a line is longer than {LINE_MAX_BYTES} bytes")
        self._partial_line += first
        if not others:
            return []
        lines = [bytes(self._partial_line), *others]
        self._partial_line = bytearray(lines.pop())
        return lines


@dataclass(frozen=True, slots=True)
class Reading:
    """Format of the input lines."""

    key_format: str = "text"
    value_format: str = "text"
    key: bytes | None = None
    key_separator: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()
    empty_is_null: bool = False
    as_json: bool = False

    def record(self, line: bytes, now_ms: int) -> Record:
        """The record of a line. Raises ValueError."""
        return self._from_json(line, now_ms) if self.as_json else self._from_text(line, now_ms)

    def _from_text(self, line: bytes, now_ms: int) -> Record:
        key = self.key
        if self.key_separator is not None:
            before, separator, line = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"there is no {self.key_separator.decode(errors='replace')!r} after a key")
            key = decode_text(before, self.key_format)
        value = None if self.empty_is_null and not line else decode_text(line, self.value_format)
        return Record(key, value, now_ms, self.headers)

    def _from_json(self, line: bytes, now_ms: int) -> Record:
        try:
            document = load_json(line)
        except ValueError:
            raise ValueError("it is not a JSON object") from None
        if not isinstance(document, dict) or not {"key", "value"} & document.keys():
            raise ValueError("it is not a JSON object with a key or a value")
        key = decode_document(document.get("key"), self.key_format) if self.key is None else self.key
        value = decode_document(document.get("value"), self.value_format)
        timestamp_ms = document.get("timestamp", now_ms)
        if not isinstance(timestamp_ms, int) or not NO_TIMESTAMP_MS <= timestamp_ms < 2**63:
            raise ValueError("its timestamp is neither milliseconds since 1970 nor -1 for none")
        headers = (*self.headers, *_headers(document.get("headers", [])))
        return Record(key, None if value == b"" and self.empty_is_null else value, timestamp_ms, headers)


def _headers(documents: Any) -> list[RecordHeader]:
    if not isinstance(documents, list) or not all(
        isinstance(one, dict) and one.get("key") is not None for one in documents
    ):
        raise ValueError("its headers are not objects with key and value")
    return [
        RecordHeader(decode_document(one["key"], "text") or b"", decode_document(one.get("value"), "text"))
        for one in documents
    ]


def parse_header(text: str) -> RecordHeader:
    """Parse NAME=VALUE, as the typed bytes. A name alone has no value."""
    name, equals, value = text.partition("=")
    return RecordHeader(os.fsencode(name), os.fsencode(value) if equals else None)


class Parser:
    """Parses pieces of input into records. Counts lines, to name a bad one."""

    def __init__(self, reading: Reading, now_ms: Callable[[], int]) -> None:
        self._reading = reading
        self._now_ms = now_ms
        self._lines = Lines()
        self._number = 0

    def take(self, piece: bytes) -> tuple[list[Record], BadInput | None]:
        """The records that end in this piece, up to the first bad line, and the error of that line."""
        now_ms = self._now_ms()
        records: list[Record] = []
        try:
            for line in self._lines.take(piece):
                self._number += 1
                records.append(self._reading.record(line, now_ms))
        except BadInput as problem:
            return records, problem
        except ValueError as problem:
            return records, BadInput(f"line {self._number}: {problem}")
        return records, None
