"""Writes kafkawire/messages/: one module per API, from the schemas in Apache Kafka's clients jar.

    python tools/generate_messages.py [DIRECTORY]

Kafka's schemas say for each field in which versions it is on the wire. Here the fields of all versions are merged into
one class, with a table of rows that says in which versions, and how, each field is on the wire. Names are Kafka's.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.kafka_schemas import INTEGERS, ZERO_UUID, Row, Schema, Side, Versions, clients_jar, read_schemas, snake_case

TARGET = Path(__file__).resolve().parent.parent / "kafkawire" / "messages"

# The APIs that the broker serves (a test compares them with the API table), and those that only its clients use.
SERVED = {
    *range(4), *range(8, 29), 32, 33, 35, 36, 37, 42, 43, 44, 45, 46, 47, 57, 60, 61, 64, 65, 66, 74, 75,
}  # fmt: skip
OF_CLIENTS = {69}

# Tags of fields that only kafkawire brokers send to each other; all others skip unknown tags.
OURS_FROM_TAG = 10_000

SIDES: tuple[Side, Side] = ("request", "response")


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


OURS_STRUCTS = {
    "EpochStart": [
        Row("epoch", "int32", None, False, False, None, 0, 12, 18),
        Row("start_offset", "int64", None, False, False, None, 0, 12, 18),
    ],
    "WhatIsDropped": [
        Row(name, "int64", None, False, False, None, 0, 12, 18)
        for name in ("tombstones_to", "markers_to", "replaced_to", "swaps", "gone_by")
    ],
}


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


def read_message(api: str, schema: Schema, versions: Versions) -> MessagePlan:
    first, last = versions
    flexible_from = min(max(schema.flexible.first, first), last + 1) if schema.flexible.last >= first else last + 1
    plan = MessagePlan(api, (first, last), flexible_from, {})
    for version in range(first, last + 1):
        for name, rows in schema.structs(version).items():
            merge(plan.structs.setdefault(name, StructPlan(name)), rows, version)
    for (ours_in, name), rows in OURS.items():
        if ours_in == api and name in plan.structs:
            add_ours(plan.structs, name, rows)
    plan.structs = {name: plan.structs[name] for name in innermost_first(schema.name, plan.structs)}
    return plan


def add_ours(structs: dict[str, StructPlan], name: str, rows: list[Row]) -> None:
    """Add our own rows to a struct, and our own structs that they hold."""
    structs[name].rows += rows
    for row in rows:
        if row.struct is not None:
            structs[row.struct] = StructPlan(row.struct, list(OURS_STRUCTS[row.struct]))


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


def write_module(api: str, sides: dict[Side, Schema]) -> str:
    key = sides["request"].key
    versions = sides["request"].versions  # only the schema of the request tells that the last one is not stable
    request, response = (read_message(api, sides[side], versions) for side in SIDES)
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


def apis(jar: Path) -> dict[str, dict[Side, Schema]]:
    """Module name → schemas, in the order of the API keys."""
    found: dict[int, dict[Side, Schema]] = defaultdict(dict)
    for schema in read_schemas(jar):
        if schema.key in SERVED | OF_CLIENTS:
            found[schema.key][schema.side] = schema
    return {snake_case(sides["request"].name.removesuffix("Request")): sides for _, sides in sorted(found.items())}


def write_index(names: dict[str, dict[Side, Schema]]) -> str:
    lines = [
        '"""Message classes, one module per API. Generated by tools/generate_messages.py: do not edit."""',
        "",
        "# Module of each API key; the modules are imported when they are asked for (wire.versions).",
        "MODULES = {",
        *(f'    {sides["request"].key}: "{name}",' for name, sides in names.items()),
        "}",
    ]
    return "\n".join(lines) + "\n"


def generate(target: Path, jar: Path) -> None:
    """Writes all modules into `target`."""
    target.mkdir(exist_ok=True)
    names = apis(jar)
    for name, sides in names.items():
        (target / f"{name}.py").write_text(write_module(name, sides), encoding="utf-8")
    (target / "__init__.py").write_text(write_index(names), encoding="utf-8")


if __name__ == "__main__":
    found = clients_jar()
    if found is None:
        sys.exit("Kafka's clients jar is missing: run `make schema-jar`")
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET, found)
