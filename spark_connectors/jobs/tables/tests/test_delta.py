"""Entries of a job in Delta's log, and Delta tables that are refused."""

from __future__ import annotations

import json
import string
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs deltalake: pip install -r requirements/test.txt")

from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from spark_connectors.jobs.tables.api import Place, Position, Progress
from spark_connectors.jobs.tables.delta import DeltaLakeTable
from spark_connectors.jobs.tables.errors import TableRefused
from spark_connectors.jobs.tables.facts import Column, NewFile
from testkit.lakes import JOB, SCHEMA, TOPIC_ID, Lake, export, lake_of, next_one, written


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_of("delta", tmp_path)


@pytest.mark.parametrize("prefix", ["AWS_", "aws_", ""])
def test_settings_of_s3_are_valid_for_the_data_files(prefix: str) -> None:
    given = {
        "ENDPOINT_URL": "http://127.0.0.1:9000",
        "REGION": "eu-1",
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "s/t",
    }
    options = {f"{prefix}{name if prefix == 'AWS_' else name.lower()}": value for name, value in given.items()}
    location = DeltaLakeTable("s3://lake/pay", options).data_location()
    assert location == ("s3://key:s%2Ft@lake/pay/kafkawire?region=eu-1&endpoint_override=http%3A%2F%2F127.0.0.1%3A9000")
    assert DeltaLakeTable("s3://a:b@lake/pay?region=us-2", options).data_location() == (
        "s3://a:b@lake/pay/kafkawire?region=us-2"
    )


def test_the_app_transactions_of_a_job(lake: Lake) -> None:
    export(lake.made(), range(3))
    known = DeltaTable(lake.place).transaction_version
    hexadecimal = TOPIC_ID.hex()
    assert known(f"kafkawire/{JOB}") == 1
    assert known(f"kafkawire/{JOB}/topics") == 1
    assert known(f"kafkawire/{JOB}/topics/0/0") == int.from_bytes(TOPIC_ID[:8], signed=True)
    assert known(f"kafkawire/{JOB}/{hexadecimal}") == 1
    assert known(f"kafkawire/{JOB}/{hexadecimal}/0") == 3
    (commit, _) = DeltaTable(lake.place).history()
    assert (commit["kafkawire.job"], commit["kafkawire.commit"]) == (JOB, "1")


def test_progress_outlives_the_log(lake: Lake) -> None:
    table = lake.made()
    progress = Progress()
    for number in range(4):
        last, progress = progress, progress.advanced([Position(bytes([number] * 16), number, number + 1)])
        table.commit(JOB, [written(table, [number])], last, progress)
    stored = DeltaTable(lake.place)
    stored.create_checkpoint()
    for path in Path(lake.place, "_delta_log").glob("*.json"):
        if int(path.stem) < stored.version():
            path.unlink()
    assert lake.table().progress(JOB) == progress
    assert progress.offsets[Place(bytes([3] * 16), 3)] == 4
    assert lake.offsets() == [0, 1, 2, 3]


def test_others_may_rewrite_the_files(lake: Lake) -> None:
    table = lake.made()
    for number in range(3):
        export(table, range(number, number + 1))
    DeltaTable(lake.place).optimize.compact()
    assert len(table.files()) == 1
    export(table, range(3, 5))
    assert lake.offsets() == list(range(5))
    assert table.sweep(0) == 0  # time travel needs the replaced files
    assert DeltaTable(lake.place, version=3).to_pyarrow_table().num_rows == 3


def test_delta_log_has_the_row_count_and_column_bounds_of_a_file(lake: Lake) -> None:
    export(lake.made(), range(3, 9))
    (told,) = actions(lake)
    assert told["num_records"] == 6
    assert (told["min.offset"], told["max.offset"], told["null_count.offset"]) == (3, 8, 0)
    assert (told["min.topic"], told["max.topic"]) == ("events", "events")
    assert "min.value" not in told


def actions(lake: Lake) -> list[dict[str, Any]]:
    import pyarrow as pa

    found: list[dict[str, Any]] = pa.table(DeltaTable(lake.place).get_add_actions(flatten=True)).to_pylist()
    return found


