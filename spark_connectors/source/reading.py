"""Reading of a range in a task: it fetches the range, leaves out invisible and unwanted rows, and returns Arrow
batches.

A Spark worker runs one task after the other, so connections are kept for the next task. They stay in their process: the
cache is pickled empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from spark_connectors.records.decode import decode
from spark_connectors.records.visible import visible
from spark_connectors.source.fetching import Piece, RangeFetch
from spark_connectors.source.filters import NO_FILTERS, Filters
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import Cluster


class ClusterCache:
    """Cache of one client of a cluster, at most."""

    def __init__(self) -> None:
        self._key: Any = None
        self._cluster: Cluster | None = None

    def __reduce__(self) -> tuple[type[ClusterCache], tuple[()]]:
        return ClusterCache, ()

    def of(self, options: SourceOptions) -> Cluster:
        """The kept client if it has these servers and settings; otherwise a new one."""
        key = (options.bootstrap, options.settings)
        if self._cluster is None or self._key != key:
            self.close()
            self._key, self._cluster = key, Cluster(options.bootstrap, options.settings)
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = None


_clusters = ClusterCache()


def fetched(options: SourceOptions, wanted: OffsetRange, cluster: Cluster | None = None) -> Iterator[Piece]:
    """Batches of a range from brokers. Raises as RangeFetch does."""
    return RangeFetch(cluster or _clusters.of(options), options, wanted).pieces()


def rows_of(
    pieces: Iterable[Piece],
    options: SourceOptions,
    wanted: OffsetRange,
    schema: pa.Schema,
    filters: Filters = NO_FILTERS,
) -> Iterator[pa.RecordBatch]:
    """Wanted rows of a range, in the order of their offsets. Raises MalformedBatch, and the errors of `pieces`."""
    for piece in pieces:
        batches = decode(
            piece.records,
            visible(piece.batches, piece.aborted, is_committed_only=options.is_committed_only),
            topic=wanted.place.topic,
            partition=wanted.place.partition,
            start=piece.start,
            end=wanted.end,
            schema=schema,
        )
        yield from (batch for batch in map(filters.applied, batches) if batch.num_rows)


def read_range(
    options: SourceOptions,
    wanted: OffsetRange,
    schema: pa.Schema,
    filters: Filters = NO_FILTERS,
    cluster: Cluster | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of a range from brokers. Raises as `fetched` does."""
    return rows_of(fetched(options, wanted, cluster), options, wanted, schema, filters)
