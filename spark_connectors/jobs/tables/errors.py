"""Errors of tables, which end a job."""

from __future__ import annotations


class Superseded(Exception):
    """Another run has moved the job, or the table is another one now. Nothing of this commit is in the table."""


class CommitUnknown(Exception):
    """A commit with an unknown outcome. The progress shows it later; a retry is always safe."""


class SchemaRefused(ValueError):
    """Rows that do not fit the table."""


class TableRefused(ValueError):
    """A table, or a location for one, to which nothing can be appended exactly once."""


class FileRefused(ValueError):
    """A data file that is missing, or that differs from its description."""
