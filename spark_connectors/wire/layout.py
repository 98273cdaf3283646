"""Encoding of Kafka's messages: classes declare their fields, and this module reads and writes them.

A message is a frozen dataclass. Its annotations are the aliases below, other messages, and tuples of either; its fields
have the order of the wire. Only the flexible encoding of KIP-482 is supported: compact lengths, and tagged fields, of
which none is sent and each is skipped. Each count is checked against the available bytes before it is used, and the
number of elements is limited too: a reply is untrusted, and one byte may announce a tuple.

The objects here are plain data, without a `struct.Struct`, because they are pickled by value to executors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from spark_connectors.wire.errors import MalformedReply

ELEMENTS_MAX: Final = 1_000_000  # of all arrays and tagged fields of one message
UVARINT_MAX: Final = 2**32 - 1
UUID_SIZE_BYTES: Final = 16
ZERO_UUID: Final = bytes(UUID_SIZE_BYTES)

_T = TypeVar("_T")


class Reader:
    """A position in received bytes. Every method raises MalformedReply if there are too few bytes."""

    __slots__ = ("_elements_left", "_position", "_view")

    def __init__(self, data: bytes | bytearray | memoryview, elements_max: int = ELEMENTS_MAX) -> None:
        self._view = memoryview(data)
        self._position = 0
        self._elements_left = elements_max

    @property
    def left_bytes(self) -> int:
        return len(self._view) - self._position

    def take(self, size_bytes: int) -> memoryview:
        """The next bytes, not copied."""
        if not 0 <= size_bytes <= self.left_bytes:
            raise MalformedReply(f"{size_bytes} bytes announced where {self.left_bytes} are")
        start = self._position
        self._position += size_bytes
        return self._view[start : self._position]

    def fixed(self, form: str) -> Any:
        """Read one value of a format of the struct module."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self) -> int:
        """Read an unsigned LEB128 of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte: int = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > UVARINT_MAX:
                    break
                return value
        raise MalformedReply("a varint of more than 32 bits")

    def count(self) -> int | None:
        """Read the length of a compact array; None for null. Each element has at least one byte."""
        announced = self.uvarint() - 1
        if announced < 0:
            return None
        self._spend(announced)
        return announced

    def skip_tags(self) -> None:
        """Skip the tagged fields of one struct."""
        announced = self.uvarint()
        self._spend(announced)
        for _ in range(announced):
            self.uvarint()
            self.take(self.uvarint())

    def _spend(self, elements: int) -> None:
        self._elements_left -= elements
        if elements > self.left_bytes or self._elements_left < 0:
            raise MalformedReply(f"{elements} elements announced in {self.left_bytes} bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Write an unsigned LEB128."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class Kind(Protocol):
    """Encoding of the values of one type."""

    def write(self, out: bytearray, value: Any) -> None: ...

    def read(self, source: Reader) -> Any: ...


@dataclass(frozen=True)
class Fixed:
    """A number of fixed size, by its format of the struct module."""

    form: str

    def write(self, out: bytearray, value: Any) -> None:
        out += struct.pack(self.form, value)

    def read(self, source: Reader) -> Any:
        return source.fixed(self.form)


@dataclass(frozen=True)
class CompactBytes:
    """Bytes with their length. They are read as a view of the received bytes, and keep these alive."""

    is_nullable: bool = False

    def write(self, out: bytearray, value: bytes | memoryview | None) -> None:
        write_uvarint(out, 0 if value is None else len(value) + 1)
        if value is not None:
            out += value
        else:
            assert self.is_nullable, "null where the protocol has none"

    def read(self, source: Reader) -> memoryview | None:
        size_bytes = source.uvarint() - 1
        if size_bytes >= 0:
            return source.take(size_bytes)
        if not self.is_nullable:
            raise MalformedReply("null where the protocol has none")
        return None


@dataclass(frozen=True)
class CompactText:
    """Text with its length, as UTF-8."""

    is_nullable: bool = False

    def write(self, out: bytearray, value: str | None) -> None:
        CompactBytes(self.is_nullable).write(out, None if value is None else value.encode())

    def read(self, source: Reader) -> str | None:
        found = CompactBytes(self.is_nullable).read(source)
        try:
            return None if found is None else str(found, "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedReply(f"no UTF-8: {error}") from None


@dataclass(frozen=True)
class Uuid:
    """A UUID of sixteen bytes."""

    def write(self, out: bytearray, value: bytes) -> None:
        assert len(value) == UUID_SIZE_BYTES
        out += value

    def read(self, source: Reader) -> bytes:
        return bytes(source.take(UUID_SIZE_BYTES))


@dataclass(frozen=True)
class CompactArray:
    """A tuple of values of one type, with its length."""

    kind: Kind
    is_nullable: bool = False

    def write(self, out: bytearray, value: tuple[Any, ...] | None) -> None:
        write_uvarint(out, 0 if value is None else len(value) + 1)
        assert value is not None or self.is_nullable, "null where the protocol has none"
        for one in value or ():
            self.kind.write(out, one)

    def read(self, source: Reader) -> tuple[Any, ...] | None:
        count = source.count()
        if count is not None:
            return tuple(self.kind.read(source) for _ in range(count))
        if not self.is_nullable:
            raise MalformedReply("null where the protocol has none")
        return None


@dataclass(frozen=True)
class Struct:
    """A message, or a part of one, as an object of its class."""

    made: type[Any]
    fields: tuple[tuple[str, Kind], ...]

    def write(self, out: bytearray, value: Any) -> None:
        for name, kind in self.fields:
            kind.write(out, getattr(value, name))
        write_uvarint(out, 0)

    def read(self, source: Reader) -> Any:
        found = {name: kind.read(source) for name, kind in self.fields}
        source.skip_tags()
        return self.made(**found)


Bool = Annotated[bool, Fixed(">?")]
Int8 = Annotated[int, Fixed(">b")]
Int16 = Annotated[int, Fixed(">h")]
Int32 = Annotated[int, Fixed(">i")]
Int64 = Annotated[int, Fixed(">q")]
TopicId = Annotated[bytes, Uuid()]
Text = Annotated[str, CompactText()]
NullableText = Annotated[str | None, CompactText(is_nullable=True)]
NullableBytes = Annotated[bytes | memoryview | None, CompactBytes(is_nullable=True)]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(described: type[_T]) -> type[_T]:
    """Decorator of a message class: an immutable dataclass with keyword arguments."""
    return dataclass(frozen=True, slots=True, kw_only=True)(described)


def layout_of(described: type[Any]) -> Struct:
    """The encoding of a `message` class."""
    hints = get_type_hints(described, include_extras=True)
    return Struct(described, tuple((name, _kind_of(hint)) for name, hint in hints.items()))


def _kind_of(hint: Any) -> Kind:
    if get_origin(hint) is Annotated:
        kind: Kind = hint.__metadata__[0]
        return kind
    if get_origin(hint) is UnionType:
        (present,) = (one for one in get_args(hint) if one is not NoneType)
        return CompactArray(_kind_of(get_args(present)[0]), is_nullable=True)
    if get_origin(hint) is tuple:
        return CompactArray(_kind_of(get_args(hint)[0]))
    return layout_of(hint)
