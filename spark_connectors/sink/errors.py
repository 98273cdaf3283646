"""Errors of the sink, which end a query."""

from __future__ import annotations


class RowRefused(ValueError):
    """A row that does not fit into a record, or that has no topic or partition."""


class ColumnsRefused(ValueError):
    """Columns that are missing, or have a wrong type."""


class StagingLost(Exception):
    """Staged batches are missing or damaged. Nothing was written to any topic."""


class CommitRefused(Exception):
    """The sink cannot find out whether a micro-batch was written. A guess would lose rows or write them twice."""


class Fenced(Exception):
    """Another attempt has begun to commit for this query, or the transaction exceeded its timeout.

    The transaction may have been committed, even by this attempt. The next attempt finds out.
    """
