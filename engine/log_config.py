"""Topic configuration that concerns the logs: values of Kafka's topic keys. Part of the public interface."""

from dataclasses import dataclass, replace
from enum import Enum


class TimestampType(Enum):
    """Kafka's message.timestamp.type."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CompressionType(Enum):
    """Kafka's compression.type: the codec of stored batches; PRODUCER = as the producer sent them."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class FlushPolicy(Enum):
    """Durability of a topic's acknowledged appends (RULES L1): SYNC = fdatasynced, ASYNC = in the page cache."""

    SYNC = "sync"
    ASYNC = "async"


AS_RECORDS = -2

ReplicaNames = frozenset[tuple[int, int]]  # (partition, broker id) of replicas
EVERY_REPLICA = (-1, -1)


class CleanupPolicy(Enum):
    """Kafka's cleanup.policy; a topic may have both."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Configuration of a log: topic keys with Kafka's defaults."""

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
    may_elect_unclean: bool = False  # used by the control plane
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
    requires_keys: bool = False  # every record needs a key: compacted topics that clients write
    remote_storage: bool = False  # finished segments are copied to the remote tier
    remote_copy_disabled: bool = False  # the tier is read, and no segment is copied
    remote_delete_on_disable: bool = False  # objects in the tier are deleted when the topic leaves it
    local_retention_ms: int = AS_RECORDS  # of files of segments that the tier has; AS_RECORDS: as retention_ms
    local_retention_size_bytes: int = AS_RECORDS
    leader_throttled_replicas: ReplicaNames = frozenset()  # used by the replication between brokers
    follower_throttled_replicas: ReplicaNames = frozenset()

    def local(self) -> "LogConfig":
        """The configuration with the local retention, for files of segments that the remote tier has."""
        ms, size_bytes = self.local_retention_ms, self.local_retention_size_bytes
        return replace(
            self,
            retention_ms=self.retention_ms if ms == AS_RECORDS else ms,
            retention_size_bytes=self.retention_size_bytes if size_bytes == AS_RECORDS else size_bytes,
        )
