"""What a micro-batch's progress says of topics: the next offset to read of each partition.

An end offset is text that each source writes as it likes. Those of topics are told by who wrote them: the kafka source
by its description, ours by the topic ids, which nobody else has there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spark_connectors.offsets import MalformedOffsets, Offsets
from spark_connectors.wire import TopicPartition

Positions = Mapping[TopicPartition, int]
_STOCK: Final = "Kafka"  # KafkaV2[Subscribe[events]], KafkaSourceV1[…]


class SourceEnd(NamedTuple):
    """One of a query's sources, and up to where a micro-batch has read it: both as Spark reports them."""

    description: str
    end_offset: str


def positions_of(sources: Iterable[SourceEnd]) -> dict[TopicPartition, int]:
    """Of all partitions that a query reads; what other sources say is left out."""
    return lowest(_of_source(one) for one in sources)


def lowest(several: Iterable[Positions]) -> dict[TopicPartition, int]:
    """Of each partition where the slowest of its readers is, as it is its lag that one wants to see."""
    found: dict[TopicPartition, int] = {}
    for positions in several:
        for place, offset in positions.items():
            found[place] = min(offset, found.get(place, offset))
    return found


def _of_source(source: SourceEnd) -> Positions:
    try:
        offsets = Offsets.from_json(json.loads(source.end_offset))
    except (json.JSONDecodeError, MalformedOffsets):
        return {}
    is_ours = bool(offsets.ids)
    return offsets.positions if is_ours or source.description.startswith(_STOCK) else {}
