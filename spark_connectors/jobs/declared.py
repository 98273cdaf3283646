"""Declaration of the columns of a topic's JSON values: a list in JSON, `[{"name": "id", "type": "int64"}, …]`.

A column is nullable unless `"nullable": false` is given. Types, and their values in JSON:

    bool, int32, int64, string    a boolean, a number without point and exponent, text
    float32, float64              a finite number
    binary                        text in base64
    date                          text: 2026-11-26
    timestamp                     text in ISO 8601, up to µs; UTC if it has no zone
    timestamp(epoch_ms)           a whole number of ms since 1970
    decimal(p,s)                  a number or text; never rounded
    list<type>                    an array
    struct{name: type, …}         an object

Parts of lists and structs are nullable. A name in a struct is letters, digits and underscores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import pyarrow as pa

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_KEYS: Final = frozenset({"name", "type", "nullable"})
_PRECISION_MAX: Final = 38
_DEPTH_MAX: Final = 32
_TOKEN: Final = re.compile(r"\s*(\w+|\S)")


class DeclarationRefused(ValueError):
    """A wrong declaration. The text names the column and the problem."""


class Kind(NamedTuple):
    """Type of a column in the table, and the type as which `pyarrow.json` reads it."""

    table: pa.DataType
    read: pa.DataType


_SIMPLE: Final = {
    "bool": Kind(pa.bool_(), pa.bool_()),
    "int32": Kind(pa.int32(), pa.int32()),
    "int64": Kind(pa.int64(), pa.int64()),
    "float32": Kind(pa.float32(), pa.float32()),
    "float64": Kind(pa.float64(), pa.float64()),
    "string": Kind(pa.string(), pa.string()),
    "binary": Kind(pa.binary(), pa.string()),
    "date": Kind(pa.date32(), pa.string()),
}


class Declared(NamedTuple):
    """The same columns twice: with types of the table, and with types for reading."""

    table: pa.Schema
    read: pa.Schema


def declared(text: str, taken: Collection[str] = ()) -> Declared:
    """Parse a declaration. Column names, in any case, must not be in `taken`. Raises DeclarationRefused."""
    try:
        columns = json.loads(text)
    except ValueError as error:
        raise DeclarationRefused(f"the schema is no JSON: {error}") from None
    if not isinstance(columns, list) or not columns:
        raise DeclarationRefused("the schema is no list of columns")
    table, read = [], []
    seen = {name.lower() for name in taken}
    for column in columns:
        name, type_text, is_nullable = _checked(column)
        if name.lower() in seen:
            raise DeclarationRefused(f"column {name!r} is there already; tables do not tell upper case from lower")
        seen.add(name.lower())
        kind = _Reader(type_text, f"column {name!r}").parse()
        table.append(pa.field(name, kind.table, is_nullable))
        read.append(pa.field(name, kind.read))
    return Declared(pa.schema(table), pa.schema(read))


def _checked(column: Any) -> tuple[str, str, bool]:
    if not isinstance(column, dict):
        raise DeclarationRefused(f"{column!r} is no column: one is an object with name and type")
    name, type_text, is_nullable = column.get("name"), column.get("type"), column.get("nullable", True)
    if not isinstance(name, str) or not name:
        raise DeclarationRefused(f"{column!r} has no name")
    if not isinstance(type_text, str):
        raise DeclarationRefused(f"column {name!r}: its type is no text")
    if not isinstance(is_nullable, bool):
        raise DeclarationRefused(f"column {name!r}: nullable is true or false")
    if unknown := column.keys() - _KEYS:
        raise DeclarationRefused(f"column {name!r}: {sorted(unknown)} is not known")
    return name, type_text, is_nullable


class _Reader:
    """Parser of one type, from left to right."""

    def __init__(self, text: str, subject: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._text = text
        self._subject = subject

    def parse(self) -> Kind:
        kind = self._kind(_DEPTH_MAX)
        if self._tokens:
            raise self._refused()
        return kind

    def _kind(self, depth_left: int) -> Kind:
        match self._next():
            case simple if simple in _SIMPLE:
                return _SIMPLE[simple]
            case "timestamp":
                return self._timestamp()
            case "decimal":
                return self._decimal()
            case "list" if depth_left:
                self._expect("<")
                element = self._kind(depth_left - 1)
                self._expect(">")
                return Kind(*(pa.list_(pa.field("element", each)) for each in element))
            case "struct" if depth_left:
                return self._struct(depth_left - 1)
        raise self._refused()

    def _timestamp(self) -> Kind:
        if self._tokens[:1] != ["("]:
            return Kind(_TIMESTAMP, _TIMESTAMP)
        for token in ("(", "epoch_ms", ")"):
            self._expect(token)
        return Kind(_TIMESTAMP, pa.int64())

    def _decimal(self) -> Kind:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not 1 <= precision <= _PRECISION_MAX or scale > precision:
            raise DeclarationRefused(
                f"{self._subject}: a decimal has 1 to {_PRECISION_MAX} digits, and no more behind its point"
            )
        kind = pa.decimal128(precision, scale)
        return Kind(kind, kind)

    def _struct(self, depth_left: int) -> Kind:
        fields: dict[str, Kind] = {}
        self._expect("{")
        separator = ","
        while separator == ",":
            name = self._next()
            if not name.isidentifier() or name.lower() in map(str.lower, fields):
                raise self._refused()
            self._expect(":")
            fields[name] = self._kind(depth_left)
            separator = self._next()
        if separator != "}":
            raise self._refused()
        table = pa.struct([(name, kind.table) for name, kind in fields.items()])
        return Kind(table, pa.struct([(name, kind.read) for name, kind in fields.items()]))

    def _next(self) -> str:
        if not self._tokens:
            raise self._refused()
        return str(self._tokens.pop(0))

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._refused()

    def _number(self) -> int:
        token = self._next()
        if not (token.isascii() and token.isdigit()):
            raise self._refused()
        return int(token)

    def _refused(self) -> DeclarationRefused:
        return DeclarationRefused(f"{self._subject}: {self._text!r} is no type that can be declared")
