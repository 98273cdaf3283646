"""Fields of records in the coordinators' logs, as Kafka's generated schemas write them. Big-endian; pure."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class UnknownRecord(Exception):
    """A type or version that this broker does not know, or malformed bytes."""


def encode_string(value: str) -> bytes:
    data = value.encode()
    return _INT16.pack(len(data)) + data


class FieldWriter:
    """Writer of fields, one behind the other; compact ones are of flexible schemas (KIP-482)."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def int16(self, value: int) -> None:
        self.parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self.parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self.parts.append(_INT64.pack(value))

    def int8(self, value: int) -> None:
        self.parts.append(value.to_bytes(1, "big", signed=True))

    def string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
        else:
            self.parts.append(encode_string(value))

    def blob(self, value: bytes) -> None:
        self.int32(len(value))
        self.parts.append(value)

    def unsigned_varint(self, value: int) -> None:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        self.parts.append(bytes(out))

    def compact_length(self, length: int | None) -> None:
        """Write the length of the field that follows; None: null."""
        self.unsigned_varint(0 if length is None else length + 1)

    def compact_string(self, value: str) -> None:
        data = value.encode()
        self.compact_length(len(data))
        self.parts.append(data)

    def tagged(self, fields: Mapping[int, bytes]) -> None:
        """Write tagged fields; the mapping is in ascending order of tags."""
        self.unsigned_varint(len(fields))
        for tag, data in fields.items():
            self.unsigned_varint(tag)
            self.unsigned_varint(len(data))
            self.parts.append(data)

    def done(self) -> bytes:
        return b"".join(self.parts)


class FieldReader:
    """Reader of the same fields. All methods raise UnknownRecord."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def _take(self, size_bytes: int) -> memoryview:
        taken = self._data[self._at : self._at + size_bytes]
        if size_bytes < 0 or len(taken) < size_bytes:
            raise UnknownRecord(f"{size_bytes} bytes expected at {self._at} of {len(self._data)}")
        self._at += size_bytes
        return taken

    def count(self, length: int, size_min_bytes: int) -> range:
        """A range over `length` elements of at least `size_min_bytes` each. Raises UnknownRecord if so many cannot be
        left."""
        if not 0 <= length * size_min_bytes <= len(self._data) - self._at:
            raise UnknownRecord(f"{length} fields expected at {self._at} of {len(self._data)}")
        return range(length)

    def int8(self) -> int:
        return int.from_bytes(self._take(1), "big", signed=True)

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def nullable_string(self) -> str | None:
        size_bytes = self.int16()
        return None if size_bytes == -1 else self._text(size_bytes)

    def _text(self, size_bytes: int) -> str:
        try:
            return str(self._take(size_bytes), "utf-8")
        except UnicodeDecodeError as error:
            raise UnknownRecord(str(error)) from None

    def string(self) -> str:
        return self.nullable_string() or ""

    def blob(self) -> bytes:
        return bytes(self._take(self.int32()))

    def unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise UnknownRecord(f"a varint of more than five bytes ends at {self._at}")

    def compact_length(self) -> int | None:
        length = self.unsigned_varint()
        return length - 1 if length else None

    def compact_string(self) -> str:
        return self._text(self.compact_length() or 0)

    def tagged(self) -> dict[int, FieldReader]:
        """Read tagged fields, by tag."""
        found = {}
        for _ in self.count(self.unsigned_varint(), 2):
            tag, size_bytes = self.unsigned_varint(), self.unsigned_varint()
            found[tag] = FieldReader(self._take(size_bytes))
        return found
