"""Task of the sink: makes batches of its rows and stages them. It asks brokers for numbers of partitions only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from spark_connectors.records.encode import Encoded, Rows, encode
from spark_connectors.sink.columns import in_pieces, rows_of
from spark_connectors.sink.options import SinkOptions
from spark_connectors.sink.relay import Frame
from spark_connectors.sink.routing import CountOf, Routed, Router
from spark_connectors.sink.staging import Staged, StagingWriter, Task


def stage(
    batches: Iterator[pa.RecordBatch],
    by: Task,
    options: SinkOptions,
    count_of: CountOf,
    now_ms: Callable[[], int],
) -> Staged:
    """Stage all rows of a task. Raises RowRefused, RecordTooLarge, OSError, and the errors of `count_of`."""
    router = Router(count_of, by.task + (by.batch_id or 0), ignores_keys=options.ignores_keys)
    writer = StagingWriter(by, options.staging)
    try:
        for piece in in_pieces(batches):
            for frame in _frames(router.routed(rows_of(piece, options.topic)), options, now_ms()):
                writer.add(frame)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def _frames(routed: Routed, options: SinkOptions, now_ms: int) -> Iterator[Frame]:
    """The first batch of each place, then the second ones, so that several places are written at once."""
    rows = routed.rows
    encoded = encode(
        Rows(rows.keys, rows.values, rows.headers, np.full(len(rows.values), now_ms, np.int64)),
        codec=options.codec,
        bytes_max=options.batch_max_bytes,
        record_bytes_max=options.record_max_bytes,
        groups=routed.edges[1:],
    )
    by_group: list[list[Encoded]] = [[] for _ in routed.places]
    for one in encoded:
        by_group[one.group].append(one)
    for turn in zip_longest(*by_group):
        for place, found in zip(routed.places, turn, strict=True):
            if found is not None:
                yield Frame(place, found.batch, found.records)
