"""How many Spark rows does a core turn into batches: partitions chosen, records encoded, a file staged?

All that a task of the sink does with the batches of Arrow that come from the JVM, in pieces as Spark cuts them. Time is
CPU time of this process with all its threads.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.spark.spark_decode import COMPARED, NOW_MS, SMALL, Case, measured, records_of
from spark_connectors.records.columns import COLUMNS
from spark_connectors.sink.options import sink_options
from spark_connectors.sink.staging import Task, delete_written
from spark_connectors.sink.task import stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

ROWS, TOY_ROWS = 200_000, 2_000
BATCH_ROWS: Final = 10_000  # spark.sql.execution.arrow.maxRecordsPerBatch
BY: Final = Task("measured", None, 0, 0)
BOUND: Final = "at least 0.5 M records a second and core"


@dataclass(frozen=True)
class Encoding:
    """A case: rows with or without a key, to so many partitions."""

    rows: Case
    partitions: int
    has_keys: bool = True
    codec: str = "none"

    @property
    def name(self) -> str:
        keys = "by key" if self.has_keys else "without a key"
        codec = "" if self.codec == "none" else f", {self.codec}"
        return f"{self.rows.name} {keys} to {self.partitions} partitions{codec}"


PLAIN, HEADED = Case("100 B", 100, SMALL), Case("100 B and two headers", 100, SMALL, headers=2)
CASES: Final = (
    Encoding(PLAIN, 2),
    Encoding(PLAIN, 100),
    Encoding(PLAIN, 2, has_keys=False),
    Encoding(PLAIN, 2, codec="zstd"),
    Encoding(HEADED, 2),
    Encoding(Case("1 KiB", KIB, SMALL), 2),
)


def rows_of(case: Encoding, count: int) -> list[pa.RecordBatch]:
    """The rows in batches, as they come from the JVM."""
    records = list(itertools.islice(records_of(case.rows, random.Random(1)), count))
    columns = {"value": pa.array([one.value for one in records], COLUMNS["value"])}
    if case.has_keys:
        columns["key"] = pa.array([one.key for one in records], COLUMNS["key"])
    if case.rows.headers:
        headers = [[{"key": each.key.decode(), "value": each.value} for each in one.headers] for one in records]
        columns["headers"] = pa.array(headers, COLUMNS["headers"])
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches(BATCH_ROWS)
    return batches


def run_case(case: Encoding, directory: Path, options: Options) -> report.Result:
    rows = rows_of(case, TOY_ROWS if options.toy else ROWS)
    chosen = sink_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "kafka.compression.type": case.codec,
            "topic": "measured",
            "stagingLocation": str(directory),
        }
    )

    def staged() -> int:
        return stage(iter(rows), BY, chosen, lambda _: case.partitions, lambda: NOW_MS).rows

    runs = []
    for _ in range(options.alternations + 1):
        runs.append(measured(staged, case.rows.record_size_bytes))
        delete_written(str(directory), BY.query, BY.batch_id)
    result = report.Result(case.name, COMPARED, {"spark_connectors": runs[1:]}, BOUND)
    print(report.as_text(result), flush=True)
    return result


def compare(directory: Path, options: Options) -> report.Report:
    return report.Report(machine.facts(), [run_case(case, directory, options) for case in CASES])


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("spark-encode", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
