"""The bases of the generated classes: values that compare and print, and messages that decode and encode."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from kafkawire.wire.plans import decoder, encoder
from kafkawire.wire.schema import Field

# Array elements and tagged fields of one request together: 3 MB of tiny elements would otherwise become 1 M objects.
ELEMENT_CAP: Final = 100_000
RESPONSE_ELEMENT_CAP: Final = 1_000_000  # of a response: the client trusts its server, and lists are long


class MessageStruct:
    """A struct inside a message: mutable, slotted, with the fields of all versions."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self._names())

    __hash__ = None  # type: ignore[assignment] # mutable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__name__}({fields})"

    def _names(self) -> Any:
        return self.__slots__


class Message(MessageStruct):
    """A request's or a response's body."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def decode(
        cls, buffer: bytes | bytearray, version: int, start: int = 0, end: int | None = None, cap: int = ELEMENT_CAP
    ) -> Self:
        """Decode the body in buffer[start:end]; records fields are views of `buffer` and keep it alive.

        Raises DecodeError and nothing else, for any bytes.
        """
        stop = len(buffer) if end is None else end
        message: Self = decoder(cls, version)(buffer, memoryview(buffer), start, stop, cap)
        return message

    def encode(self, version: int) -> list[Any]:
        """The body as segments, to be sent one after the other. Raises EncodeError."""
        return encoder(type(self), version)(self)
