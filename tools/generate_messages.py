"""Writes kafkawire/messages/: one module per API, from the schemas that kio carries.

    python tools/generate_messages.py [DIRECTORY]

kio has one class per message and version; here the versions are merged into one class with the fields of all, and a
table of rows that says in which versions, and how, each field is on the wire. Names are Kafka's. If kio has a duration
or a point in time, the generated class has the wire's integer, and its name ends in `_ms`.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import typing
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

Side = Literal[EntityType.request, EntityType.response]

ZERO_UUID = bytes(16)
NO_TIMESTAMP_MS = -1  # kio's None
TARGET = Path(__file__).resolve().parent.parent / "kafkawire" / "messages"

# KRaft's own: this broker has no KRaft quorum.
NOT_OURS = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82}
# Versions kio knows but Apache Kafka 4.3.1 does not call stable.
STABLE_UNTIL = {"init_producer_id": 5}

# Tags of fields that only kafkawire brokers send to each other; all others skip unknown tags.
OURS_FROM_TAG = 10_000

INTEGERS = {"int8", "int16", "int32", "int64", "uint16", "uint32"}
WIRE_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
}


@dataclass(frozen=True)
class Row:
    """A field in one version, or, merged, in a range of versions."""

    name: str
    kind: str
    struct: str | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    first: int = 0
    last: int = 0

    def form(self) -> tuple[Any, ...]:
        return (self.name, self.kind, self.struct, self.array, self.nullable, self.tag)


@dataclass
class StructPlan:
    """A class to be written: its rows in wire order."""

    name: str
    rows: list[Row] = field(default_factory=list)


@dataclass
class MessagePlan:
    """A request or response: its structs, innermost first, the message itself last."""

    api: str
    versions: tuple[int, int]
    flexible_from: int
    structs: dict[str, StructPlan]


OURS = {
    ("fetch", "EpochStart"): [
        Row("epoch", "int32", None, False, False, None, 0, 12, 18),
        Row("start_offset", "int64", None, False, False, None, 0, 12, 18),
    ],
    ("fetch", "WhatIsDropped"): [
        Row(name, "int64", None, False, False, None, 0, 12, 18)
        for name in ("tombstones_to", "markers_to", "replaced_to", "swaps", "gone_by")
    ],
    ("fetch", "PartitionData"): [
        Row("begins_segment", "bool", None, False, False, OURS_FROM_TAG, False, 12, 18),
        Row("epoch_starts", "struct", "EpochStart", True, True, OURS_FROM_TAG + 1, None, 12, 18),
        Row("dropped", "struct", "WhatIsDropped", False, False, OURS_FROM_TAG + 2, None, 12, 18),
    ],
    ("offset_for_leader_epoch", "OffsetForLeaderPartition"): [
        Row("of_replica", "bool", None, False, False, OURS_FROM_TAG, False, 4, 4),
    ],
    ("offset_for_leader_epoch", "EpochEndOffset"): [
        Row("high_watermark", "int64", None, False, False, OURS_FROM_TAG, -1, 4, 4),
    ],
}


# Reading kio


def kio_class(path: str) -> type[Any]:
    module, _, name = path.replace(":", ".").rpartition(".")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def read_field(item: dataclasses.Field[Any], hint: Any) -> Row:
    """A dataclass field as a row. The outer type tells nullability; `| None` of a uuid is the zero uuid, and of a point
    in time -1."""
    nullable = False
    if isinstance(hint, types.UnionType) and type(None) in hint.__args__:
        (hint,) = (argument for argument in hint.__args__ if argument is not type(None))
        nullable = hint is not uuid.UUID
    array = typing.get_origin(hint) is tuple
    if array:
        hint = typing.get_args(hint)[0]
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return Row(item.name, "struct", hint.__name__, array, nullable, item.metadata.get("tag"), None)
    kafka_type = item.metadata["kafka_type"]
    if kafka_type == "datetime_i64":
        absent = 0 if item.default is dataclasses.MISSING and not nullable else NO_TIMESTAMP_MS
        return Row(item.name + "_ms", "int64", None, array, False, item.metadata.get("tag"), absent)
    name = item.name
    if kafka_type.startswith("timedelta") and not name.endswith("_ms"):
        name += "_ms"
    kind = WIRE_KINDS.get(kafka_type, kafka_type)
    default = None if array else plain_default(item, kind, nullable)
    return Row(name, kind, None, array, nullable, item.metadata.get("tag"), default)


def plain_default(item: dataclasses.Field[Any], kind: str, nullable: bool) -> Any:
    """Kafka's default as a wire value."""
    if nullable:
        return None
    value = item.default
    if value is dataclasses.MISSING or value is None:
        zeros: dict[str, Any] = {"bool": False, "string": "", "bytes": b"", "records": None, "uuid": bytes(16)}
        return zeros.get(kind, 0.0 if kind == "float64" else 0)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if kind == "bool":
        return bool(value)
    if kind == "float64":
        return float(value)
    return int(value) if kind in INTEGERS else str(value)


