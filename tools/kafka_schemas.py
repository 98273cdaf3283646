"""Message schemas of Apache Kafka, from the JSON files in its clients jar, one version at a time.

The jar comes with `make schema-jar`. The schemas have the Apache License 2.0 (NOTICE).
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Side = Literal["request", "response"]

FOLDER = "common/message/"
JARS = Path(__file__).resolve().parent.parent / ".cache" / "jars" / "schemas"
ZERO_UUID = bytes(16)
_LATEST = 32_767
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint16", "uint32"})
_ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


class Versions(NamedTuple):
    """A range of versions, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse `3`, `0-5`, `2+` or `none`, which is an empty range."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last


NO_VERSIONS = Versions.parse("none")


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


class Schema:
    """Schema of a request or response."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._common = {one["name"]: one for one in document.get("commonStructs", ())}
        self.name: str = document["name"]
        self.key: int = document["apiKey"]
        self.side: Side = document["type"]
        self.listeners: list[str] = document.get("listeners", [])
        valid = Versions.parse(document["validVersions"])
        is_unstable = bool(document.get("latestVersionUnstable"))
        self.versions = Versions(valid.first, valid.last - is_unstable)
        self.flexible = Versions.parse(document["flexibleVersions"])

    def structs(self, version: int) -> dict[str, list[Row]]:
        """The rows of each struct in this version; the message itself is the last."""
        found: dict[str, list[Row]] = {}
        self._read(self.name, self._document["fields"], version, found)
        return found

    def _read(self, name: str, fields: list[dict[str, Any]], version: int, found: dict[str, list[Row]]) -> None:
        rows = [self._row(one, version, found) for one in fields if Versions.parse(one["versions"]).has(version)]
        found.pop(name, None)
        found[name] = rows

    def _row(self, one: dict[str, Any], version: int, found: dict[str, list[Row]]) -> Row:
        kind, name = one["type"], snake_case(one["name"])
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        is_nullable = Versions.parse(one.get("nullableVersions", "none")).has(version)
        tag = one["tag"] if Versions.parse(one.get("taggedVersions", "none")).has(version) else None
        if kind not in INTEGERS and kind not in _ZEROS:
            self._read(kind, one.get("fields") or self._common[kind]["fields"], version, found)
            return Row(name, "struct", kind, is_array, is_nullable, tag, None)
        default = None if is_array or is_nullable else _default(kind, one.get("default"))
        return Row(name, kind, None, is_array, is_nullable, tag, default)


def read_schemas(jar: Path) -> Iterator[Schema]:
    """The schemas of all requests and responses in a clients jar."""
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(FOLDER) and name.endswith(("Request.json", "Response.json")):
                text = archive.read(name).decode()
                document = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
                if Versions.parse(document["validVersions"]) != NO_VERSIONS:  # otherwise Kafka has removed the API
                    yield Schema(document)


def clients_jar() -> Path | None:
    """The clients jar that `make schema-jar` fetched; None: it is not there."""
    return next(iter(sorted(JARS.glob("kafka-clients-*.jar"))), None)


def snake_case(name: str) -> str:
    """`MaxWaitMs` as max_wait_ms."""
    return _WORD.sub("_", name).lower()


def _default(kind: str, text: Any) -> Any:
    """Kafka's default as a wire value."""
    if text is None:
        return _ZEROS.get(kind, 0)
    if kind == "bool":
        return text in (True, "true")
    if kind == "float64":
        return float(text)
    if kind in INTEGERS:
        return int(str(text), 0)
    return _ZEROS[kind] if kind != "string" else str(text)
