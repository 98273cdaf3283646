"""Digests, compared with the same sums in plain Python, one byte at a time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs import digest as module
from spark_connectors.jobs.digest import LOG_COLUMNS, Digest, digest_of, row_hashes
from spark_connectors.jobs.tests.logs import log_batch, log_row
from spark_connectors.records.columns import COLUMNS

_MODULUS = 1 << 64
_P = 0x2545F4914F6CDD1B
_NULL = (1 << 63) + 123
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def slow_mixed(words: list[int]) -> int:
    found = 0x9E3779B97F4A7C15
    for word in words:
        found ^= word
        found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 % _MODULUS
        found = (found ^ found >> 27) * 0x94D049BB133111EB % _MODULUS
        found ^= found >> 31
    return found


def slow_word(value: Any) -> int:
    match value:
        case None:
            return _NULL
        case int():
            return value % _MODULUS
        case datetime():
            since = value - _EPOCH
            return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) % _MODULUS
        case dict():
            return slow_mixed([slow_word(value[name]) for name in ("key", "value")])
        case str():
            return slow_word(value.encode())
    polynomial = 0
    for one in reversed(value):
        polynomial = (polynomial * _P + (one if isinstance(value, bytes) else slow_word(one))) % _MODULUS
    return (polynomial + (len(value) + 1) * 0xD6E8FEB86659FD93) % _MODULUS


def slow_digest(rows: list[dict[str, Any]]) -> Digest:
    return Digest(len(rows), sum(slow_mixed([slow_word(row[name]) for name in LOG_COLUMNS]) for row in rows) % _MODULUS)


OCTETS = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=4), "value": OCTETS}), max_size=4)
ROWS = st.lists(
    st.builds(
        log_row,
        st.integers(0, 2**63 - 1).map(lambda offset: offset % 10_000),
        key=OCTETS,
        value=OCTETS,
        headers=HEADERS,
        partition=st.integers(0, 2**31 - 1),
        timestampType=st.sampled_from([0, 1]),
    ),
    max_size=12,
)


@given(ROWS)
def test_digest_equals_the_sum_in_plain_python(rows: list[dict[str, Any]]) -> None:
    assert digest_of(log_batch(rows)) == slow_digest(rows)


@given(ROWS, st.randoms(use_true_random=False), st.lists(st.integers(0, 12), max_size=3))
def test_digest_does_not_depend_on_row_order_or_batches(
    rows: list[dict[str, Any]], random: Any, cuts: list[int]
) -> None:
    whole = digest_of(log_batch(rows))
    random.shuffle(rows)
    batch = log_batch(rows)
    cuts = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [batch.slice(begin, end - begin) for begin, end in pairwise(cuts)]
    assert sum((digest_of(part) for part in parts), Digest()) == whole
    if parts:
        assert digest_of(pa.Table.from_batches(parts)) == whole


@given(st.data(), ROWS.filter(bool))
def test_digest_changes_with_any_changed_value(data: Any, rows: list[dict[str, Any]]) -> None:
    changed = [dict(row) for row in rows]
    row = changed[data.draw(st.integers(0, len(rows) - 1))]
    name = data.draw(st.sampled_from(LOG_COLUMNS))
    match row[name]:
        case None:
            row[name] = b"" if name != "headers" else []
        case int():
            row[name] ^= 1
        case datetime():
            row[name] = row[name].replace(microsecond=(row[name].microsecond + 1000) % 1_000_000)
        case bytes() if row[name]:
            at = data.draw(st.integers(0, len(row[name]) - 1))
            other = row[name][at] ^ 1 << data.draw(st.integers(0, 7))
            row[name] = row[name][:at] + bytes([other]) + row[name][at + 1 :]
        case [first, second, *more] if first != second:
            row[name] = [second, first, *more]
        case _:
            row[name] = None
    assert digest_of(log_batch(changed)) != digest_of(log_batch(rows))


def test_bytes_that_move_from_one_column_or_row_to_another_make_another() -> None:
    together = [log_row(0, key=b"ab", value=b"c"), log_row(1, key=b"", value=b"")]
    apart = [log_row(0, key=b"a", value=b"bc"), log_row(1, key=b"", value=b"")]
    swapped = [log_row(0, key=b"", value=b""), log_row(1, key=b"ab", value=b"c")]
    zeros = [log_row(0, key=b"ab\0", value=b"c"), log_row(1, key=b"", value=b"")]
    found = {str(digest_of(log_batch(rows))) for rows in (together, apart, swapped, zeros)}
    assert len(found) == 4


def test_a_row_that_is_there_twice_counts_twice() -> None:
    once = digest_of(log_batch([log_row()]))
    assert digest_of(log_batch([log_row(), log_row()])) == once + once != once


@pytest.mark.parametrize("size", [module._BLOCK - 1, module._BLOCK, module._BLOCK + 1, 3 * module._BLOCK])
def test_values_are_as_long_as_they_like(size: int) -> None:
    rows = [log_row(0, value=b"ab" * (size // 2)), log_row(1, value=b"\xff" * size), log_row(2, value=b"")]
    batch = log_batch(rows)
    assert digest_of(batch) == slow_digest(rows)
    assert digest_of(batch.slice(1)) == slow_digest(rows[1:])
    assert digest_of(batch.slice(0, 2)) == slow_digest(rows[:2])


def test_there_may_be_more_rows_than_are_hashed_at_a_time() -> None:
    rows = [log_row(offset, value=b"%d" % offset) for offset in range(module._ROWS + 3)]
    hashes = row_hashes(log_batch(rows))
    assert len(hashes) == len(rows)
    assert row_hashes(log_batch(rows[-2:])).tolist() == hashes[-2:].tolist()


def test_bytes_behind_a_null_do_not_change_the_hash() -> None:
    hidden = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"abcd")]
    )
    plain = pa.array([None, b"cd"], pa.binary())
    assert hidden == plain
    assert _hashes(hidden) == _hashes(plain)


def test_a_value_has_one_hash_in_all_types_that_can_say_it() -> None:
    time = datetime(2026, 11, 26, 1, 2, 3, 456_000, tzinfo=UTC)
    for value, kinds in (
        (b"ab", [pa.binary(), pa.large_binary(), pa.binary_view()]),
        ("ab", [pa.string(), pa.large_string(), pa.string_view()]),
        (-1, [pa.int32(), pa.int64()]),
        (1.5, [pa.float32(), pa.float64()]),
        (time, [pa.timestamp(unit, "UTC") for unit in ("ms", "us", "ns")]),
        ([1, None], [pa.list_(pa.int32()), pa.large_list(pa.int64())]),
    ):
        assert len({_hashes(pa.array([None, value], kind)) for kind in kinds}) == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], pa.bool_()),
        ([date(2026, 1, 1), date(2026, 1, 2), None], pa.date32()),
        ([Decimal("1.25"), Decimal("-1.25"), Decimal(2**70), None], pa.decimal128(38, 2)),
        ([[], [[]], [[], []], [["a"], []], [["a", None]], [None], None], pa.list_(pa.list_(pa.string()))),
        (
            [{"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": None, "b": None}],
            pa.struct([("a", pa.int32()), ("b", pa.int32())]),
        ),
    ],
    ids=["booleans", "dates", "decimals", "lists", "structs"],
)
def test_columns_of_tables_are_hashed_too(values: list[Any], kind: pa.DataType) -> None:
    hashes = _hashes(pa.array(values, kind))
    assert len(set(hashes)) == len(values)
    backwards = _hashes(pa.array([None, *reversed(values)], kind).slice(1))
    assert list(reversed(backwards)) == list(hashes)


def test_no_rows_have_the_digest_of_none() -> None:
    assert digest_of(log_batch([])) == Digest() == digest_of(pa.schema(COLUMNS.items()).empty_table())


def test_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        digest_of(log_batch([]).select(["key"]))


def test_digest_is_printed_in_one_line() -> None:
    assert str(Digest(2, 0xABC)) == "2 rows, 0000000000000abc"


def _hashes(array: pa.Array) -> tuple[int, ...]:
    return tuple(row_hashes(pa.RecordBatch.from_arrays([array], ["a"]), ["a"]).tolist())