def test_bounds_of_times_are_moved_outwards(lake: Lake) -> None:
    """Bounds have milliseconds: a reader skips a file whose bounds exclude its rows."""
    table = lake.made()
    file = written(table, range(3))
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    exact = NewFile(file.path, file.rows, file.size_bytes, file.schema, {"timestamp": Column(0, at, at)})
    table.commit(JOB, [exact], Progress(), next_one(Progress(), range(3)))
    (told,) = actions(lake)
    assert told["min.timestamp"] == at.replace(microsecond=678_000)
    assert told["max.timestamp"] == at.replace(microsecond=679_000)


# --- refusals


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, "it would forget the exported offsets"),
        ({"delta.constraints.positive": "offset > 0"}, "the export does not check delta.constraints.positive"),
    ],
)
def test_tables_that_ask_for_more_than_files(lake: Lake, settings: dict[str, str], reason: str) -> None:
    DeltaTable.create(lake.place, SCHEMA, configuration=settings, raise_if_key_not_exists=False)
    check_refused(lake, reason)


def test_partitioned_tables(lake: Lake) -> None:
    DeltaTable.create(lake.place, SCHEMA, partition_by=["topic"])
    check_refused(lake, "it is partitioned, by topic")


def test_columns_that_writers_have_to_make(lake: Lake) -> None:
    computed = Field("day", PrimitiveType("date"), metadata={"delta.generationExpression": "CAST(timestamp AS DATE)"})
    DeltaTable.create(lake.place, Schema([*Schema.from_arrow(SCHEMA).fields, computed]))
    check_refused(lake, "column day is computed, or checked, by its writer")


def check_refused(lake: Lake, reason: str) -> None:
    table = lake.table()
    with pytest.raises(TableRefused, match=reason):
        table.create(SCHEMA)
    with pytest.raises(TableRefused, match=reason):
        table.commit(JOB, [], Progress(), next_one(Progress(), range(3)))


def test_a_way_to_commit_that_is_not_safe(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match="AWS_S3_ALLOW_UNSAFE_RENAME two commits may take each other's place"):
        DeltaLakeTable(str(tmp_path), {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})


@pytest.mark.parametrize("name", ["a%20b", "a[b]"])
def test_paths_that_deltalake_mistakes(tmp_path: Path, name: str) -> None:
    with pytest.raises(TableRefused, match="deltalake mistakes paths"):
        DeltaLakeTable(str(tmp_path / name))


def deletion_vector(*rows: int) -> dict[str, Any]:
    """A deletion vector as Delta's protocol has it in its log: a bitmap of row numbers, all below 2^16, in Z85."""
    bitmap = struct.pack("<IIHHI", 12_346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
    data = struct.pack("<IQI", 1_681_511_377, 1, 0) + bitmap
    inline = b85_of(data.ljust(-(-len(data) // 4) * 4, b"\0"))
    return {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(data), "cardinality": len(rows)}


def b85_of(data: bytes) -> str:
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    numbers = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(digits[number // 85**place % 85] for number in numbers for place in range(4, -1, -1))


def test_files_of_which_rows_were_deleted_are_not_given_out(lake: Lake) -> None:
    export(lake.made(), range(3))
    log = Path(lake.place, "_delta_log")
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    actions = [json.loads(line) for line in (log / f"{1:020}.json").read_text().splitlines()]
    (added,) = [action["add"] for action in actions if "add" in action]
    (log / f"{2:020}.json").write_text(json.dumps(protocol))
    assert len(lake.table().files()) == 1
    removed = {"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}}
    again = {"add": {**added, "deletionVector": deletion_vector(1)}}
    (log / f"{3:020}.json").write_text(f"{json.dumps(removed)}\n{json.dumps(again)}")
    with pytest.raises(TableRefused, match="are not those of its files: rows were deleted"):
        lake.table().files()


def test_files_of_a_table_that_is_partitioned_are_not_given_out(lake: Lake) -> None:
    DeltaTable.create(lake.place, SCHEMA, partition_by=["topic"])
    with pytest.raises(TableRefused, match="are not those of its files: it is partitioned, by topic"):
        lake.table().files()