def read_struct(cls: type[Any], found: dict[str, list[Row]]) -> None:
    """The rows of a kio class and, before it, of the classes it holds."""
    hints = typing.get_type_hints(cls)
    rows = []
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        for nested in nested_classes(hint):
            read_struct(nested, found)
        rows.append(read_field(item, hint))
    found[cls.__name__] = rows


def nested_classes(hint: Any) -> list[type[Any]]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return [hint]
    return [cls for argument in typing.get_args(hint) for cls in nested_classes(argument)]


# Merging versions


def merge(plan: StructPlan, rows: list[Row], version: int) -> None:
    """Takes one version's rows into the plan: extends a row of the same form, or puts a new one at its place."""
    at = 0
    for row in rows:
        same = next((i for i, known in enumerate(plan.rows) if known.form() == row.form()), None)
        if same is not None and plan.rows[same].last == version - 1:
            plan.rows[same] = dataclasses.replace(plan.rows[same], last=version, default=row.default)
            at = same + 1
        else:
            plan.rows.insert(at, dataclasses.replace(row, first=version, last=version))
            at += 1


def read_message(api: str, kind: Side) -> MessagePlan:
    versions = sorted(v for v in schema_name_map[api] if v <= STABLE_UNTIL.get(api, 99))
    plan = MessagePlan(api, (versions[0], versions[-1]), versions[-1] + 1, {})
    for version in versions:
        cls = kio_class(schema_name_map[api][version][kind])
        if cls.__flexible__:
            plan.flexible_from = min(plan.flexible_from, version)
        found: dict[str, list[Row]] = {}
        read_struct(cls, found)
        for name, rows in found.items():
            merge(plan.structs.setdefault(name, StructPlan(name)), rows, version)
    root = kio_class(schema_name_map[api][versions[-1]][kind]).__name__
    for (ours_in, name), rows in OURS.items():
        if ours_in == api:
            plan.structs.setdefault(name, StructPlan(name)).rows += rows
    plan.structs = {name: plan.structs[name] for name in innermost_first(root, plan.structs)}
    return plan


def innermost_first(name: str, structs: dict[str, StructPlan]) -> list[str]:
    """`name` and all structs it holds, each behind those it holds itself."""
    order: list[str] = []
    for row in structs[name].rows:
        if row.struct:
            order += [inner for inner in innermost_first(row.struct, structs) if inner not in order]
    return [*order, name]


def rename_clashes(request: MessagePlan, response: MessagePlan) -> None:
    """Where both messages have a struct of one name, each is called by its side."""
    for name in set(request.structs) & set(response.structs):
        for plan, prefix in ((request, "Request"), (response, "Response")):
            plan.structs = {
                (prefix + key if key == name else key): StructPlan(
                    prefix + key if key == name else key,
                    [
                        dataclasses.replace(row, struct=prefix + name) if row.struct == name else row
                        for row in struct.rows
                    ],
                )
                for key, struct in plan.structs.items()
            }


# Writing


def python_type(rows: list[Row], is_request: bool) -> str:
    """The annotation of an attribute over all versions."""
    row = rows[-1]
    base = {
        "bool": "bool",
        "float64": "float",
        "string": "str",
        "bytes": "bytes",
        "uuid": "bytes",
        "struct": row.struct,
    }
    name = "int" if row.kind in INTEGERS else base.get(row.kind, "")
    if row.kind == "records":
        return "memoryview | None" if is_request else "Sized | None"
    assert name
    if row.array:
        name = f"list[{name}]"
    optional = any(one.nullable for one in rows) or (row.kind == "struct" and not row.array and row.tag is not None)
    return f"{name} | None" if optional else name


def by_name(struct: StructPlan) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in struct.rows:
        grouped.setdefault(row.name, []).append(row)
    return grouped


