"""Tables of Delta, by deltalake.

The progress of a job is in app transactions. Delta keeps the last version of each app id forever:

    kafkawire/<job>                                number of its commits
    kafkawire/<job>/topics                         number of its topics
    kafkawire/<job>/topics/<number>/<half>         a topic's id, as two signed numbers of 64 bits
    kafkawire/<job>/<topic id>                     highest partition number, plus one
    kafkawire/<job>/<topic id>/<partition>         the next offset to export

App ids cannot be listed, only looked up, so these refer to each other. All commits of a job set the first one, and
deltalake refuses a commit if one of its app ids was set since its writer read the table. But it accepts a lower version
than the last one if the writer has read that. So this module compares the progress, in the snapshot that it commits on.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from spark_connectors.jobs.tables import appending
from spark_connectors.jobs.tables.api import OWN, Place, Progress, check_job, refuse_files, refuse_table
from spark_connectors.jobs.tables.facts import Column, NewFile
from spark_connectors.jobs.tables.places import below, check_files, delete_aged, with_settings
from spark_connectors.jobs.tables.schemas import with_microseconds
from spark_connectors.locations import resolved, shown

_UNSAFE: Final = "s3_allow_unsafe_rename"  # lets one commit replace another
_MISTAKEN: Final = frozenset("%[]")
_EXPIRY: Final = "delta.setTransactionRetentionDuration"
_MAPPING: Final = "delta.columnMapping.mode"
_DELETIONS: Final = "deletionVectors"
_CONSTRAINTS: Final = "delta.constraints."
_NAMES_OF_SETTINGS: Final = {  # deltalake's and pyiceberg's
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "default_region": "s3.region",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
    "endpoint_url": "s3.endpoint",
}
_ID_HALVES: Final = ">qq"
_MILLISECOND_US: Final = 1000


class DeltaLakeTable:
    """Implements `spark_connectors.jobs.tables.api.Table`. The location is one of pyarrow. Settings of S3 in
    `storage_options`, under deltalake's names, are valid for the data files too, which pyarrow writes. Settings in the
    location come before them; deltalake does not get those.
    """

    def __init__(self, location: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Raises ValueError, TableRefused."""
        self._options = dict(storage_options or {})
        self._location = resolved(_with_settings(location, self._options))
        self._name = shown(self._location)
        self._uri = self._location if self._location.startswith("/") else self._name
        if set(self._uri) & _MISTAKEN:
            raise refuse_table(self._name, f"deltalake mistakes paths that have one of {' '.join(sorted(_MISTAKEN))}")
        for option in self._options:
            if option.lower().endswith(_UNSAFE):
                raise refuse_table(self._name, f"with {option} two commits may take each other's place")

    def schema(self) -> pa.Schema | None:
        snapshot = self._latest()
        return snapshot and snapshot.schema()

    def create(self, schema: pa.Schema) -> None:
        try:
            DeltaTable.create(self._uri, with_microseconds(schema), storage_options=self._options)
        except DeltaError:
            if self._latest() is None:
                raise
        snapshot = self._latest()
        if snapshot is not None:
            snapshot.check_table()

    def progress(self, job: str) -> Progress:
        check_job(job)
        snapshot = self._latest()
        return Progress() if snapshot is None else snapshot.progress(job)

    def data_location(self) -> str:
        return below(self._location, OWN)

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        appending.append(self._latest, job, files, before, after)

    def files(self) -> tuple[str, ...]:
        snapshot = self._latest()
        if snapshot is None:
            return ()
        snapshot.check_plain()
        return snapshot.files()

    def sweep(self, older_than_s: float) -> int:
        """See Table. Delta keeps files that were committed and removed again for a time (a week by default), for time
        travel. Files that its vacuum would keep stay.
        """
        snapshot = self._latest()
        if snapshot is None:
            return 0
        wanted = snapshot.unreferenced()
        return delete_aged(self.data_location(), older_than_s, time.time(), lambda name: f"{OWN}/{name}" in wanted)

    def _latest(self) -> _Snapshot | None:
        try:
            return _Snapshot(DeltaTable(self._uri, storage_options=self._options), self._name, self.data_location())
        except TableNotFoundError:
            return None


