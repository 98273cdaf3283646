"""Tables that were exported from a real broker, and damage to their rows."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from compat_tests.applications.jobs.runs import Run, run
from compat_tests.applications.jobs.spoiled import change_rows, fill, sealed, where
from compat_tests.applications.spark.test_transactions import Writer
from compat_tests.clients.confluent.clients import Admin, create_topic, wait_until
from compat_tests.features.tiering.brokers import TieredKafkawire
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}  # records are years old
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1", **SMALL}
COMMITTED = ("--option", "kafka.isolation.level=read_committed")

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredKafkawire]:
    overrides = {"log.cleaner.backoff.ms": "200"}
    with TieredKafkawire(tmp_path_factory.mktemp("verify"), overrides) as running:
        yield running


def export(broker: Kafkawire, topic: str, table: str, *words: str) -> Run:
    found = run("export", *where(broker, topic), "--to", table, "--file-size", "300KiB", "--workers", "1", *words)
    assert (found.code, found.stderr) == (0, "")
    return found


def verify(broker: Kafkawire, topic: str, table: str, *words: str, workers: int = 1) -> Run:
    workers_told = [] if "--spark" in words else ["--workers", str(workers)]
    return run("verify", *where(broker, topic), "--table", table, *words, *workers_told)


def lose(rows: Rows, at: int) -> None:
    del rows[at]


def double(rows: Rows, at: int) -> None:
    rows.append(rows[at])


def damage(rows: Rows, at: int) -> None:
    value = rows[at]["value"]
    rows[at]["value"] = bytes([value[0] ^ 1]) + value[1:]


def move(rows: Rows, at: int) -> None:
    rows[at]["partition"] = 1 - rows[at]["partition"]


def test_verify_finds_an_export_equal_and_names_each_changed_row(
    broker: TieredKafkawire, topic: str, tmp_path: Path
) -> None:
    create_topic(broker, topic, partitions=2, config=SMALL)
    fill(broker, topic, 2, 6000)
    folder = tmp_path / "table"
    table = f"parquet:{folder}"
    export(broker, topic, table, *sealed(broker))
    assert len(list(folder.glob("*.parquet"))) > 4
    for words in ((), sealed(broker)):
        same = verify(broker, topic, table, *words, workers=2)
        assert (same.code, same.report["findings"], same.stderr) == (0, [], "")
        assert (same.counts["log_rows"], same.counts["table_rows"]) == (6000, 6000)
    for change, kinds in ((lose, ["missing"]), (double, ["doubled"]), (damage, ["different"])):
        shutil.copytree(folder, tmp_path / change.__name__)
        change_rows(tmp_path / change.__name__, 1, 1234, change)
        found = verify(broker, topic, f"parquet:{tmp_path / change.__name__}", *sealed(broker))
        assert found.code == 1
        place = {"of": "rows", "partition": 1, "first": 1234, "last": 1234, "rows": 1}
        assert found.report["findings"] == [{"kind": kind, **place} for kind in kinds]
        assert found.stderr.startswith("verify: 1 findings: ")
    change_rows(folder, 0, 77, move)
    found = verify(broker, topic, table)
    assert [(one["kind"], one["partition"], one["first"]) for one in found.report["findings"]] == [
        ("missing", 0, 77),
        ("different", 1, 77),
    ]


def test_executors_of_spark_compare_as_well(
    broker: TieredKafkawire, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_pyspark()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    create_topic(broker, topic, partitions=2, config=SMALL)
    fill(broker, topic, 2, 2000)
    table = f"parquet:{tmp_path}/table"
    export(broker, topic, table)
    same = verify(broker, topic, table, *sealed(broker), "--spark")
    assert same.code == 0, same.stderr
    assert (same.counts["log_rows"], same.counts["table_rows"]) == (2000, 2000)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_verify_names_a_row_that_was_deleted_from_a_lake_as_missing(
    broker: TieredKafkawire, topic: str, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    create_topic(broker, topic, partitions=2, config=SMALL)
    fill(broker, topic, 2, 1000)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    words = [] if kind == "delta" else [f"--table-option={name}={value}" for name, value in catalog.items()]
    table = f"delta:{tmp_path}/table" if kind == "delta" else "iceberg:house/db.events"
    export(broker, topic, table, *words)
    same = verify(broker, topic, table, *words)
    assert (same.code, same.counts["table_rows"]) == (0, 1000)
    if kind == "delta":
        from deltalake import DeltaTable

        DeltaTable(f"{tmp_path}/table").delete("partition = 1 and offset = 250")
    else:
        from pyiceberg.catalog import load_catalog

        load_catalog("house", **catalog).load_table("db.events").delete("partition = 1 and offset = 250")
    found = verify(broker, topic, table, *words)
    assert found.code == 1
    assert [(one["kind"], one["partition"], one["first"], one["rows"]) for one in found.report["findings"]] == [
        ("missing", 1, 250, 1)
    ]


def test_a_tiered_topic_of_which_retention_takes_some(broker: TieredKafkawire, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, config=TIERED)
    fill(broker, topic, 1, 5000)
    table = f"parquet:{tmp_path}/table"
    export(broker, topic, table)
    wait_until(lambda: len(list((broker.directory / "tier").glob(f"*/*/0/{0:020d}-*"))) > 0, "nothing is copied", 60)
    sources: list[list[str]] = [[], sealed(broker), ["--option", f"segments=file://{broker.directory}/tier"]]
    for words in sources:
        assert verify(broker, topic, table, *words).code == 0
    Admin(broker).delete_records(topic, 2000)
    for words in sources[:2]:
        found = verify(broker, topic, table, *words)
        assert (found.code, found.report["findings"]) == (0, [])
        assert (found.counts["offsets_gone"], found.counts["log_rows"]) == (2000, 3000)
        assert found.counts["table_rows_elsewhere"] == 2000


def test_transactions_are_compared_as_they_were_exported(broker: TieredKafkawire, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, partitions=2, config={"segment.ms": "100", **SMALL})
    writer = Writer(broker, topic)
    for number in range(4):
        writer.everything(number)
    table = f"parquet:{tmp_path}/table"
    exported = export(broker, topic, table, *COMMITTED)
    for words in ((), sealed(broker)):
        same = verify(broker, topic, table, *COMMITTED, *words)
        assert (same.code, same.counts["log_rows"]) == (0, exported.counts["rows"])
    found = verify(broker, topic, table)
    assert found.code == 1
    assert {one["kind"] for one in found.report["findings"]} == {"missing"}
    assert found.counts["missing"] == writer.aborted


def test_a_compacted_topic(broker: TieredKafkawire, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, config={"min.cleanable.dirty.ratio": "0.01", **SMALL})
    fill(broker, topic, 1, 6000)
    table = f"parquet:{tmp_path}/table"
    exported = export(broker, topic, table)
    assert exported.counts["rows"] == 6000
    assert verify(broker, topic, table).code == 0
    Admin(broker).alter_config(topic, "cleanup.policy", "compact")

    def is_compacted() -> bool:
        """Whether all rows that the log lacks are counted as compacted. The log is read twice, and may lose more rows
        in between: then the counts differ."""
        found = verify(broker, topic, table, "--compacted", *sealed(broker))
        assert (found.code, found.report["findings"]) == (0, [])
        return found.counts.get("compacted", 0) == 6000 - found.counts["log_rows"] > 0

    wait_until(is_compacted, "it is not compacted", 60)
    assert verify(broker, topic, table).code == 1


def test_verify_compares_json_rows_and_their_dead_letters(broker: TieredKafkawire, topic: str, tmp_path: Path) -> None:
    def value(number: int) -> bytes:
        return b"dead" if number % 10 == 3 else json.dumps({"id": number, "name": f"n{number}"}).encode()

    create_topic(broker, topic, partitions=2, config=SMALL)
    fill(broker, topic, 2, 1000, value)
    schema = tmp_path / "schema.json"
    schema.write_text('[{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]')
    table, form = f"parquet:{tmp_path}/table", ("--form", "json", "--schema", str(schema))
    export(broker, topic, table, *form)
    same = verify(broker, topic, table, *form)
    assert (same.code, same.report["findings"]) == (0, [])
    counts = ("log_rows", "table_rows", "dead", "dead_letters")
    assert [same.counts[name] for name in counts] == [1000, 900, 100, 100]
    (letter, *_) = pq.read_table(tmp_path / "table~dlq").to_pylist()
    change_rows(tmp_path / "table~dlq", letter["partition"], letter["offset"], lose)
    found = verify(broker, topic, table, *form)
    assert [(one["kind"], one["of"], one["rows"]) for one in found.report["findings"]] == [
        ("missing", "dead letters", 1)
    ]
    assert verify(broker, topic, table).code == 2