def write_struct(struct: StructPlan, header: list[str], base: str, is_request: bool) -> list[str]:
    fields = by_name(struct)
    lines = [f"class {struct.name}({base}):", *("    " + line if line else "" for line in header)]
    lines.append(f"    __slots__ = ({', '.join(repr(name) for name in fields)}{',' if len(fields) == 1 else ''})")
    lines.append("    FIELDS: ClassVar[tuple[Field, ...]] = (")
    lines += [f"        {write_row(row)}," for row in struct.rows]
    lines += ["    )", ""]
    if not fields:
        return [*lines[:-1], ""]
    lines += ["    def __init__(", "        self,", "        *,"]
    stores = []
    for name, rows in fields.items():
        annotation = python_type(rows, is_request)
        if annotation.startswith("list") and not annotation.endswith("None"):
            lines.append(f"        {name}: {annotation} | None = None,")
            stores.append(f"        self.{name}: {annotation} = [] if {name} is None else {name}")
        elif rows[-1].kind == "struct" and not rows[-1].array and not annotation.endswith("None"):
            lines.append(f"        {name}: {annotation} | None = None,")
            stores.append(f"        self.{name}: {annotation} = {annotation}() if {name} is None else {name}")
        else:
            default = None if annotation.endswith("None") else rows[-1].default
            lines.append(f"        {name}: {annotation} = {literal(default)},")
            stores.append(f"        self.{name} = {name}")
    return [*lines, "    ) -> None:", *stores, ""]


def literal(value: Any) -> str:
    return "ZERO_UUID" if value == ZERO_UUID else repr(value)


def write_row(row: Row) -> str:
    parts = [repr(row.name), repr(row.kind), str(row.first), str(row.last)]
    if row.struct:
        parts.append(f"struct={row.struct}")
    parts += [f"{flag}=True" for flag in ("array", "nullable") if getattr(row, flag)]
    if row.tag is not None:
        parts.append(f"tag={row.tag}")
    if row.default is not None:
        parts.append(f"default={literal(row.default)}")
    return f"Field({', '.join(parts)})"


def write_message(plan: MessagePlan, key: int, is_request: bool) -> list[str]:
    lines = []
    *nested, root = plan.structs.values()
    for struct in nested:
        lines += ["", *write_struct(struct, [], "MessageStruct", is_request)]
    first, last = plan.versions
    flexible = f"flexible from {plan.flexible_from}" if plan.flexible_from <= last else "never flexible"
    header = [
        f'"""Versions {first}-{last}, {flexible}."""',
        "",
        f"API_KEY: ClassVar[int] = {key}",
        f"VERSIONS: ClassVar[tuple[int, int]] = ({first}, {last})",
        f"FLEXIBLE_FROM: ClassVar[int] = {plan.flexible_from}",
    ]
    return [*lines, "", *write_struct(root, header, "Message", is_request)]


def write_module(api: str, key: int) -> str:
    request, response = read_message(api, EntityType.request), read_message(api, EntityType.response)
    rename_clashes(request, response)
    body = [*write_message(request, key, True), *write_message(response, key, False)]
    sized = ["from collections.abc import Sized"] if any("Sized" in line for line in body) else []
    uuids = any("ZERO_UUID" in line for line in body)
    bases = "Message, MessageStruct" if any("(MessageStruct)" in line for line in body) else "Message"
    head = [
        f'"""{api}, API key {key}. Generated by tools/generate_messages.py: do not edit."""',
        "",
        *sized,
        "from typing import ClassVar",
        "",
        f"from kafkawire.wire.message import {bases}",
        *(["from kafkawire.wire.primitives import ZERO_UUID"] if uuids else []),
        "from kafkawire.wire.schema import Field",
        "",
        f"API_KEY = {key}",
        "",
    ]
    return "\n".join([*head, *body]).rstrip() + "\n"


def apis() -> dict[str, int]:
    """Module name → API key, of the served APIs."""
    found = {name: key for key, name in api_key_map.items() if key not in NOT_OURS and key >= 0}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def write_index(names: dict[str, int]) -> str:
    lines = [
        '"""Message classes, one module per API. Generated by tools/generate_messages.py: do not edit."""',
        "",
        "# Module of each API key; the modules are imported when they are asked for (wire.versions).",
        "MODULES = {",
        *(f'    {key}: "{name}",' for name, key in names.items()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def generate(target: Path) -> None:
    """Writes all modules into `target`."""
    target.mkdir(exist_ok=True)
    names = apis()
    for name, key in names.items():
        (target / f"{name}.py").write_text(write_module(name, key), encoding="utf-8")
    (target / "__init__.py").write_text(write_index(names), encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
