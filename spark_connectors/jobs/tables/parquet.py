"""A local directory of Parquet files, which any reader can read.

    <name>.parquet                             committed, or of another writer
    _kafkawire/schema.arrow                    schema of the table, if a job created it
    _kafkawire/staging/<name>.parquet          written by a task
    _kafkawire/jobs/<job>/<commit>.json        progress and names of files; the commit has 20 digits

A commit is in the table when its JSON file has its name, which only one run can create. Then its files are moved. A run
that dies between has committed: the next read of the job's progress moves the remaining files, before another commit.
So a reader may see some files of a commit before the others, and never a file twice: Spark and pyarrow ignore folders
whose names begin with an underscore. JSON files of commits are never deleted, so their names cannot be taken again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from spark_connectors.jobs.tables import puts
from spark_connectors.jobs.tables.api import OWN, Progress, check_job, check_step, refuse_table
from spark_connectors.jobs.tables.appending import superseded
from spark_connectors.jobs.tables.errors import CommitUnknown, FileRefused, Superseded
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.tables.places import check_files, delete_aged
from spark_connectors.jobs.tables.positions import progress_of, progress_to_json
from spark_connectors.locations import resolved, shown

_HIDDEN: Final = ("_", ".")


class ParquetDirectory:
    """Implements `spark_connectors.jobs.tables.api.Table`."""

    def __init__(self, location: str) -> None:
        """Raises ValueError, TableRefused."""
        location = resolved(location)
        if not location.startswith("/"):
            raise refuse_table(
                shown(location),
                "files in an object store cannot be committed together. Take a table of delta or iceberg for it",
            )
        self._root = Path(location)
        self._own = self._root / f"_{OWN}"
        self._staging = self._own / "staging"

    def schema(self) -> pa.Schema | None:
        path = self._own / "schema.arrow"
        if path.exists():
            return pa.ipc.read_schema(pa.BufferReader(path.read_bytes()))
        every = self._data_files()
        return pq.read_schema(every[0]) if every else None

    def create(self, schema: pa.Schema) -> None:
        for path in self._data_files():
            if path.parent != self._root:
                raise refuse_table(
                    str(self._root), f"it has folders, such as {path.parent.name}, and may be partitioned"
                )
        puts.make_folder(self._staging)
        if self.schema() is None:
            puts.put_new(self._own / "schema.arrow", schema.serialize().to_pybytes(), self._staging)

    def progress(self, job: str) -> Progress:
        """See Table. It completes an interrupted commit. Raises ValueError for damaged JSON of a commit."""
        check_job(job)
        last = self._last(job)
        if last is None:
            return Progress()
        self._publish(last)
        return progress_of(last)

    def data_location(self) -> str:
        return str(self._staging)

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        check_step(before, after)
        now = self.progress(job)
        if now != before:
            raise superseded(job, before, now)
        self._check(files)
        try:
            self._make_durable(files)
            manifest = self._put(job, files, after)
            if manifest is not None:
                self._publish(manifest)
        except OSError as error:
            raise CommitUnknown(f"job {job}: whether a commit was taken is not known: {error}") from error
        if manifest is None:
            raise superseded(job, before, self.progress(job))

    def files(self) -> tuple[str, ...]:
        return tuple(map(str, self._data_files()))

    def sweep(self, older_than_s: float) -> int:
        for folder in self._folder_of("").glob("*"):
            self.progress(folder.name)
        return delete_aged(self.data_location(), older_than_s, time.time(), lambda _: True)

    def _data_files(self) -> list[Path]:
        return sorted(
            path
            for path in self._root.rglob("*.parquet")
            if not any(part.startswith(_HIDDEN) for part in path.relative_to(self._root).parts)
        )

    def _check(self, files: Sequence[NewFile]) -> None:
        schema = self.schema()
        if schema is None:
            raise Superseded("there is no such table (any more)")
        check_files(self.data_location(), files, schema)
        for file in files:
            if (self._root / file.path).exists():
                raise FileRefused(f"there is another {file.path} already")

    def _folder_of(self, job: str) -> Path:
        return self._own / "jobs" / job

    def _last(self, job: str) -> Any:
        """The JSON of the last commit; None: there was none."""
        last = max(self._folder_of(job).glob("*.json"), default=None)
        return last and json.loads(last.read_bytes())

    def _make_durable(self, files: Sequence[NewFile]) -> None:
        for file in files:
            puts.sync(self._staging / file.path)
        puts.sync(self._staging)

    def _put(self, job: str, files: Sequence[NewFile], after: Progress) -> Any:
        """Write the JSON of a commit, and return it; None: another run has committed."""
        found = [{"name": file.path, "rows": file.rows, "size_bytes": file.size_bytes} for file in files]
        manifest = {**progress_to_json(after), "files": found}
        folder = self._folder_of(job)
        puts.make_folder(folder)
        is_new = puts.put_new(folder / f"{after.commits:020}.json", json.dumps(manifest).encode(), self._staging)
        return manifest if is_new else None

    def _publish(self, manifest: Any) -> None:
        for file in manifest["files"]:
            puts.move(self._staging / file["name"], self._root / file["name"])
        puts.sync(self._root)
        puts.sync(self._staging)
