"""Description of the fields of a generated message class; `plan_decode` and `plan_encode` read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, Final

# struct format and size of the types that always take the same number of bytes
FIXED: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field in the versions [first, last] of its message.

    `kind` is a key of FIXED, "string", "bytes", "records", or "struct" with the class in `struct`. A field whose
    encoding changed (became nullable, became tagged) has one row for each form; rows are in wire order.
    """

    name: str
    kind: str
    first: int
    last: int
    struct: type[Any] | None = None
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: Any = None

    @property
    def fixed(self) -> bool:
        """Whether every value takes the same number of bytes."""
        return self.kind in FIXED and not self.array


@lru_cache(maxsize=256)
def array_layout(form: str, count: int) -> Struct:
    """The layout of `count` values of one format.

    It is cached: replica lists have few lengths, and a Struct costs 0.5 us.
    """
    return Struct(f">{count}{form}")


def fields_of(struct: type[Any], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """The fields of a version: plain ones in wire order, tagged ones by tag, and one row for each absent field."""
    rows: tuple[Field, ...] = struct.FIELDS
    present = [row for row in rows if row.first <= version <= row.last]
    names = {row.name for row in present}
    absent = {row.name: row for row in rows if row.name not in names}
    plain = [row for row in present if row.tag is None]
    tagged = sorted((row for row in present if row.tag is not None), key=lambda row: row.tag or 0)
    return plain, tagged, list(absent.values())


def min_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes one value of the field takes; of an array, one element. At least 1."""
    if field.kind == "struct":
        assert field.struct is not None
        plain, _, _ = fields_of(field.struct, version)
        sizes = [1 if flexible and row.array else _plain_size(row, version, flexible) for row in plain]
        return max(1, sum(sizes) + int(flexible))
    return _scalar_size(field, flexible)


def _plain_size(field: Field, version: int, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.kind == "struct":
        return 1 if field.nullable else min_size(field, version, flexible)
    return _scalar_size(field, flexible)


def _scalar_size(field: Field, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4
