"""Properties of a job in Iceberg, and refusals that pyiceberg must not handle."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="needs pyiceberg: pip install -r requirements/test.txt")
pytest.importorskip("sqlalchemy", reason="needs sqlalchemy: pip install -r requirements/test.txt")

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan
from pyiceberg.transforms import IdentityTransform

from spark_connectors.jobs.tables.api import Progress
from spark_connectors.jobs.tables.errors import TableRefused
from testkit.lakes import JOB, SCHEMA, TOPIC_ID, Lake, export, lake_of, next_one, stored_iceberg


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_of("iceberg", tmp_path)


def test_the_property_and_the_snapshot_of_a_commit(lake: Lake) -> None:
    export(lake.made(), range(3))
    stored = stored_iceberg(lake)
    assert stored.properties[f"kafkawire.{JOB}"] == f'{{"commits": 1, "positions": {{"{TOPIC_ID.hex()}": {{"0": 3}}}}}}'
    summary = stored.current_snapshot().summary
    assert (summary["kafkawire.job"], summary["kafkawire.commit"]) == (JOB, "1")


def test_progress_outlives_snapshots(lake: Lake) -> None:
    table = lake.made()
    export(table, range(3))
    progress = export(table, range(3, 5))
    lake.append_as_stranger()
    stored = stored_iceberg(lake)
    stored.maintenance.expire_snapshots().older_than(datetime.now()).commit()
    assert len(stored_iceberg(lake).snapshots()) == 1
    assert lake.table().progress(JOB) == progress
    assert table.sweep(0) == 0
    assert lake.offsets() == [-1, 0, 1, 2, 3, 4]


def test_a_refused_commit_is_sent_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg itself would send it five times, on top of any newer snapshot."""
    table = lake.made()
    before = table.progress(JOB)
    sent: list[str] = []
    original = SqlCatalog.commit_table

    def commit_table(*arguments: object) -> object:
        if not sent:
            sent.append("rival")
            export(lake.table(), range(3))
        sent.append("sent")
        return original(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    with pytest.raises(Exception, match="another run of it"):
        export(table, range(3))
    assert sent == ["rival", "sent", "sent"]  # the rival's, and this one's
    assert before == Progress()
    assert lake.offsets() == [0, 1, 2]


def test_partitioned_tables_are_refused(lake: Lake) -> None:
    table = lake.made()
    with stored_iceberg(lake).update_spec() as update:
        update.add_field("topic", IdentityTransform(), "topic")
    with pytest.raises(TableRefused, match="it is partitioned"):
        table.create(SCHEMA)
    with pytest.raises(TableRefused, match="it is partitioned"):
        table.commit(JOB, [], Progress(), next_one(Progress(), range(3)))


def test_where_files_go_the_catalog_says(lake: Lake) -> None:
    table = lake.table()
    with pytest.raises(TableRefused, match="there is no such table"):
        table.data_location()
    table.create(SCHEMA)
    assert table.data_location() == f"{lake.directory}/db/events/data/kafkawire"


def test_files_of_which_rows_were_deleted_are_not_given_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg reads delete files, but does not write any."""
    table = lake.made()
    export(table, range(3))
    (task,) = stored_iceberg(lake).scan().plan_files()
    task.delete_files.add(task.file)
    monkeypatch.setattr(DataScan, "plan_files", lambda _: [task])
    with pytest.raises(TableRefused, match="are not those of its files: rows were deleted"):
        table.files()
