"""The main rule: the result of a value does not depend on other values."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_connectors.jobs import json_values as module
from spark_connectors.jobs.declared import Declared, declared
from spark_connectors.jobs.json_values import NO_OBJECT, NULL_VALUE, decode

COLUMNS = declared(
    json.dumps(
        [
            {"name": "id", "type": "int32", "nullable": False},
            {"name": "name", "type": "string"},
            {"name": "price", "type": "decimal(5,2)"},
            {"name": "cost", "type": "decimal(38,10)"},
            {"name": "weight", "type": "float32"},
            {"name": "at", "type": "timestamp"},
            {"name": "seen", "type": "timestamp(epoch_ms)"},
            {"name": "day", "type": "date"},
            {"name": "raw", "type": "binary"},
            {"name": "parts", "type": "list<struct{raw: binary, days: list<date>}>"},
        ]
    )
)
A_STRING = declared('[{"name": "a", "type": "string"}]')

_LITERALS = st.sampled_from(
    [
        "null", "true", "0", "-0", "1.5", "1e2", "1e39", "1e400", "2147483648", "12345678901", "NaN", "01", '"x"', '""',
        '"YWI="', '"YWI"',
        '"2026-11-26"', '"2026-02-30"', '"2026-11-26T01:02:03.456789+02:00"', '"2026-11-26T01:02:03Z"',
        '"\\ud83d\\ude00"', '"\\ud800"',
        "[]", "{}", "[null]", '[{"raw": "YQ==", "days": ["2026-01-01", null]}]',
        '[{"raw": "!"}]', "[[[]]]", '"a\nb"', '"}\\n{"', "-9e18",
    ]
)  # fmt: skip
_NAMES = st.sampled_from([*COLUMNS.table.names, "other", "i\\u0064"])
_BLANKS = st.text(" \t\r\n", max_size=2)
_OBJECTS = st.builds(
    lambda fields, blank: "{" + ",".join(f'{blank}"{name}":{blank}{value}' for name, value in fields) + "}",
    st.lists(st.tuples(_NAMES, _LITERALS), max_size=3).map(lambda fields: [("id", "1"), *fields]),
    _BLANKS,
)
_PIECES = st.sampled_from(
    ["{", "}", '{"id":1}', "null", "[", "]", ",", '"', "\0", "\n", " ", "1", "/**/", "\ufeff", ":", '{"id":']
)
_VALUES = st.one_of(
    st.none(),
    st.just(b'{"id": 7}'),
    _OBJECTS.map(str.encode),
    st.lists(_PIECES, max_size=5).map(lambda pieces: "".join(pieces).encode()),
    st.lists(_PIECES, max_size=3).map(lambda pieces: ('{"id":1}' + "".join(pieces) + "}").encode()),
    st.tuples(_OBJECTS.map(str.encode), st.integers(0, 60), st.binary(max_size=2)).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[2] + drawn[0][drawn[1] :]
    ),
)


def results(values: list[bytes | None], columns: Declared) -> list[Any]:
    """Result of each value: a row, or the reason why there is none."""
    found = decode(pa.array(values, pa.binary()), columns)
    found.rows.validate(full=True)
    assert found.rows.schema.equals(columns.table)
    assert found.kept == [index for index in range(len(values)) if index not in found.reasons]
    by_index: dict[int, Any] = dict(zip(found.kept, found.rows.to_pylist(), strict=True))
    return [(found.reasons | by_index)[index] for index in range(len(values))]


@given(st.lists(_VALUES, max_size=8), st.sampled_from([COLUMNS, A_STRING]))
@example([b'{"id":1}{"id":2}', b"", b'{"id":3}'], COLUMNS)
@example([b'{"id":1}null', b'{"id":3}'], COLUMNS)
@example([b'{"id":1}\0}', b'{"id":3}{"id":4}'], COLUMNS)
@example([b'{"id":1}{"id":2}\0}', b'{"id":3}'], COLUMNS)
@example([b'{"id":1,"name":"x}', b'{"id":2,"name":"}'], COLUMNS)
@example([b'{"id":1', b',"name":"x"}'], COLUMNS)
@example([b'{"id":1}\n{"id":2}', b"\n", b'{"id":3}'], COLUMNS)
def test_result_of_a_value_does_not_depend_on_other_values(values: list[bytes | None], columns: Declared) -> None:
    assert results(values, columns) == [results([value], columns)[0] for value in values]


@given(st.lists(_OBJECTS, min_size=1, max_size=4))
def test_decoded_row_equals_the_result_of_json_loads(texts: list[str]) -> None:
    for text, found in zip(texts, results([text.encode() for text in texts], A_STRING), strict=True):
        if isinstance(found, dict):
            assert found == {"a": json.loads(text).get("a")}


def test_each_type_is_read() -> None:
    value = {
        "id": 1,
        "name": "é\0",
        "price": 1.5,
        "cost": "12345678901234567890.12345",
        "weight": 2,
        "at": "2026-11-26T01:02:03.456789+01:00",
        "seen": 1_700_000_000_123,
        "day": "2026-11-26",
        "raw": "YWI=",
        "parts": [{"raw": "Yw==", "days": ["2026-01-01", None]}, None, {}],
        "more": {"id": 2},
    }
    row = {
        "id": 1,
        "name": "é\0",
        "price": Decimal("1.50"),
        "cost": Decimal("12345678901234567890.1234500000"),
        "weight": 2.0,
        "at": datetime(2026, 11, 26, 0, 2, 3, 456_789, tzinfo=UTC),
        "seen": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "day": date(2026, 11, 26),
        "raw": b"ab",
        "parts": [{"raw": b"c", "days": [date(2026, 1, 1), None]}, None, {"raw": None, "days": None}],
    }
    nothing = dict.fromkeys(row) | {"id": 2}
    assert results([json.dumps(value).encode(), b'{"id": 2, "parts": null}'], COLUMNS) == [row, nothing]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, NULL_VALUE),
        (b"", NO_OBJECT),
        (b" \n", NO_OBJECT),
        (b"[1]", NO_OBJECT),
        (b"null", NO_OBJECT),
        (b'\xef\xbb\xbf{"id":1}', NO_OBJECT),
        (b"{}", "id is null, or is not there"),
        (b'{"id":null}', "id is null, or is not there"),
        (b'{"id":1}{"id":2}', "more than one JSON document"),
        (b'{"id":1}\0{"id":2}', "a byte 0"),
        (b'{"id":1,"id":2}', "JSON parse error: Column(/id) was specified twice"),
        (b'{"id":"1"}', "JSON parse error: Column(/id) changed from number to string"),
        (b'{"id":2147483648}', "couldn't parse:2147483648"),
        (b'{"id":1.0}', "couldn't parse:1.0"),
        (b'{"id":1,"other":"\xff"}', "UTF8"),
        (b'{"id":1,"weight":1e39}', "weight: a number that is not finite"),
        (b'{"id":1,"price":"n/a"}', "price"),
        (b'{"id":1,"weight":NaN}', "a number that is not finite"),
        (b'{"id":1,"price":1.255}', "price: failed"),
        (b'{"id":1,"price":1.255}', "requires scale 3"),
        (b'{"id":1,"price":1000}', "does not fit in precision"),
        (b'{"id":1,"cost":1e28}', "cost: "),
        (b'{"id":1,"cost":1e38}', "decimal"),
        (b'{"id":1,"cost":99999999999999999999999999999999999999}', "decimal"),
        (b'{"id":1,"raw":"a"}', "base64"),
        (b'{"id":1,"day":"2026-02-30"}', "2026-02-30"),
        (b'{"id":1,"at":"2026-02-30"}', "2026-02-30"),
        (b'{"id":1,"seen":9223372036854775807}', "out of bounds"),
    ],
)
def test_undecodable_value_has_a_reason_and_its_neighbours_are_decoded(value: bytes | None, reason: str) -> None:
    good = b'{"id": 1}'
    first, found, last = results([good, value, good], COLUMNS)
    assert reason.lower() in found.lower()
    assert first["id"] == last["id"] == 1


def test_values_may_be_written_over_many_lines() -> None:
    assert results([b'\n{\n  "a":\r\n "b"\n}\n\n', b'{"a": "c"}'], A_STRING) == [{"a": "b"}, {"a": "c"}]


def test_values_may_be_nested_as_deeply_as_they_like() -> None:
    deep = b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b', "a": "c"}'
    assert results([deep, b'{"a": "d"}'], A_STRING) == [{"a": "c"}, {"a": "d"}]


def test_long_reason_is_shortened_to_the_maximum() -> None:
    (found,) = results([b'{"id": ' + b"1" * 1000 + b"}"], COLUMNS)
    assert len(found) == module._REASON_MAX_CHARACTERS


def test_many_values_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"a": "%d"}' % index for index in range(100)]
    monkeypatch.setattr(module, "_TOGETHER_MAX_BYTES", 200)
    assert results([*values, b"{"], A_STRING) == [*({"a": str(index)} for index in range(100)), NO_OBJECT]


@pytest.mark.parametrize("wrong", [b'{"a": 1}', b"{}"], ids=["of another type", "not there"])
def test_few_that_are_wrong_cost_few_tries(monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    tries: list[int] = []
    decoded = module._decoded

    def counted(text: pa.Array, columns: Declared) -> pa.RecordBatch:
        tries.append(len(text))
        return decoded(text, columns)

    monkeypatch.setattr(module, "_decoded", counted)
    values = [b'{"a": "b"}'] * 1000
    values[10] = values[500] = values[999] = wrong
    columns = declared('[{"name": "a", "type": "string", "nullable": false}]')
    assert list(decode(pa.array(values, pa.binary()), columns).reasons) == [10, 500, 999]
    assert len(tries) <= 9
