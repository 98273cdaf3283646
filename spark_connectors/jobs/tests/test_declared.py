from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_connectors.jobs.declared import DeclarationRefused, declared

_TIMESTAMP = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bool", pa.bool_()),
        ("int32", pa.int32()),
        ("int64", pa.int64()),
        ("float32", pa.float32()),
        ("float64", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", _TIMESTAMP),
        ("timestamp(epoch_ms)", _TIMESTAMP),
        (" decimal ( 10 , 2 ) ", pa.decimal128(10, 2)),
        ("list<date>", pa.list_(pa.field("element", pa.date32()))),
        ("struct{a: int64, b_2:bool}", pa.struct([("a", pa.int64()), ("b_2", pa.bool_())])),
        ("list<" * 32 + "bool" + ">" * 32, None),
    ],
)  # fmt: skip
def test_declared_type_becomes_its_arrow_type(text: str, kind: pa.DataType | None) -> None:
    found = declared(json.dumps([{"name": "a", "type": text}])).table
    assert found.names == ["a"]
    assert kind is None or found.field("a") == pa.field("a", kind)


def test_column_has_its_declared_nullability() -> None:
    columns = [{"name": "a", "type": "int32", "nullable": False}, {"name": "b", "type": "int32", "nullable": True}]
    assert [field.nullable for field in declared(json.dumps(columns)).table] == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "", "int", "INT32", "string string", "decimal", "decimal(0,0)", "decimal(39,2)", "decimal(2,3)",
        "decimal(5,-1)",
        "decimal(٣,1)", "list", "list<>", "list<int32", "list<int32>>", "struct{}", "struct{a}", "struct{a: int32",
        "struct{a: int32,}",
        "struct{a: int32, A: int32}", "struct{a b: int32}", "timestamp(us)", "timestamp(epoch_ms",
        "list<" * 33 + "bool" + ">" * 33,
    ],
)  # fmt: skip
def test_unknown_or_malformed_type_is_refused_with_its_column(text: str) -> None:
    with pytest.raises(DeclarationRefused, match="column 'amount': "):
        declared(json.dumps([{"name": "amount", "type": text}]))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({}, "no list"),
        ([], "no list"),
        (["a"], "'a' is no column"),
        ([{"type": "bool"}], "has no name"),
        ([{"name": "", "type": "bool"}], "has no name"),
        ([{"name": "a"}], "its type is no text"),
        ([{"name": "a", "type": "bool", "nullable": 1}], "nullable is true or false"),
        ([{"name": "a", "type": "bool", "default": 1}], "'default'.* is not known"),
        ([{"name": "a", "type": "bool"}, {"name": "A", "type": "bool"}], "'A' is there already"),
        ([{"name": "_Offset", "type": "bool"}], "'_Offset' is there already"),
    ],
)
def test_columns_that_make_no_table_are_refused(columns: Any, why: str) -> None:
    with pytest.raises(DeclarationRefused, match=why):
        declared(json.dumps(columns), taken=["_offset"])


def test_declaration_that_is_not_json_is_refused() -> None:
    with pytest.raises(DeclarationRefused, match="no JSON"):
        declared("id int64")
