"""What a query ends with because of what it writes, or of what happened to it on its way."""

from __future__ import annotations


class RowRefused(ValueError):
    """A row that no record can be made of, or that nobody knows where to put."""


class ColumnsRefused(ValueError):
    """Columns that are missing, or of a type that no record has."""


class StagingLost(Exception):
    """What a task has staged is not there, or is not what the task has staged. Nothing was written to any topic."""


class CommitRefused(Exception):
    """It cannot be told whether a micro-batch was written, and guessing would lose rows or write them twice."""


class Fenced(Exception):
    """Somebody else has begun to commit for this query, or the transaction took longer than it may.

    Whether it was committed, perhaps by this one, who did not hear of it, the next try finds out.
    """
