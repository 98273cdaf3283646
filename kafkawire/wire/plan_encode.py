"""Compiles, for one message class and version, the function that encodes it.

The result is a list of segments. Records are never copied: the value of a records field (a memoryview, a file range,
`Pieces`) becomes segments of its own, and only its length is read. Runs of fixed fields are one `pack`. A field that
the version lacks is left out, as Kafka does for fields marked ignorable. An array of structs may also be given as
`EncodedElements`, so that parts of many responses are encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from struct import Struct
from struct import error as struct_error
from typing import Any

from kafkawire.wire.primitives import ONE_BYTE, EncodeError, uvarint
from kafkawire.wire.schema import FIXED, Field, array_layout, fields_of
from kafkawire.wire.source import Source

Encoder = Callable[[Any], list[Any]]


class EncodedElements(list[Any]):
    """An array of structs, each already encoded in the version of the message."""


class Pieces:
    """Records in several places, in order."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[Sized]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


def compile_encoder(message: type[Any], version: int, flexible: bool) -> Encoder:
    """The encoder of one version."""
    return _EncoderPlan(message, version, flexible).compile()


class _EncoderPlan:
    def __init__(self, message: type[Any], version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.out = Source(
            ONE_BYTE=ONE_BYTE, uvarint=uvarint, EncodeError=EncodeError, EncodedElements=EncodedElements, Pieces=Pieces,
            unfit=(struct_error, UnicodeEncodeError, OverflowError, TypeError, AttributeError),
        )  # fmt: skip
        self.run: list[tuple[str, str]] = []  # fixed fields not written yet: (struct format, expression)
        self.buffer = "buf"

    def compile(self) -> Encoder:
        title = f"{self.message.__name__} v{self.version}"
        with self.out.block("def encode(m):"):
            self.out.line("out = []")
            self.out.line("buf = bytearray()")
            with self.out.block("try:"):
                self.struct(self.message, "m")
                self.out.line("pass")
            with self.out.block("except unfit as error:"):
                self.out.line(f"raise EncodeError('{title}: ' + str(error)) from None")
            self.out.line("out.append(buf)")
            self.out.line("return out")
        encoder: Encoder = self.out.compile("encode", f"encode {title}")
        return encoder

    def struct(self, struct: type[Any], source: str) -> None:
        plain, tagged, _ = fields_of(struct, self.version)
        for field in plain:
            self.value(field, f"{source}.{field.name}")
        if self.flexible:
            self.tags(tagged, source)
        self.flush()

    def value(self, field: Field, source: str) -> None:
        if field.array:
            self.array(field, source)
        elif field.fixed:
            self.run.append((FIXED[field.kind][0], source))
        elif field.kind == "struct":
            self.nested(field, source)
        else:
            self.sized(field, source)

    def flush(self) -> None:
        """Write the run of fixed fields at once; an `x` in it is a zero byte and takes no value."""
        if not self.run:
            return
        layout = Struct(">" + "".join(form for form, _ in self.run))
        pack = self.out.constant(f"pack_{layout.size}_", layout.pack)
        self.out.line(f"{self.buffer} += {pack}({', '.join(value for form, value in self.run if form != 'x')})")
        self.run.clear()

    def length(self, n: str, legacy: str) -> None:
        """Write a length or count; -1 is null in either encoding."""
        if not self.flexible:
            self.run.append((legacy, n))
            self.flush()
            return
        self.flush()
        self.out.line(f"{self.buffer} += ONE_BYTE[{n} + 1] if {n} < 127 else uvarint({n} + 1)")

    def null(self, legacy: str) -> None:
        """Write null."""
        encoded = b"\0" if self.flexible else Struct(">" + legacy).pack(-1)
        self.out.line(f"{self.buffer} += {encoded!r}")

    def unless_null(self, field: Field, value: str, legacy: str) -> str:
        """Write null if the value is null; return the header of the block for the other case."""
        self.flush()
        if not field.nullable:
            return "if True:"
        with self.out.block(f"if {value} is None:"):
            self.null(legacy)
        return "else:"

    def sized(self, field: Field, source: str) -> None:
        value, n = self.out.name("v"), self.out.name("n")
        legacy = "h" if field.kind == "string" else "i"
        self.out.line(f"{value} = {source}")
        with self.out.block(self.unless_null(field, value, legacy)):
            if field.kind == "string":
                self.out.line(f"{value} = {value}.encode()")
            self.out.line(f"{n} = len({value})")
            self.length(n, legacy)
            if field.kind == "records":
                self.out.line("out.append(buf)")
                self.out.line(f"out += {value}.pieces if type({value}) is Pieces else ({value},)")
                self.out.line("buf = bytearray()")
            else:
                self.out.line(f"{self.buffer} += {value}")

    def array(self, field: Field, source: str) -> None:
        values, n, item = self.out.name("l"), self.out.name("n"), self.out.name("x")
        self.out.line(f"{values} = {source}")
        with self.out.block(self.unless_null(field, values, "i")):
            self.out.line(f"{n} = len({values})")
            self.length(n, "i")
            if field.kind in FIXED and field.kind != "uuid":
                layout = self.out.constant("layout", array_layout)
                self.out.line(f"{self.buffer} += {layout}({FIXED[field.kind][0]!r}, {n}).pack(*{values})")
                return
            if field.kind == "struct":
                with self.out.block(f"if type({values}) is EncodedElements:"):
                    self.out.line(f"{self.buffer} += b''.join({values})")
                    self.out.line(f"{values} = ()")
            with self.out.block(f"for {item} in {values}:"):
                element = Field(field.name, field.kind, field.first, field.last, struct=field.struct)
                if field.kind == "struct":
                    assert field.struct is not None
                    self.struct(field.struct, item)
                    self.out.line("pass")
                else:
                    self.value(element, item)
                    self.flush()

    def nested(self, field: Field, source: str) -> None:
        """Write a struct field; a nullable one has a marker byte before it, negative for null."""
        assert field.struct is not None
        value = self.out.name("s")
        self.out.line(f"{value} = {source}")
        if not field.nullable:
            self.struct(field.struct, value)
            return
        self.flush()
        with self.out.block(f"if {value} is None:"):
            self.out.line(f"{self.buffer} += b'\\xff'")
        with self.out.block("else:"):
            self.out.line(f"{self.buffer} += b'\\x01'")
            self.struct(field.struct, value)

    def tags(self, tagged: list[Field], source: str) -> None:
        """Write the tagged fields that differ from their default, in the order of their tags (KIP-482)."""
        if not tagged:
            self.run.append(("x", ""))
            return
        self.flush()
        outer, count, all_tags, one = self.buffer, self.out.name("n"), self.out.name("t"), self.out.name("u")
        self.out.line(f"{count} = 0")
        self.out.line(f"{all_tags} = b''")
        for field in tagged:
            value = f"{source}.{field.name}"
            with self.out.block(f"if {self.differs(field, value)}:"):
                self.buffer = one
                self.out.line(f"{one} = bytearray()")
                self.value(field, value)
                self.flush()
                self.out.line(f"{count} += 1")
                self.out.line(f"{all_tags} += {uvarint(field.tag or 0)!r} + uvarint(len({one})) + {one}")
        self.buffer = outer
        self.out.line(f"{outer} += ONE_BYTE[{count}] + {all_tags}")

    @staticmethod
    def differs(field: Field, value: str) -> str:
        """The condition under which a tagged field is written; a tagged struct is absent when it is None."""
        if field.kind == "struct" and not field.array:
            return f"{value} is not None"
        if field.array and not field.nullable:
            return value
        return f"{value} != {field.default!r}"
