"""Headers of records with many and with few of them, side by side."""

from __future__ import annotations

from typing import Any

import pytest

from engine.batches.batch import Record, RecordHeader
from spark_connectors.records import headers
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.tests.written import batch, decoded, rows_by_the_engine, sealed


def some(count: int) -> tuple[RecordHeader, ...]:
    return tuple(RecordHeader(b"k%d" % index, b"v" * (index % 100)) for index in range(count))


@pytest.mark.parametrize("counts", [[0] * 100, [1] * 100, [*range(100)], [5000, 0, 1], [0, 1] * 50 + [3000]])
def test_however_many_there_are(counts: list[int]) -> None:
    log = batch(*(Record(b"k", b"v", 0, some(count)) for count in counts))
    assert decoded(log) == rows_by_the_engine(log)


@pytest.mark.parametrize("records", [1, 40])  # one by one, and together
@pytest.mark.parametrize("length", [b"\x81\x80\x80\x80\x7c", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x10"])
def test_a_length_of_more_than_32_bits(records: int, length: bytes) -> None:
    """Truncated to 32 bits, it would be another number, possibly not negative, and longer than the record."""
    of_value = (
        b"\x00" * 4 + b"\x01\x02\x02k" + length
    )  # attributes, deltas, an empty key; no value; one header, its key
    body = bytes([2 * len(of_value)]) + of_value
    with pytest.raises(MalformedBatch, match="32 bits"):
        decoded(sealed(body * records, records))


def test_a_record_with_very_many_costs_no_step_of_numpy_each(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(range(2))
    one_each = headers._one_each

    def counted(*arguments: Any) -> Any:
        next(steps)
        return one_each(*arguments)

    monkeypatch.setattr(headers, "_one_each", counted)
    decoded(batch(*[Record(headers=some(2))] * 20, Record(headers=some(10_000))))
    assert next(steps, None) is None
