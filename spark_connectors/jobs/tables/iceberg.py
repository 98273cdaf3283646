"""Tables of Iceberg, by pyiceberg, in the catalog that the properties name.

The progress of a job is a property of the table, `kafkawire.<job>`, so that snapshots may expire:

    {"commits": 3, "positions": {"<topic id>": {"0": 23, "1": 5}}}

Each commit appends a snapshot, even an empty one: a catalog compares only the position of the branch. If two writers
only set properties, it would take both.

If a catalog refuses a commit, pyiceberg would retry on top of the newer snapshot, without another look at the property,
and commit rows twice. Without retries, it deletes the metadata that the commit has written. But if the commit was
taken, its answer was lost, and the repetition was refused, the table needs this metadata. So pyiceberg does not see
refusals: see `_OneTry`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table as StoredTable

from spark_connectors.jobs.tables import appending
from spark_connectors.jobs.tables.api import OWN, Progress, check_job, refuse_files, refuse_table
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.tables.places import check_files, delete_aged, with_settings
from spark_connectors.jobs.tables.positions import progress_of, progress_to_json
from spark_connectors.jobs.tables.schemas import with_microseconds
from spark_connectors.locations import resolved

_FOLDER: Final = f"data/{OWN}"


class IcebergTable:
    """Implements `spark_connectors.jobs.tables.api.Table`. The name has its namespace: `db.events`. The properties are
    those of pyiceberg's catalogs. SQL catalogs also store tables under the catalog's name.
    """

    def __init__(self, name: str, catalog_name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._catalog_name = catalog_name
        self._properties = dict(properties)
        self._opened: Catalog | None = None

    def schema(self) -> pa.Schema | None:
        snapshot = self._latest()
        return snapshot and snapshot.schema()

    def create(self, schema: pa.Schema) -> None:
        catalog = self._catalog
        catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._name))
        with suppress(TableAlreadyExistsError):
            catalog.create_table(self._name, with_microseconds(schema))
        self._existing().check_table()

    def progress(self, job: str) -> Progress:
        check_job(job)
        snapshot = self._latest()
        return Progress() if snapshot is None else snapshot.progress(job)

    def data_location(self) -> str:
        """See Table. Raises TableRefused if there is no such table yet, because the catalog chooses the location."""
        return self._existing().data_location()

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        """See Table. It reads the footers of the files, one after the other."""
        appending.append(self._latest, job, files, before, after)

    def files(self) -> tuple[str, ...]:
        snapshot = self._latest()
        if snapshot is None:
            return ()
        snapshot.check_plain()
        return snapshot.files()

    def sweep(self, older_than_s: float) -> int:
        """See Table. Files of any snapshot that has not expired stay."""
        snapshot = self._latest()
        if snapshot is None:
            return 0
        kept = {path.rpartition("/")[2] for path in snapshot.ever_added()}
        return delete_aged(snapshot.data_location(), older_than_s, time.time(), lambda name: name not in kept)

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            self._opened = load_catalog(self._catalog_name, **self._properties)
        return self._opened

    def _latest(self) -> _Snapshot | None:
        try:
            return _Snapshot(self._catalog.load_table(self._name), self._name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _existing(self) -> _Snapshot:
        snapshot = self._latest()
        if snapshot is None:
            raise refuse_table(self._name, "there is no such table")
        return snapshot


class _Snapshot:
    """Implements `spark_connectors.jobs.tables.appending.Snapshot`."""

    def __init__(self, table: StoredTable, name: str) -> None:
        table.catalog = _OneTry(table.catalog)
        self._table = table
        self._name = name

    def schema(self) -> pa.Schema:
        return self._table.schema().as_arrow()

    def data_location(self) -> str:
        return resolved(with_settings(self._folder, self._table.io.properties))

    def files(self) -> tuple[str, ...]:
        return tuple(task.file.file_path for task in self._table.scan().plan_files())

    def ever_added(self) -> Iterator[str]:
        """Paths of all files of all snapshots that the table has."""
        seen: set[str] = set()
        for snapshot in self._table.snapshots():
            for manifest in snapshot.manifests(self._table.io):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=False)
                    yield from (entry.data_file.file_path for entry in entries)

    def progress(self, job: str) -> Progress:
        found = self._table.properties.get(_property(job))
        return Progress() if found is None else progress_of(json.loads(found))

    def check(self, files: Sequence[NewFile]) -> None:
        self.check_table()
        check_files(self.data_location(), files, self.schema())

    def check_table(self) -> None:
        """Raises TableRefused."""
        if not self._table.spec().is_unpartitioned():
            raise refuse_table(self._name, "it is partitioned")

    def check_plain(self) -> None:
        """Raises TableRefused if the files have other rows than the table."""
        if any(task.delete_files for task in self._table.scan().plan_files()):
            raise refuse_files(self._name, "rows were deleted that they have (delete files). Rewrite them first")

    def has(self, files: Sequence[NewFile]) -> bool:
        names = {file.path for file in files}
        return any(path.rpartition("/")[2] in names for path in self.files())

    def append(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        del before  # it is the progress of this snapshot, and the catalog checks the branch
        transaction = self._table.transaction()
        transaction.add_files(
            [f"{self._folder}/{file.path}" for file in files],
            snapshot_properties={f"{OWN}.job": job, f"{OWN}.commit": str(after.commits)},
            check_duplicate_files=False,
        )
        transaction.set_properties({_property(job): json.dumps(progress_to_json(after))})
        transaction.commit_transaction()

    @property
    def _folder(self) -> str:
        return f"{self._table.location().rstrip('/')}/{_FOLDER}"


class _OneTry:
    """Catalog that raises `Refused` for a refused commit. pyiceberg's transactions do not know this error, so they
    neither undo nor retry the commit.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        try:
            return self._catalog.commit_table(*arguments, **named)
        except CommitFailedException as error:
            raise appending.Refused(str(error)) from error


def _property(job: str) -> str:
    return f"{OWN}.{job}"
