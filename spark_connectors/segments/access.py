"""Choice of the catalogue of sealed segments, and access for tasks, by a query's options."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from spark_connectors.locations import resolved
from spark_connectors.segments.bounds import SealedPlaces
from spark_connectors.segments.broker import BrokerCatalogue
from spark_connectors.segments.bucket_catalogue import BucketCatalogue
from spark_connectors.segments.files import SegmentFile
from spark_connectors.segments.object_trailer import read_aborted, read_trailer
from spark_connectors.segments.objects import SegmentObject, store_errors_as_gone
from spark_connectors.segments.plan import Part, SealedRange
from spark_connectors.segments.reading import SealedRead, SegmentBytes, SegmentGone
from spark_connectors.segments.sealed import Aborted, Catalogue, Segment
from spark_connectors.segments.splitting import BySegments
from spark_connectors.segments.stores import Store
from spark_connectors.source.bounds import Places
from spark_connectors.source.fetching import Piece
from spark_connectors.source.filters import NO_FILTERS, Filters
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.planner import Limits
from spark_connectors.source.ranges import Division, OffsetRange, divided
from spark_connectors.source.reading import fetched, rows_of
from spark_connectors.source.segment_options import SegmentOptions
from spark_connectors.wire import FIRST_CONTACT_S, Cluster

_log = logging.getLogger(__name__)


def division_of(options: SourceOptions) -> Division:
    """The function that divides a query's ranges among tasks."""
    segments = options.segments
    return divided if segments is None else _by_segments(segments, catalogue_of(segments))


@contextmanager
def planned_by(options: SourceOptions) -> Iterator[tuple[Limits, Division]]:
    """Limits and division for a batch. Without a broker, both use one catalogue, which remembers its lookups. Raises
    ValueError for a store that cannot be used.
    """
    if not options.bootstrap:
        assert options.segments is not None, "without a broker there is a store"
        catalogue = _bucket(options.segments)
        yield SealedPlaces(catalogue, options.selection), _by_segments(options.segments, catalogue)
    else:
        with Cluster(options.bootstrap, options.settings, first_contact_s=FIRST_CONTACT_S) as cluster:
            yield Places(cluster, options), division_of(options)


def _by_segments(options: SegmentOptions, catalogue: Catalogue) -> Division:
    return BySegments(catalogue, options.split_bytes, SegmentPlaces(options).with_trailer).divided


def catalogue_of(options: SegmentOptions) -> Catalogue:
    """Catalogue of sealed segments. Raises ValueError for a store that cannot be used."""
    return BrokerCatalogue(options.brokers, has_files=options.has_files) if options.brokers else _bucket(options)


def _bucket(options: SegmentOptions) -> BucketCatalogue:
    assert options.store is not None, "sealed segments are listed by brokers, or by a store"
    return BucketCatalogue(options.store, options.cluster_id)


def sealed_pieces(options: SourceOptions, wanted: SealedRange) -> Iterator[Piece]:
    """Batches of a task's segments. Parts that cannot be read are fetched. Raises as RangeFetch does."""
    segments = options.segments
    assert segments is not None, "ranges of segments are planned where they are asked for"
    return SealedRead(
        wanted,
        catalogue_of(segments),
        SegmentPlaces(segments),
        partial(fetched, options) if options.bootstrap else None,
        is_committed_only=options.is_committed_only,
    ).pieces()


def read_rows(
    options: SourceOptions, wanted: OffsetRange, schema: pa.Schema, filters: Filters = NO_FILTERS
) -> Iterator[pa.RecordBatch]:
    """Rows of a task's range, from segments or by Fetch. Raises as RangeFetch does."""
    pieces = sealed_pieces(options, wanted) if isinstance(wanted, SealedRange) else fetched(options, wanted)
    return rows_of(pieces, options, wanted, schema, filters)


class SegmentPlaces:
    """Access to segments: in a file of this machine if possible, otherwise in an object. Implements
    `spark_connectors.segments.reading.Stores`.
    """

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options

    def open(self, part: Part, store: str | None) -> SegmentBytes:
        """See the Protocol."""
        segment = part.segment
        if segment.path is not None:
            try:
                return SegmentFile(segment)
            except (SegmentGone, OSError) as error:
                if segment.key is None:
                    raise
                _log.warning("%s, reading the object", error)
        return SegmentObject(self._store(store), _key_of(segment), part)

    def aborted(self, segment: Segment, store: str | None) -> Aborted:
        """See the Protocol."""
        with store_errors_as_gone():
            return read_aborted(self._store(store), _key_of(segment), segment.size_bytes, segment.digest)

    def with_trailer(self, segment: Segment, store: str | None) -> Segment:
        """The segment, with aborted transactions and positions from the trailer of its object. Raises SegmentGone."""
        with store_errors_as_gone():
            found = read_trailer(self._store(store), _key_of(segment), segment.size_bytes, segment.digest)
        return segment._replace(aborted=found.aborted, positions=found.positions)

    def _store(self, reported: str | None) -> Store:
        """Store of the query's options, or else the location that brokers report."""
        location = self._options.store or reported
        if location is None:
            raise SegmentGone("the location of the objects is not known")
        try:
            return Store(resolved(location))
        except ValueError as error:
            raise SegmentGone(str(error)) from None


def _key_of(segment: Segment) -> str:
    if segment.key is None:
        raise SegmentGone(f"the location of the segment at {segment.base} is not known")
    return segment.key
