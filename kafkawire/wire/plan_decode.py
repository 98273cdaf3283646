"""Compiles, for one message class and version, the function that decodes it.

It is one flat function: nested structs and loops are inlined, runs of fixed fields and the length that follows them are
one `unpack_from`. Every count is checked against the remaining bytes and against the request's element cap before
memory is allocated for it (RULES W1). Over-reads of fixed fields inside a longer buffer do no harm: the last check is
that no more bytes were used than there are.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Any

from kafkawire.wire.primitives import STRING_SIZE_MAX, DecodeError, TooManyElements, read_uvarint
from kafkawire.wire.schema import FIXED, Field, array_layout, fields_of, min_size
from kafkawire.wire.source import Source

# (buffer, its memoryview, start, end, element cap) -> message
Decoder = Callable[[bytes | bytearray, memoryview, int, int, int], Any]


def compile_decoder(message: type[Any], version: int, flexible: bool) -> Decoder:
    """The decoder of one version."""
    return _DecoderPlan(message, version, flexible).compile()


def _refuse(reason: str) -> None:
    raise DecodeError(reason)


def _too_many(name: str) -> None:
    raise TooManyElements(f"too many {name}")


class _DecoderPlan:
    def __init__(self, message: type[Any], version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.out = Source(
            new=object.__new__, read_uvarint=read_uvarint, refuse=_refuse, too_many=_too_many, DecodeError=DecodeError,
            broken=(IndexError, struct_error, UnicodeDecodeError, OverflowError),
        )  # fmt: skip
        self.run: list[tuple[str, str]] = []  # fixed fields not read yet: (struct format, target)

    def compile(self) -> Decoder:
        title = f"{self.message.__name__} v{self.version}"
        with self.out.block("def decode(b, view, o, end, cap):"):
            with self.out.block("try:"):
                self.struct(self.message, "m")
            with self.out.block("except broken as error:"):
                self.out.line("raise DecodeError(str(error)) from None")
            # Bytes behind the body are left alone, as Kafka does: librdkafka 2.16 sends some (docs/decisions/0002).
            with self.out.block("if o > end:"):
                self.out.line("refuse(f'{o - end} bytes short')")
            self.out.line("return m")
        decoder: Decoder = self.out.compile("decode", f"decode {title}")
        return decoder

    def struct(self, struct: type[Any], target: str) -> None:
        """Read a struct, its tagged fields too, into a new variable `target`."""
        plain, tagged, absent = fields_of(struct, self.version)
        self.out.line(f"{target} = new({self.out.constant('C', struct)})")
        for field in [*absent, *tagged]:
            self.out.line(f"{target}.{field.name} = {self.default(field)}")
        for field in plain:
            self.value(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(tagged, target)
        self.flush()

    def default(self, field: Field) -> str:
        if field.array and not field.nullable:
            return "[]"
        return repr(field.default)

    def value(self, field: Field, target: str) -> None:
        if field.array:
            self.array(field, target)
        elif field.fixed:
            self.run.append((FIXED[field.kind][0], target))
        elif field.kind == "struct":
            self.nested(field, target)
        else:
            self.sized(field, target)

    def flush(self) -> None:
        """Read the run of fixed fields at once."""
        if not self.run:
            return
        layout = Struct(">" + "".join(form for form, _ in self.run))
        unpack = self.out.constant(f"unpack_{layout.size}_", layout.unpack_from)
        self.out.line(f"{', '.join(target for _, target in self.run)}, = {unpack}(b, o)")
        self.out.line(f"o += {layout.size}")
        self.run.clear()

    def length(self, legacy: str) -> str:
        """Read a length or count, fused with the run before it; null is -1 in either encoding."""
        n = self.out.name("n")
        self.run.append(("B" if self.flexible else legacy, n))
        self.flush()
        if self.flexible:
            with self.out.block(f"if {n} > 127:"):
                self.out.line(f"{n}, o = read_uvarint(b, o - 1)")
            self.out.line(f"{n} -= 1")
        return n

    def null_check(self, field: Field, n: str, target: str) -> str:
        """Generate the checks of a length. Return the header of the block for a value that is not null."""
        if not field.nullable:
            with self.out.block(f"if {n} < 0:"):
                self.out.line(f"refuse('null or negative length of {field.name}')")
            return "if True:"
        with self.out.block(f"if {n} < 0:"):
            if not self.flexible:
                with self.out.block(f"if {n} != -1:"):
                    self.out.line(f"refuse('negative length of {field.name}')")
            self.out.line(f"{target} = None")
        return "else:"

    def sized(self, field: Field, target: str) -> None:
        """Read a string, bytes or records."""
        n = self.length("h" if field.kind == "string" else "i")
        with self.out.block(self.null_check(field, n, target)):
            if field.kind == "string" and self.flexible:
                with self.out.block(f"if {n} > {STRING_SIZE_MAX}:"):
                    self.out.line(f"refuse('{field.name} is too long')")
            self.out.line(f"{n} += o")
            with self.out.block(f"if {n} > end:"):
                self.out.line(f"refuse('{field.name} is longer than its message')")
            form = {"string": "b[o:{}].decode()", "bytes": "bytes(view[o:{}])", "records": "view[o:{}]"}[field.kind]
            self.out.line(f"{target} = {form.format(n)}")
            self.out.line(f"o = {n}")

    def array(self, field: Field, target: str) -> None:
        n = self.length("i")
        with self.out.block(self.null_check(field, n, target)):
            size = min_size(field, self.version, self.flexible)
            self.count(n, size, field.name)
            self.elements(field, target, n)

    def count(self, n: str, size: int, name: str) -> None:
        """Check a count of elements of at least `size` bytes against the remaining bytes, and against the cap."""
        with self.out.block(f"if {n} * {size} > end - o:"):
            self.out.line(f"refuse('too many {name} for the bytes that remain')")
        self.out.line(f"cap -= {n}")
        with self.out.block("if cap < 0:"):
            self.out.line(f"too_many('{name}')")

    def elements(self, field: Field, target: str, n: str) -> None:
        if field.kind in FIXED:
            self.fixed_values(field, target, n)
            return
        items = self.out.name("l")
        self.out.line(f"{target} = {items} = []")
        if field.kind == "struct":
            assert field.struct is not None
            plain, tagged, absent = fields_of(field.struct, self.version)
            if plain and all(row.fixed for row in plain):
                self.fixed_structs(field, plain, [*absent, *tagged], items, n)
                return
        self.one_by_one(field, items, n)

    def fixed_values(self, field: Field, target: str, n: str) -> None:
        """Read an array of numbers or uuids at once."""
        form, size = FIXED[field.kind]
        if field.kind == "uuid":
            self.out.line(f"{target} = [bytes(view[at : at + {size}]) for at in range(o, o + {n} * {size}, {size})]")
        else:
            layout = self.out.constant("layout", array_layout)
            self.out.line(f"{target} = list({layout}({form!r}, {n}).unpack_from(b, o))")
        self.out.line(f"o += {n} * {size}")

    def one_by_one(self, field: Field, items: str, n: str) -> None:
        """Read an array whose elements differ in size."""
        item = self.out.name("x")
        with self.out.block(f"for _ in range({n}):"):
            if field.kind == "struct":
                assert field.struct is not None
                self.struct(field.struct, item)
            else:
                self.sized(Field(field.name, field.kind, field.first, field.last), item)
            self.out.line(f"{items}.append({item})")

    def fixed_structs(self, field: Field, plain: list[Field], others: list[Field], items: str, n: str) -> None:
        """Read structs of fixed fields only, by one iterator; the number of tagged fields is its last column.

        `array` has checked that they end before the message does, because their size is the least size. If an element
        has tagged fields, all are read again one by one, from the first on.
        """
        layout = Struct(">" + "".join(FIXED[row.kind][0] for row in plain) + "B" * self.flexible)
        assert layout.size == min_size(field, self.version, self.flexible)
        unpack = self.out.constant(f"iter_unpack_{layout.size}_", layout.iter_unpack)
        columns = [self.out.name("c") for _ in plain]
        item, tags = self.out.name("x"), self.out.name("n")
        header = f"for {', '.join([*columns, tags] if self.flexible else columns)}, in {unpack}"
        with self.out.block(f"{header}(view[o : o + {n} * {layout.size}]):"):
            if self.flexible:
                with self.out.block(f"if {tags}:"):
                    self.out.line(f"{items}.clear()")
                    self.one_by_one(field, items, n)
                    self.out.line("break")
            self.out.line(f"{item} = new({self.out.constant('C', field.struct)})")
            for row in others:
                self.out.line(f"{item}.{row.name} = {self.default(row)}")
            for row, column in zip(plain, columns, strict=True):
                self.out.line(f"{item}.{row.name} = {column}")
            self.out.line(f"{items}.append({item})")
        with self.out.block("else:"):
            self.out.line(f"o += {n} * {layout.size}")

    def nested(self, field: Field, target: str) -> None:
        """Read a struct field; a nullable one has a marker byte before it, negative for null."""
        assert field.struct is not None
        item = self.out.name("s")
        if not field.nullable:
            self.struct(field.struct, item)
            self.out.line(f"{target} = {item}")
            return
        marker = self.out.name("n")
        self.run.append(("b", marker))
        self.flush()
        with self.out.block(f"if {marker} < 0:"):
            self.out.line(f"{target} = None")
        with self.out.block("else:"):
            self.struct(field.struct, item)
            self.out.line(f"{target} = {item}")

    def tags(self, tagged: list[Field], target: str) -> None:
        """Read the tagged fields; unknown ones are skipped (KIP-482)."""
        count, tag, stop = self.out.name("n"), self.out.name("tag"), self.out.name("stop")
        self.run.append(("B", count))
        self.flush()
        with self.out.block(f"if {count}:"):
            with self.out.block(f"if {count} > 127:"):
                self.out.line(f"{count}, o = read_uvarint(b, o - 1)")
            self.count(count, 2, "tagged fields")
            with self.out.block(f"for _ in range({count}):"):
                self.out.line(f"{tag}, o = read_uvarint(b, o)")
                self.out.line(f"{stop}, o = read_uvarint(b, o)")
                self.out.line(f"{stop} += o")
                with self.out.block(f"if {stop} > end:"):
                    self.out.line("refuse('a tagged field is longer than its message')")
                self.known_tags(tagged, target, tag)
                with self.out.block("else:"):
                    self.out.line(f"o = {stop}")
                with self.out.block(f"if o != {stop}:"):
                    self.out.line("refuse('a tagged field has another size than it says')")

    def known_tags(self, tagged: list[Field], target: str, tag: str) -> None:
        with self.out.block("if False:"):
            self.out.line("pass")
        for field in tagged:
            with self.out.block(f"elif {tag} == {field.tag}:"):
                self.value(field, f"{target}.{field.name}")
                self.flush()
