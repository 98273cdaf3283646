"""Names of tables on a command line, and of tables for dead letters.

parquet:/lake/events                      a local directory
delta:/lake/events                        a directory, or a URL as `spark_connectors.locations` takes it
iceberg:lake/db.events                    table db.events of the catalog that pyiceberg knows as lake
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_connectors.jobs.tables.api import Table
from spark_connectors.locations import shown

DEAD_LETTERS: Final = "~dlq"
_LAKE: Final = "pip install 'kafkawire[lake]'"


class NameRefused(ValueError):
    """A wrong name of a table, or a format that is not installed."""


@dataclass(frozen=True)
class TableName:
    """Name of a table. `options` are deltalake's storage options, or the properties of pyiceberg's catalog."""

    format: str
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The name without secrets."""
        return f"{self.format}:{self.place if self.format == 'iceberg' else shown(self.place)}"

    def dead_letters(self) -> TableName:
        """Default name of the table for dead letters."""
        path, mark, settings = self.place.partition("?")
        return TableName(self.format, f"{path.rstrip('/')}{DEAD_LETTERS}{mark}{settings}", self.options)

    def opened(self) -> Table:
        """Open the table. Raises NameRefused, ValueError, TableRefused."""
        try:
            return _OPENED[self.format](self)
        except ModuleNotFoundError as error:
            if error.name not in ("deltalake", "pyiceberg"):
                raise
            raise NameRefused(f"{self.format} needs a package that is not installed: {_LAKE}") from None


def table_name(text: str, options: Mapping[str, str]) -> TableName:
    """Parse a name. Raises NameRefused."""
    kind, colon, place = text.partition(":")
    if not colon or not place or kind not in _OPENED:
        raise NameRefused(f"{text!r} is no table: one is {', or '.join(f'{each}:…' for each in _OPENED)}")
    if kind == "iceberg" and not all(place.partition("/")):
        raise NameRefused(f"{text!r} is no table of Iceberg: one is iceberg:CATALOG/NAMESPACE.TABLE")
    if kind == "parquet" and options:
        raise NameRefused(f"a directory of Parquet has no options: {', '.join(sorted(options))}")
    return TableName(kind, place, options)


def _parquet(name: TableName) -> Table:
    from spark_connectors.jobs.tables.parquet import ParquetDirectory

    return ParquetDirectory(name.place)


def _delta(name: TableName) -> Table:
    from spark_connectors.jobs.tables.delta import DeltaLakeTable

    return DeltaLakeTable(name.place, name.options)


def _iceberg(name: TableName) -> Table:
    from spark_connectors.jobs.tables.iceberg import IcebergTable

    catalog, _, table = name.place.partition("/")
    return IcebergTable(table, catalog, name.options)


_OPENED: Final = {"parquet": _parquet, "delta": _delta, "iceberg": _iceberg}
