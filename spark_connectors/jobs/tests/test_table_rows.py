from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.digest import digest_of
from spark_connectors.jobs.table_rows import DEAD_LETTERS, ORIGIN_COLUMNS, REASON, Form, JsonForm, RawForm, Tombstones
from spark_connectors.jobs.tests.logs import batch_of_values, log_batch, log_row

COLUMNS = declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS)
VALUES = [b'{"id": 1}', None, b"x", b'{"id": 2}']


def test_a_raw_table_has_the_columns_of_the_log_in_snake_case() -> None:
    row = log_row(7, headers=[{"key": "a", "value": None}])
    found = RawForm().table_rows(log_batch([row]))
    assert found.rows.schema == RawForm().schema
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"]
    assert found.rows.schema.names == names
    assert list(found.rows.to_pylist()[0].values()) == list(row.values())
    assert not found.dead
    assert not found.skipped


def test_a_raw_table_has_the_digest_of_its_log() -> None:
    batch = log_batch([log_row(offset, value=None if offset % 2 else b"v") for offset in range(5)])
    form = RawForm()
    assert digest_of(form.table_rows(batch).rows, form.digested) == digest_of(batch)


def test_a_table_of_json_has_the_columns_that_were_declared_and_where_rows_come_from() -> None:
    found = JsonForm(COLUMNS).table_rows(log_batch([log_row(7, value=b'{"id": 1, "more": 2}')]))
    time = log_row(7)["timestamp"]
    assert found.rows.to_pylist() == [
        {"id": 1, "_topic": "orders", "_partition": 1, "_offset": 7, "_timestamp": time},
    ]
    assert digest_of(found.rows, JsonForm(COLUMNS).digested).rows == 1


@pytest.mark.parametrize("tombstones", Tombstones)
def test_rows_that_cannot_be_decoded_are_dead_letters(tombstones: Tombstones) -> None:
    found = JsonForm(COLUMNS, tombstones).table_rows(batch_of_values(VALUES))
    assert found.rows.select(["id", "_offset"]).to_pylist() == [{"id": 1, "_offset": 0}, {"id": 2, "_offset": 3}]
    null, wrong = (1, None, "null value"), (2, b"x", "no JSON object")
    expected = ([null, wrong], 0) if tombstones is Tombstones.DEAD else ([wrong], 1)
    assert found.dead is not None
    letters = [(row["offset"], row["value"], row["reason"]) for row in found.dead.to_pylist()]
    assert (letters, found.skipped) == expected


def test_dead_letter_has_all_columns_of_its_row() -> None:
    row = log_row(7, value=b"x", headers=[{"key": "a", "value": None}])
    found = JsonForm(COLUMNS).table_rows(log_batch([log_row(6, value=b'{"id": 1}'), row]))
    assert found.dead is not None
    assert found.dead.schema == DEAD_LETTERS
    assert found.dead.drop_columns([REASON]) == RawForm().table_rows(log_batch([row])).rows


@given(st.lists(st.sampled_from([*VALUES, b'{"id": "x"}', b"{}{}"]), max_size=6), st.sampled_from(Tombstones))
def test_each_row_is_in_the_table_or_is_a_dead_letter_or_is_skipped(
    values: list[bytes | None], tombstones: Tombstones
) -> None:
    found = JsonForm(COLUMNS, tombstones).table_rows(batch_of_values(values))
    letters = [] if found.dead is None else found.dead.column("offset").to_pylist()
    offsets = [*found.rows.column("_offset").to_pylist(), *letters]
    assert len(set(offsets)) == len(offsets) == len(values) - found.skipped
    assert found.skipped == (values.count(None) if tombstones is Tombstones.SKIP else 0)


@pytest.mark.parametrize("form", [RawForm(), JsonForm(COLUMNS)], ids=["raw", "json"])
def test_no_rows_make_none(form: Form) -> None:
    found = form.table_rows(log_batch([]))
    assert found.rows.num_rows == 0
    assert pa.Table.from_batches([found.rows]).schema == form.schema
