"""Executors may not have this project's modules: functions are pickled by value, and work without imports."""

from __future__ import annotations

from spark_connectors.records.tests import written
from spark_connectors.tests.by_value import printed_elsewhere


def test_by_value() -> None:
    from engine.batches.batch import Codec, Record, RecordHeader
    from spark_connectors.records.batches import batches_of
    from spark_connectors.records.columns import schema_of
    from spark_connectors.records.decode import decode
    from spark_connectors.records.visible import visible

    log = written.batch(Record(b"k", b"v", 1, (RecordHeader(b"\xff", b"w"),)), codec=Codec.ZSTD)

    def task() -> list[object]:
        seen = visible(batches_of(log), [(1, 2)], is_committed_only=True)
        columns = ["key", "value", "offset", "headers"]
        found = decode(log, seen, topic="t", partition=0, start=0, end=1, schema=schema_of(columns))
        return [row for one in found for row in one.to_pylist()]

    expected = repr(task())  # this process's caches are not pickled
    assert printed_elsewhere(task) == expected
