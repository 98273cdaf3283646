"""What a job ends with because of its table."""

from __future__ import annotations


class Superseded(Exception):
    """Somebody else has brought the job further, or the table is another now: nothing of this commit is in it."""


class CommitUnknown(Exception):
    """A commit whose fate cannot be told now. Its progress tells later; to try again is safe at any time."""


class SchemaRefused(ValueError):
    """Rows that are none of the table's."""


class TableRefused(ValueError):
    """A table, or a place for one, to which nothing can be appended exactly once."""


class FileRefused(ValueError):
    """A data file that is not there, or that is not as it was told."""