class _Snapshot:
    """Implements `spark_connectors.jobs.tables.appending.Snapshot`."""

    def __init__(self, table: DeltaTable, name: str, data_location: str) -> None:
        self._table = table
        self._name = name
        self._data_location = data_location

    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema())

    def files(self) -> tuple[str, ...]:
        uris = self._table.file_uris()
        return tuple(unquote(uri) if uri.startswith("/") else uri for uri in uris)

    def unreferenced(self) -> set[str]:
        """Paths below the table that its log does not name, and that are older than its retention."""
        return set(self._table.vacuum(dry_run=True, full=True))

    def progress(self, job: str) -> Progress:
        offsets: dict[Place, int] = {}
        for topic_id in self._topics(job):
            for partition in range(self._version(job, topic_id.hex())):
                offset = self._table.transaction_version(_app_id(job, topic_id.hex(), partition))
                if offset is not None:
                    offsets[Place(topic_id, partition)] = offset
        return Progress(offsets, self._version(job))

    def check(self, files: Sequence[NewFile]) -> None:
        self.check_table()
        check_files(self._data_location, files, self.schema())

    def check_table(self) -> None:
        """Raises TableRefused for features that tasks ignore when they write files, or would break."""
        for reason in self._beside_files():
            raise refuse_table(self._name, reason)
        settings = self._table.metadata().configuration
        if _EXPIRY in settings:
            raise refuse_table(self._name, f"it would forget the exported offsets ({_EXPIRY})")
        for name in settings:
            if name.startswith(_CONSTRAINTS):
                raise refuse_table(self._name, f"the export does not check {name}")
        for column in self._table.schema().fields:
            if any(name.startswith("delta.") for name in column.metadata):
                raise refuse_table(self._name, f"column {column.name} is computed, or checked, by its writer")

    def check_plain(self) -> None:
        """Raises TableRefused if the files have other rows than the table."""
        for reason in self._beside_files():
            raise refuse_files(self._name, reason)
        may_have = _DELETIONS in (self._table.protocol().reader_features or ())
        if may_have and any(batch.num_rows for batch in self._table.deletion_vectors()):
            raise refuse_files(self._name, "rows were deleted that they have (deletion vectors). Purge it first")

    def _beside_files(self) -> Iterator[str]:
        metadata = self._table.metadata()
        if metadata.partition_columns:
            yield f"it is partitioned, by {', '.join(metadata.partition_columns)}"
        if metadata.configuration.get(_MAPPING, "none") != "none":
            yield f"its columns have other names in files ({_MAPPING})"

    def has(self, files: Sequence[NewFile]) -> bool:
        names = {file.path for file in files}
        return any(uri.rpartition("/")[2] in names for uri in self.files())

    def append(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        properties = CommitProperties(
            custom_metadata={f"{OWN}.job": job, f"{OWN}.commit": str(after.commits)},
            app_transactions=self._transactions(job, before, after),
        )
        actions = [_added(file, int(time.time() * 1000)) for file in files]
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise appending.Refused(str(error)) from error

    def _transactions(self, job: str, before: Progress, after: Progress) -> list[Transaction]:
        """App transactions whose version has to change."""
        topics = self._topics(job)
        topics += sorted({place.topic_id for place in after.offsets} - set(topics))
        wanted = {_app_id(job): after.commits, _app_id(job, "topics"): len(topics)}
        for number, topic_id in enumerate(topics):
            for half, value in enumerate(struct.unpack(_ID_HALVES, topic_id)):
                wanted[_app_id(job, "topics", number, half)] = value
            highest = max(place.partition for place in after.offsets if place.topic_id == topic_id)
            wanted[_app_id(job, topic_id.hex())] = highest + 1
        for place, offset in after.offsets.items():
            if before.offsets.get(place) != offset:
                wanted[_app_id(job, place.topic_id.hex(), place.partition)] = offset
        known = self._table.transaction_version
        return [Transaction(app_id, value) for app_id, value in wanted.items() if known(app_id) != value]

    def _topics(self, job: str) -> list[bytes]:
        halves = [
            [self._version(job, "topics", number, half) for half in (0, 1)]
            for number in range(self._version(job, "topics"))
        ]
        return [struct.pack(_ID_HALVES, *both) for both in halves]

    def _version(self, job: str, *names: object) -> int:
        return self._table.transaction_version(_app_id(job, *names)) or 0


def _with_settings(location: str, storage_options: Mapping[str, str]) -> str:
    """The location, with settings of S3 if it has none. deltalake's names are in any case, with `aws_` or without."""
    url = urlsplit(location)
    if url.username is not None or url.query:
        return location
    given = {name.lower().removeprefix("aws_"): value for name, value in storage_options.items()}
    known = {pyiceberg: given[name] for name, pyiceberg in _NAMES_OF_SETTINGS.items() if name in given}
    return with_settings(location, known)


def _app_id(job: str, *names: object) -> str:
    return "/".join([OWN, job, *map(str, names)])


def _added(file: NewFile, now_ms: int) -> AddAction:
    statistics = {"numRecords": file.rows, **_bounds(file.columns)}
    return AddAction(f"{OWN}/{file.path}", file.size_bytes, {}, now_ms, True, json.dumps(statistics))


def _bounds(columns: Mapping[str, Column]) -> dict[str, dict[str, Any]]:
    known = {name: column for name, column in columns.items() if column.least is not None}
    return {
        "nullCount": {name: column.nulls for name, column in columns.items()},
        "minValues": {name: _as_json(column.least, is_upper=False) for name, column in known.items()},
        "maxValues": {name: _as_json(column.greatest, is_upper=True) for name, column in known.items()},
    }


def _as_json(value: Any, *, is_upper: bool) -> Any:
    """A bound in JSON. Times have milliseconds there, so a bound is rounded outwards, to remain a bound."""
    if isinstance(value, datetime):
        return _in_milliseconds(value, is_upper=is_upper)
    return value if isinstance(value, (int, str)) else value.isoformat()


def _in_milliseconds(value: datetime, *, is_upper: bool) -> str:
    left_us = value.microsecond % _MILLISECOND_US
    moved_us = (_MILLISECOND_US - left_us) % _MILLISECOND_US if is_upper else -left_us
    moved = value + timedelta(microseconds=moved_us)
    if moved.tzinfo is None:
        return moved.isoformat(timespec="milliseconds")
    return moved.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
