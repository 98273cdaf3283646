"""Choice of the partition of each row, and order of rows by partition.

If the column `partition` is not null, it decides; otherwise the key, if there is one; otherwise the partitions take
turns (KafkaProducer.partition). The number of partitions of a topic is looked up once in each task.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_connectors.records.partitioner import Spread, partitions_of_keys
from spark_connectors.sink.columns import SinkRows, byte_sizes
from spark_connectors.sink.errors import RowRefused
from spark_connectors.wire import TopicPartition

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

CountOf = Callable[[str], int]  # the number of partitions of a topic

_OVERHEAD_BYTES: Final = 20  # of an empty record, approximately


class Routed(NamedTuple):
    """Rows ordered by place; those of `places[i]` begin at `edges[i]`."""

    rows: SinkRows
    places: list[TopicPartition]
    edges: list[int]


class Router:
    """Router of one task. `begin` chooses the first partition for rows without a key, and differs between tasks."""

    def __init__(self, count_of: CountOf, begin: int, *, ignores_keys: bool = False) -> None:
        self._count_of = count_of
        self._begin = begin
        self._ignores_keys = ignores_keys
        self._counts: dict[str, int] = {}
        self._spreads: dict[str, Spread] = {}

    def routed(self, rows: SinkRows) -> Routed:
        """Route rows, at least one. Raises RowRefused for a missing partition, and the errors of `count_of`."""
        encoded = rows.topics.dictionary_encode()
        topics = encoded.dictionary.to_pylist()
        indexes = encoded.indices.to_numpy().astype(np.int64)
        partitions = np.empty(len(indexes), np.int64)
        by_topic = _order_of(indexes)
        bounds = np.searchsorted(indexes[by_topic], np.arange(len(topics) + 1)).tolist()
        for topic, (first, end) in zip(topics, pairwise(bounds), strict=True):
            chosen = by_topic[first:end]
            partitions[chosen] = self._partitions(topic, _taken(rows, chosen))
        stride = int(partitions.max()) + 1
        codes = indexes * stride + partitions
        order = _order_of(codes)
        codes = codes[order]
        edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist()]
        places = [TopicPartition(topics[code // stride], code % stride) for code in codes[edges].tolist()]
        return Routed(_taken(rows, order), places, edges)

    def _partitions(self, topic: str, rows: SinkRows) -> Integers:
        """Partitions of rows of one topic."""
        count = self._count(topic)
        given: Integers = rows.partitions.fill_null(-1).to_numpy().astype(np.int64)
        has_one = _is_there(rows.partitions)
        self._check(topic, given[has_one], count)
        has_key = _is_there(rows.keys) & (not self._ignores_keys)
        by_key = np.flatnonzero(~has_one & has_key)
        if len(by_key):
            given[by_key] = partitions_of_keys(rows.keys.take(pa.array(by_key)), count)
        by_turn = np.flatnonzero(~has_one & ~has_key)
        if len(by_turn):
            spread = self._spreads.setdefault(topic, Spread(self._begin))
            given[by_turn] = spread.partitions_of(_OVERHEAD_BYTES + byte_sizes(rows).to_numpy()[by_turn], count)
        return given

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._count_of(topic)
        return self._counts[topic]

    def _check(self, topic: str, given: Integers, count: int) -> None:
        if not len(given):
            return
        if int(given.min()) < 0:
            raise RowRefused(
                f"Invalid partition: {int(given.min())}. Partition number should always be non-negative or null."
            )
        if int(given.max()) >= count:
            self._counts[topic] = self._count_of(topic)  # partitions may have been added
            if int(given.max()) >= self._counts[topic]:
                raise RowRefused(f"topic {topic} has {self._counts[topic]} partitions, and none {int(given.max())}")


def _is_there(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _order_of(codes: Integers) -> Integers:
    """Sorted order of codes, of which there is at least one. Small codes are sorted as uint16, which is several times
    faster.
    """
    is_small = int(codes.max()) <= np.iinfo(np.uint16).max
    return np.argsort(codes.astype(np.uint16) if is_small else codes, kind="stable")


def _taken(rows: SinkRows, order: Integers) -> SinkRows:
    if len(order) == len(rows.values) and (np.diff(order) == 1).all():
        return rows
    places = pa.array(order)
    return SinkRows(*(column.take(places) for column in rows))
