"""Fetch: record batches from an offset on, by topic id (KIP-516), without a session (KIP-227)."""

from __future__ import annotations

from typing import Final

from spark_connectors.wire.api import Api
from spark_connectors.wire.layout import (
    Int8,
    Int16,
    Int32,
    Int64,
    NullableBytes,
    Text,
    TopicId,
    message,
)

NO_SESSION_EPOCH: Final = -1


@message
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = -1
    fetch_offset: Int64
    last_fetched_epoch: Int32 = -1
    log_start_offset: Int64 = -1
    partition_max_bytes: Int32


@message
class FetchTopic:
    topic_id: TopicId
    partitions: tuple[FetchPartition, ...]


@message
class ForgottenTopic:
    topic_id: TopicId
    partitions: tuple[Int32, ...]


@message
class FetchRequest:
    replica_id: Int32 = -1
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32
    isolation_level: Int8
    session_id: Int32 = 0
    session_epoch: Int32 = NO_SESSION_EPOCH
    topics: tuple[FetchTopic, ...]
    forgotten_topics: tuple[ForgottenTopic, ...] = ()
    rack_id: Text = ""


@message
class AbortedTransaction:
    """An aborted transaction. It ends at the next abort marker of its producer."""

    producer_id: Int64
    first_offset: Int64


@message
class FetchedPartition:
    """Fetched records. `records` are batches, and the last one may be incomplete. The first one may begin before the
    requested offset.
    """

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64
    log_start_offset: Int64
    aborted_transactions: tuple[AbortedTransaction, ...] | None
    preferred_read_replica: Int32
    records: NullableBytes


@message
class FetchedTopic:
    topic_id: TopicId
    partitions: tuple[FetchedPartition, ...]


@message
class FetchResponse:
    throttle_time_ms: Int32
    error_code: Int16
    session_id: Int32
    responses: tuple[FetchedTopic, ...]


FETCH: Final = Api("Fetch", 1, 13, FetchRequest, FetchResponse)
