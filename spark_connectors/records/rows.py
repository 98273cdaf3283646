"""Records of a group as rows, with offsets and timestamps from the headers of batches and from the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spark_connectors.records.batches import LOG_APPEND_TIME_BIT
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.fields import fields_of
from spark_connectors.records.headers import headers_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_connectors.records.fields import Spans
    from spark_connectors.records.groups import Group
    from spark_connectors.records.headers import Headers
    from spark_connectors.records.starts import Integers, Octets

CREATE_TIME: Final = 0  # the numbers of Kafka's TimestampType
LOG_APPEND_TIME: Final = 1


class Rows(NamedTuple):
    """Fields of each record, with ascending offsets."""

    raw: Octets
    ends: Integers  # positions behind the last bytes
    offsets: Integers
    timestamps_ms: Integers
    timestamp_types: npt.NDArray[np.int32]
    keys: Spans
    values: Spans
    headers: Headers | None


def rows_of(group: Group, *, with_headers: bool) -> Rows:
    """Rows of a group. Raises MalformedBatch if records contradict each other or their batch."""
    raw, batches, counts, bounds = group
    fields = fields_of(raw, bounds)
    headers = headers_of(raw, fields.headers_at, bounds.ends) if with_headers else None
    base_offsets = np.array([batch.base_offset for batch in batches], np.int64)
    offsets = np.repeat(base_offsets, counts) + fields.offset_deltas
    _check_offsets(group, fields.offset_deltas, offsets)
    is_log_append_time = np.array([batch.attributes for batch in batches]) & LOG_APPEND_TIME_BIT != 0
    timestamps_ms = _timestamps_ms(group, is_log_append_time, fields.timestamp_deltas_ms)
    types = np.repeat(np.where(is_log_append_time, np.int32(LOG_APPEND_TIME), np.int32(CREATE_TIME)), counts)
    return Rows(raw, bounds.ends, offsets, timestamps_ms, types, fields.keys, fields.values, headers)


def _check_offsets(group: Group, deltas: Integers, offsets: Integers) -> None:
    """Check that offsets ascend, each within its batch, so that no two records have the same offset.

    Sums that overflow do not ascend to the last offset, which is compared before any addition.
    """
    last_deltas = np.array([batch.last_offset_delta for batch in group.batches])
    if deltas.min() < 0 or np.any(deltas[np.cumsum(group.counts) - 1] > last_deltas):
        raise MalformedBatch("a record has an offset outside of its batch")
    if np.any(offsets[1:] <= offsets[:-1]):
        raise MalformedBatch("offsets of records do not ascend")


def _timestamps_ms(group: Group, is_log_append_time: npt.NDArray[np.bool_], deltas: Integers) -> Integers:
    """Timestamps of records. If the broker set the time, all records have the maximum of their batch. Sums overflow as
    in Java.
    """
    bases = np.array([batch.base_timestamp_ms for batch in group.batches], np.int64)
    if is_log_append_time.any():
        bases = np.where(is_log_append_time, [batch.max_timestamp_ms for batch in group.batches], bases)
        deltas = np.where(np.repeat(is_log_append_time, group.counts), 0, deltas)
    return np.repeat(bases, group.counts) + deltas
