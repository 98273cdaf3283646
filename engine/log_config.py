"""A topic's configuration as far as its logs are concerned: Kafka's topic keys as values. Part of the public face."""

from dataclasses import dataclass
from enum import Enum


class TimestampType(Enum):
    """Kafka's message.timestamp.type."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(Enum):
    """Kafka's compression.type: how the batches of a topic are stored; PRODUCER = as they come."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class FlushPolicy(Enum):
    """What *durable* means for a topic (RULES L1): SYNC = fdatasynced, ASYNC = in the page cache."""

    SYNC = "sync"
    ASYNC = "async"


class CleanupPolicy(Enum):
    """What may become of old records; a topic may have both."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A topic's configuration as far as the log is concerned; defaults are Kafka's."""

    max_message_size_bytes: int = 1_048_588
    segment_size_bytes: int = 1_073_741_824
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    compression_type: CompressionType = CompressionType.PRODUCER
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    min_insync_replicas: int = 1
    segment_age_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_size_bytes: int = 10_485_760
    file_delete_delay_ms: int = 60_000
    flush_policy: FlushPolicy = FlushPolicy.SYNC
    index_keys: bool = False
    preallocate: bool = False
    flush_messages: int = 2**63 - 1
    flush_interval_ms: int = 2**63 - 1
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    retention_ms: int = 604_800_000  # -1: no limit
    retention_size_bytes: int = -1  # no limit
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    requires_keys: bool = False  # of every record: those of a compacted topic that clients write
