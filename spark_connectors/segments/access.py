"""Who says what is sealed, and where tasks find it, by a query's options."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from spark_connectors.segments.broker import BrokerCatalogue
from spark_connectors.segments.division import BySegments
from spark_connectors.segments.files import SegmentFile
from spark_connectors.segments.plan import SealedRange
from spark_connectors.segments.reading import SealedRead, SegmentBytes, SegmentGone
from spark_connectors.segments.sealed import Aborted, Catalogue, Segment
from spark_connectors.source.fetching import Piece
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import ByOffsets, Division
from spark_connectors.source.reading import fetched
from spark_connectors.source.segment_options import SegmentOptions

_log = logging.getLogger(__name__)


def division_of(options: SourceOptions) -> Division:
    """How a query's ranges are divided among its tasks."""
    if options.segments is None:
        return ByOffsets()
    return BySegments(catalogue_of(options.segments), options.segments.split_bytes)


def catalogue_of(options: SegmentOptions) -> Catalogue:
    return BrokerCatalogue(options.brokers, has_files=options.has_files)


def sealed_pieces(options: SourceOptions, wanted: SealedRange) -> Iterator[Piece]:
    """What a task reads of segments; what of it cannot be read, is fetched. Raises as RangeFetch does."""
    segments = options.segments
    assert segments is not None, "ranges of segments are planned where they are asked for"
    return SealedRead(
        wanted,
        catalogue_of(segments),
        Places(segments),
        lambda one: fetched(options, one),
        is_committed_only=options.is_committed_only,
    ).pieces()


class Places:
    """Implements `spark_connectors.segments.reading.Stores`: a file of this machine is nearer than an object."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options

    def open(self, segment: Segment, store: str | None) -> SegmentBytes:
        """See the Protocol."""
        if segment.path is not None:
            try:
                return SegmentFile(segment)
            except (SegmentGone, OSError) as error:
                if segment.key is None:
                    raise
                _log.warning("%s, reading the object", error)
        raise SegmentGone(f"nobody has said where the segment at {segment.base} is")

    def aborted(self, segment: Segment, store: str | None) -> Aborted:
        """See the Protocol."""
        raise SegmentGone(f"nobody has said what was aborted in the segment at {segment.base}")
